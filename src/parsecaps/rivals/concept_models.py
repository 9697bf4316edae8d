"""Networks that decide by named concepts alone, with their losses: concept bottleneck and concept embedding models."""

import math
from collections.abc import Mapping
from typing import ClassVar, Literal, Self, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.functional.concept_losses import concept_cross_entropy
from parsecaps.models import all_models
from parsecaps.models.cnn import FeatureModel
from parsecaps.models.pretrained import Presets, PretrainedModel
from parsecaps.nn.capsules import Axes
from parsecaps.nn.heads import Bottleneck, ConceptDecision, ConceptReadout, LinearConcepts, LinearReasoning
from parsecaps.training.terms import (
    Classification,
    Loss,
    Presentation,
    TermContext,
    described,
    known_concepts,
    nothing,
    sum_of,
)
from parsecaps.types import Batch, Output

Mode = Literal["joint", "sequential", "independent"]
Passed = Literal["auto", "presence", "logit"]  # auto: models saved when joint ones passed presences on
_MOST_DIMENSIONS = 1024
_LEAST = 1e-6  # of a presence whose logit is not given
_ENDS = (0.0, 1.0)  # presences of which the vectors for absent and for present are made


class ConceptModel(PretrainedModel):
    """A model that decides by named concepts alone, on the features or the last feature map of any network.

    `backbone` is the name of that network in `MODELS`, `backbone_preset` its size. Deviation: it starts from random
    weights, the published models from ImageNet's.
    """

    presets: ClassVar[Presets] = {
        "medical": {"image_size": 224},
        "digits": {"image_size": 28, "backbone_preset": "digits"},
        "tiny": {"image_size": 32, "backbone": "PlainCNN", "backbone_preset": "tiny", "num_concepts": 3},
    }
    needs_concepts: ClassVar[bool] = True

    def build_backbone(self, name: str, preset: str) -> FeatureModel:
        """The network of that name in `MODELS`, with its own heads."""
        known = {each: kind for each, kind in all_models().items() if issubclass(kind, FeatureModel)}
        if name not in known:
            raise ValueError(f"backbone is {name!r}; choose one of {', '.join(known)}")
        if preset not in known[name].presets:
            raise ValueError(f"backbone_preset is {preset!r}; choose one of {', '.join(known[name].presets)}")
        sizes = {"in_channels": self.in_channels, "image_size": self.image_size, "num_classes": 1, "num_concepts": 0}
        return known[name].from_preset(preset, **sizes)


class CBM(ConceptModel):
    """The concept bottleneck model (Koh et al. 2020): a linear layer for the concepts, another one for the classes.

    The second layer learns by `mode`: "joint", with the first; "sequential", from predicted concepts, without a
    gradient back; "independent", from true concepts, or predicted ones where the truth is unknown. It reads what the
    first `passes`: the "logit" of each concept or, by default in the independent mode, its "presence", both as
    published.

    Deviations: both layers learn at the same time in every mode, not in two trainings. The loss of the concepts is
    their mean: its weight of 1.12 is the published 0.01 for the sum over the 112 concepts of the published data.

    Shapes:
        - output: `Output` with logits, presences and, as `concept_features` (B, m), their logits

    >>> model = CBM.from_preset("tiny", num_classes=2, mode="sequential").eval()
    >>> model(torch.rand(1, 1, 32, 32)).presence.shape
    torch.Size([1, 3])
    """

    losses: ClassVar[Mapping[str, float]] = {"classification": 1.0, "concept_cross_entropy": 1.12}

    def build_layers(
        self,
        *,
        backbone: str = "ResNet34",
        backbone_preset: str = "medical",
        mode: Mode = "joint",
        passes: Passed | None = None,
    ) -> None:
        if passes is None:
            passes = "presence" if mode == "independent" else "logit"
        elif passes == "auto":
            passes = "logit" if mode == "sequential" else "presence"
        for name, value, known in (("mode", mode, get_args(Mode)), ("passes", passes, ("presence", "logit"))):
            if value not in known:
                raise ValueError(f"{name} is {value!r}; choose one of {', '.join(known)}")
        if mode == "independent" and passes == "logit":
            raise ValueError("passes is 'logit', but true concepts have no logits to learn from; give 'presence'")
        self.config["passes"] = passes
        self.mode, self.intervention_probability = mode, float(mode == "independent")
        self.backbone = self.build_backbone(backbone, backbone_preset).without_heads()
        self.concepts = ConceptLogits(in_dim=self.backbone.num_features, num_concepts=self.num_concepts)
        self.classes = Bottleneck(num_concepts=self.num_concepts, num_classes=self.num_classes, scale=passes)

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        presence, logits = self.concepts(self.backbone.features(image))
        read = logits if self.classes.scale == "logit" else presence
        decided, contributions = self.classes(read if self.mode == "joint" else read.detach())
        return Output(decided, contributions, presence=presence, concept_features=logits)


