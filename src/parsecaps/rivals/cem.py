"""The concept embedding model: each concept is a vector, mixed of one for present and one for absent."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from parsecaps.rivals.concept_heads import ConceptEmbeddings, EmbeddingBottleneck
from parsecaps.rivals.concept_model import ConceptModel
from parsecaps.types import Output

_MOST_DIMENSIONS = 1024


class CEM(ConceptModel):
    """The concept embedding model (Espinosa Zarlenga et al. 2022), on features of any network.

    In training, each concept is set to its truth with the probability `randint` before the loss of the classes, by one
    draw for all images of a batch, so that the model learns to follow a corrected concept. Deviation: where the truth
    is unknown, the concept stays as the model sees it.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits, presences, `concept_weights`, and as `concept_features` (B, m) the logits of the
          presences

    >>> import torch
    >>> model = CEM.from_preset("tiny", num_classes=2).eval()
    >>> model(torch.rand(1, 1, 32, 32)).concept_weights.shape
    torch.Size([1, 2, 3])
    """

    losses: ClassVar[Mapping[str, float]] = {"classification": 1.0, "concept_cross_entropy": 1.0}

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 224,
        backbone: str = "ResNet34",
        backbone_preset: str = "medical",
        embedding_dim: int = 16,
        randint: float = 0.25,
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        if not 1 <= embedding_dim <= _MOST_DIMENSIONS:
            raise ValueError(f"embedding_dim is {embedding_dim}; give from 1 to {_MOST_DIMENSIONS}")
        if not 0 <= randint <= 1:
            raise ValueError(f"randint is {randint}; give a probability, from 0 (off) to 1")
        super().__init__(config)
        self.intervention_probability = float(randint)
        self.concepts = ConceptEmbeddings(
            in_dim=self.backbone.num_features, num_concepts=num_concepts, dim=embedding_dim
        )
        self.classes = EmbeddingBottleneck(num_concepts=num_concepts, num_classes=num_classes, dim=embedding_dim)

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        self.refuse_reconstruction(reconstruct)
        vectors, presence, logits = self.concepts(self.backbone.features(image))
        decided, contributions, weights = self.classes(vectors, presence)
        return Output(decided, contributions, presence=presence, concept_features=logits, concept_weights=weights)

    def decide(self, output: Output, presence: Tensor) -> Tensor:
        assert output.presence is not None
        assert output.concept_weights is not None
        moved = presence - output.presence
        return output.logits + (output.concept_weights * moved.unsqueeze(1)).sum(-1)
