"""The concept bottleneck model: from an image to concepts, and from the concepts alone to a class."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

from torch import Tensor

from parsecaps.nn.heads import Bottleneck
from parsecaps.rivals.concept_heads import ConceptLogits
from parsecaps.rivals.concept_model import ConceptModel
from parsecaps.types import Output

Mode = Literal["joint", "sequential", "independent"]
Passed = Literal["auto", "presence", "logit"]  # auto: models saved when joint ones passed presences on


class CBM(ConceptModel):
    """The concept bottleneck model (Koh et al. 2020): a linear layer for the concepts, another one for the classes.

    How the second learns is the `mode`: "joint", with the first; "sequential", from the concepts as the first gives
    them, without a gradient back; "independent", from the true concepts, and from those that the first gives only where
    the truth is unknown. What it reads is `passes`: the "logit" of a concept or its "presence", which is the default
    where it learns independently; in both as published.

    Deviations: both layers learn at the same time in every mode; one after the other as published would be two
    trainings. The loss of the concepts is their mean, not a hundredth of their sum: its weight of 1.12 is what the
    published 0.01 is for the 112 concepts of the published data. The published common factor of all losses is 1.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits, presences and, as `concept_features` (B, m), their logits

    >>> import torch
    >>> model = CBM.from_preset("tiny", num_classes=2, mode="sequential").eval()
    >>> model(torch.rand(1, 1, 32, 32)).presence.shape
    torch.Size([1, 3])
    """

    losses: ClassVar[Mapping[str, float]] = {"classification": 1.0, "concept_cross_entropy": 1.12}

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 224,
        backbone: str = "ResNet34",
        backbone_preset: str = "medical",
        mode: Mode = "joint",
        passes: Passed | None = None,
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        if passes is None:
            passes = "presence" if mode == "independent" else "logit"
        elif passes == "auto":
            passes = "logit" if mode == "sequential" else "presence"
        for name, value, known in (("mode", mode, get_args(Mode)), ("passes", passes, ("presence", "logit"))):
            if value not in known:
                raise ValueError(f"{name} is {value!r}; choose one of {', '.join(known)}")
        if mode == "independent" and passes == "logit":
            raise ValueError("passes is 'logit', but true concepts have no logits to learn from; give 'presence'")
        super().__init__({**config, "passes": passes})
        self.mode, self.intervention_probability = mode, float(mode == "independent")
        self.concepts = ConceptLogits(in_dim=self.backbone.num_features, num_concepts=num_concepts)
        self.classes = Bottleneck(num_concepts=num_concepts, num_classes=num_classes, scale=passes)

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        self.refuse_reconstruction(reconstruct)
        presence, logits = self.concepts(self.backbone.features(image))
        read = logits if self.classes.scale == "logit" else presence
        decided, contributions = self.classes(read if self.mode == "joint" else read.detach())
        return Output(decided, contributions, presence=presence, concept_features=logits)

    def decide(self, output: Output, presence: Tensor) -> Tensor:
        decided: Tensor = self.classes(presence.detach())[0]
        return decided