class ConceptLogits(LinearConcepts):
    """Presences of concepts and the logits behind them: (B, in_dim) -> presence (B, m), logits (B, m)."""

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        logits: Tensor = self.linear(features)
        return logits.sigmoid(), logits


class CEM(ConceptModel):
    """The concept embedding model (Espinosa Zarlenga et al. 2022), on features of any network.

    In training, each concept is set to its truth with the probability `randint` before the loss of the classes
    (`IntervenedClassification`). Deviation: a concept whose truth is unknown keeps its predicted presence.

    Shapes:
        - output: `Output` with logits, presences, `concept_weights`, and as `concept_features` (B, m) the logits of the
          presences

    >>> model = CEM.from_preset("tiny", num_classes=2).eval()
    >>> model(torch.rand(1, 1, 32, 32)).concept_weights.shape
    torch.Size([1, 2, 3])
    """

    losses: ClassVar[Mapping[str, float]] = {"classification": 1.0, "concept_cross_entropy": 1.0}

    def build_layers(
        self,
        *,
        backbone: str = "ResNet34",
        backbone_preset: str = "medical",
        embedding_dim: int = 16,
        randint: float = 0.25,
    ) -> None:
        if not 1 <= embedding_dim <= _MOST_DIMENSIONS:
            raise ValueError(f"embedding_dim is {embedding_dim}; give from 1 to {_MOST_DIMENSIONS}")
        if not 0 <= randint <= 1:
            raise ValueError(f"randint is {randint}; give a probability, from 0 (off) to 1")
        self.intervention_probability = float(randint)
        self.backbone = self.build_backbone(backbone, backbone_preset).without_heads()
        m, dim = self.num_concepts, embedding_dim
        self.concepts = ConceptEmbeddings(in_dim=self.backbone.num_features, num_concepts=m, dim=dim)
        self.classes = EmbeddingBottleneck(num_concepts=m, num_classes=self.num_classes, dim=dim)

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        vectors, presence, logits = self.concepts(self.backbone.features(image))
        decided, contributions, weights = self.classes(vectors, presence)
        return Output(decided, contributions, presence=presence, concept_features=logits, concept_weights=weights)


