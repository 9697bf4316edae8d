"""The heads of concept models that others published: logits of concepts, concept embeddings, and maps of concepts."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.nn.heads import Axes, ConceptDecision, ConceptReadout, LinearConcepts, LinearReasoning
from parsecaps.types import Output

_ENDS = (0.0, 1.0)  # presences of which the vectors for absent and for present are made


class ConceptLogits(LinearConcepts):
    """Presences of concepts and the logits behind them, of which they are the sigmoid.

    Shapes:
        - input: (B, in_dim)
        - output: presence (B, m), logits (B, m)
    """

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        logits: Tensor = self.linear(features)
        return logits.sigmoid(), logits


class ConceptEmbeddings(ConceptReadout):
    """Two vectors for each concept, one for present and one for absent, and from both of them its presence.

    Each concept has a linear layer of its own with a leaky ReLU; the one that reads the logit of the presence off both
    vectors is shared by all concepts (Espinosa Zarlenga et al. 2022, Eq. 1).

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
    """Logits as a linear function of concept vectors that are mixed by presence: `p c+ + (1 - p) c-`.

    For one image they are linear in the presences: `weights` says by how much each logit grows with each presence, so a
    corrected presence can be followed up to the diagnosis. The weights differ from image to image.

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


class ConceptMaps(ConceptReadout):
    """A map of each concept, by a convolution of one pixel and a ReLU, and its mean: how active the concept is.

    Some of its places are left out of the mean in training (`dropout`).

    Shapes:
        - input: (B, in_channels, h, w)
        - output: maps (B, m, h, w), activation (B, m), both not negative
    """

    AXES: ClassVar[Axes] = {"conv.weight": ("concepts", "", "", ""), "conv.bias": ("concepts",)}

    def __init__(self, *, in_channels: int, num_concepts: int, dropout: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, num_concepts, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        maps = F.relu(self.conv(features))
        return maps, self.dropout(maps).mean((2, 3))