class ConceptEmbeddings(ConceptReadout):
    """Two vectors for each concept, one for present and one for absent, and from both its presence.

    Each concept has its own linear layer with a leaky ReLU; the one that reads the logit of the presence from both
    vectors is shared (Espinosa Zarlenga et al. 2022, Eq. 1).

    Shapes:
        - input: (B, in_dim)
        - output: vectors (B, m, 2, dim), the first for present; presence (B, m), logits (B, m)
    """

    AXES: ClassVar[Axes] = {"weight": ("concepts", "", ""), "bias": ("concepts", "")}

    def __init__(self, *, in_dim: int, num_concepts: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_concepts, 2 * dim, in_dim))
        self.bias = nn.Parameter(torch.empty(num_concepts, 2 * dim))
        for parameter in (self.weight, self.bias):  # as a linear layer starts
            nn.init.uniform_(parameter, -1 / math.sqrt(in_dim), 1 / math.sqrt(in_dim))
        self.read = nn.Linear(2 * dim, 1)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        m, wide, _ = self.weight.shape
        both = F.linear(features, self.weight.flatten(0, 1), self.bias.flatten()).view(-1, m, wide)
        both = F.leaky_relu(both)
        logits: Tensor = self.read(both).squeeze(-1)
        return both.view(-1, m, 2, wide // 2), logits.sigmoid(), logits


class EmbeddingBottleneck(ConceptDecision):
    """Logits linear in vectors mixed by presence, `p c+ + (1 - p) c-`, with `weights` for each image.

    Shapes:
        - input: vectors (B, m, 2, dim), presence (B, m)
        - output: logits (B, num_classes); contributions and weights (B, num_classes, m)
    """

    AXES: ClassVar[Axes] = {"weight": ("classes", "concepts", ""), "bias": ("classes",)}

    def __init__(self, *, num_concepts: int, num_classes: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_classes, num_concepts, dim))
        self.bias = nn.Parameter(torch.empty(num_classes))
        for parameter in (self.weight, self.bias):
            nn.init.uniform_(parameter, -1 / math.sqrt(num_concepts * dim), 1 / math.sqrt(num_concepts * dim))

    def forward(self, vectors: Tensor, presence: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        present, absent = ((vectors[:, None, :, side] * self.weight).sum(-1) for side in (0, 1))  # (B, num_classes, m)
        weights = present - absent
        contributions = absent + presence.unsqueeze(1) * weights
        return contributions.sum(-1) + self.bias, contributions, weights

    def reasoning(self, output: Output | None) -> LinearReasoning:
        if output is None:
            classes, concepts, _ = self.weight.shape
            none = self.bias.new_zeros(0, classes)
            return LinearReasoning(none.new_zeros(0, classes, concepts), none, margins=_ENDS)
        assert output.concept_weights is not None
        assert output.presence is not None
        weight, presence = output.concept_weights.detach().double(), output.presence.detach().double()
        bias = output.logits.detach().double() - (weight * presence.unsqueeze(1)).sum(-1)
        return LinearReasoning(weight, bias, margins=_ENDS)

    def decide(self, output: Output, presence: Tensor) -> Tensor:
        assert output.presence is not None
        assert output.concept_weights is not None
        moved = presence - output.presence
        return output.logits + (output.concept_weights * moved.unsqueeze(1)).sum(-1)


class IntervenedClassification(Classification):
    """Cross-entropy of a model that learns to follow corrected concepts; in validation, of its own answers.

    In training each known concept is set to its truth with the model's `intervention_probability`, by one draw for all
    images of a batch (RandInt of Espinosa Zarlenga et al. 2022). At 1 the classes learn from true concepts alone.
    """

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        return bool(context.model.intervention_probability)

    def forward(self, output: Output, batch: Batch) -> Loss:
        if self.training and (presence := output.presence) is not None:
            model, truth = self.models[0], known_concepts(presence, batch)
            drawn = torch.rand(presence.shape[1], device=presence.device) < model.intervention_probability
            corrected = torch.where(drawn & ~truth.isnan(), truth.nan_to_num(), presence)
            output = output._replace(logits=model.decide(output, corrected))
        return super().forward(output, batch)


class ConceptCrossEntropy(Presentation):
    """Binary cross-entropy of the concepts, over those that are known, in place of the presentation loss."""

    name = "concept_cross_entropy"
    optional = True

    @classmethod
    def build(cls, context: TermContext) -> Self:
        if not context.model.num_concepts:
            given = f"training.losses.{cls.name} is {context.weight(cls.name):g}"
            raise ValueError(f"{given}, but the model has no concepts; set it to 0")
        return super().build(context)

    def forward(self, output: Output, batch: Batch) -> Loss:
        if output.presence is None:
            return nothing(output)
        given = output.concept_features
        logits = output.presence.logit(_LEAST) if given is None or given.dim() != 2 else given
        concepts = known_concepts(output.presence, batch)
        return sum_of(concept_cross_entropy(logits, concepts, self.concept_weights), described(concepts))
