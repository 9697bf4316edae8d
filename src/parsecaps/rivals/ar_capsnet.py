"""AR CapsNet (Choi, Seo, Im and Kang 2019): attention routing, a gate over the types of capsules, without iteration.

Capsules lie on square grids, several types at each place: (B, width * width * types, dim), position by position, row by
row, and at a position type by type: a feature map, channels last in memory.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from parsecaps.models.pretrained import Presets
from parsecaps.nn.capsules import Axes, CapsuleLayer
from parsecaps.nn.couplings import Coupling
from parsecaps.nn.routing import Way
from parsecaps.rivals.class_capsules import TINY, ClassCapsuleModel, ClassMessages, channels_last

_MOST_LAYERS = 3
_DROPOUT = 0.5


class ARCapsNet(ClassCapsuleModel):
    """Two convolutions, primary capsules, up to three layers of capsules, and class capsules (Choi et al. 2019).

    Every step from capsules to capsules is an attention over the types of children (`AttentionGate`). The score of a
    class is the length of its capsule over sqrt(dim), the most that tanh allows. The weights grow with the area of the
    image. Deviations: pixels are standardised, and a convolution of stride 2 pads both sides alike.

    >>> model = ARCapsNet.from_preset("digits", num_classes=10)
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '5,312,528'
    """

    presets: ClassVar[Presets] = {
        "digits": {"image_size": 28, "layers": 1, "dim": 32},
        "medical": {"image_size": 64, "layers": 1, "dim": 16},
        "tiny": {**TINY, "features": 8, "layers": 2, "dim": 6},
    }
    image_size = 28
    largest_image = 128
    losses: ClassVar[Mapping[str, float]] = {"margin": 1.0, "class_reconstruction": 0.3}

    def build_layers(
        self,
        *,
        features: int = 64,
        types: int = 8,
        primary_dim: int = 16,
        layers: int = 1,
        dim: int = 32,
        decoder: bool | None = None,
        decoder_sizes: Sequence[int] = (512, 512),
    ) -> None:
        if not 0 <= layers <= _MOST_LAYERS:
            raise ValueError(f"layers is {layers}; give from 0 to {_MOST_LAYERS}")
        stem: list[nn.Module] = []
        for channels in (self.in_channels, features):
            stem += [nn.Conv2d(channels, features, 3, padding=1), nn.BatchNorm2d(features), nn.ReLU(inplace=True)]
        self.stem = channels_last(*stem)
        self.primary = AttentionPrimaryCaps(in_channels=features, size=self.image_size, types=types, dim=primary_dim)
        width, last = self.primary.width, primary_dim
        capsule_layers = []
        for i in range(layers):
            layer = AttentionConvCaps(width=width, types=types, in_dim=last, dim=dim, stride=1 if i else 2)
            capsule_layers.append(layer)
            width, last = layer.width, dim
        self.layers = nn.Sequential(*capsule_layers)
        self.classes = AttentionClassCaps(width=width, types=types, in_dim=last, classes=self.num_classes, dim=dim)
        self.add_decoder(decoder, dim=dim, sizes=decoder_sizes)

    def capsules(self, image: Tensor) -> Tensor:
        return self.classes(self.layers(self.primary(self.stem(image))))  # type: ignore[no-any-return]

    def scores(self, capsules: Tensor) -> Tensor:
        return super().scores(capsules) / math.sqrt(capsules.shape[2])


class AttentionPrimaryCaps(CapsuleLayer):
    """Primary capsules: a convolution of stride 2 with ReLU, then for each type a linear map and tanh: (B, in_channels,
    size, size) -> (B, width * width * types, dim), width = ceil(size / 2).
    """

    def __init__(self, *, in_channels: int, size: int, types: int, dim: int) -> None:
        super().__init__()
        self.types, self.width = types, -(-size // 2)
        self.convolution = nn.Conv2d(in_channels, types * dim, 3, 2, padding=1)
        self.activation = nn.Conv2d(types * dim, types * dim, 1, groups=types)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, features: Tensor) -> Tensor:
        u = self.activation(self.convolution(features).relu())
        capsules: Tensor = rearrange(u, "b (t d) h w -> b (h w t) d", t=self.types).tanh()
        return capsules


class AttentionConvCaps(CapsuleLayer):
    """Capsules of the next grid: a 3 x 3 convolution for each pair of types, and a gate over the types of children.

    For each type of parent and each place, a linear map of all votes gives the logits of a softmax over the children;
    what it lets through is mapped linearly, and tanh. With a stride of 1 the input is added before the tanh.

    Shapes:
        - input: (B, width * width * types, in_dim)
        - output: (B, out_width * out_width * types, dim), out_width = ceil(width / stride)
        - couplings: (B * out_width * out_width, 1, types of parents, types of children)
    """

    def __init__(self, *, width: int, types: int, in_dim: int, dim: int, stride: int) -> None:
        super().__init__()
        if stride == 1 and in_dim != dim:
            raise ValueError(f"a layer that keeps the grid keeps the dimension; {in_dim} and {dim} differ, give one")
        self.types, self.grid, self.width, self.residual = types, width, -(-width // stride), stride == 1
        self.dropout = nn.Dropout(_DROPOUT)
        self.votes = nn.Conv2d(types * in_dim, types * types * dim, 3, stride, padding=1, groups=types)
        self.votes.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.gate = AttentionGate(parents=types, children=types, dim=dim)

    def forward(self, u: Tensor) -> Tensor:
        grid = rearrange(self.dropout(u), "b (h w t) d -> b (t d) h w", h=self.grid, t=self.types)
        votes = rearrange(self.votes(grid), "b (t k d) h w -> (b h w) k t d", t=self.types, k=self.types)
        collected = self.gate.collect(votes, self.gate.coupled(votes))
        parents = rearrange(self.gate.activate(collected), "(b h w) k d -> b (h w k) d", h=self.width, w=self.width)
        return (parents + u if self.residual else parents).tanh()


class AttentionClassCaps(CapsuleLayer):
    """Class capsules: a kernel as large as the map for each pair of a type and a class, and a gate over the types.

    A child of the gate is a type, with one vote for each class, a sum over all its places. `dropout` is of the
    children.

    Shapes:
        - input: (B, width * width * types, in_dim)
        - output: class capsules (B, classes, dim), of length below sqrt(dim)
        - couplings: (B, 1, classes, types)
    """

    AXES: ClassVar[Axes] = {"weight": ("", "", "outputs", ""), "bias": ("", "outputs", "")}

    def __init__(
        self, *, width: int, types: int, in_dim: int, classes: int, dim: int, dropout: float = _DROPOUT
    ) -> None:
        super().__init__()
        self.types, self.places = types, width**2
        self.dropout = nn.Dropout(dropout)
        fan = self.places * in_dim
        self.weight = nn.Parameter(torch.empty(types, fan, classes, dim).uniform_(-1, 1) * math.sqrt(6 / (fan + dim)))
        self.bias = nn.Parameter(torch.zeros(types, classes, dim))
        self.gate = AttentionGate(parents=classes, children=types, dim=dim)
        self.way = Way("attention", chooses=True)

    def forward(self, u: Tensor) -> Tensor:
        u = self.dropout(u)
        by_place = u.reshape(u.shape[0], self.places, self.types, u.shape[2])
        by_type = by_place.permute(2, 0, 1, 3).flatten(2)  # (types, B, places * in_dim)
        votes = torch.baddbmm(self.bias.flatten(1).unsqueeze(1), by_type, self.weight.flatten(2))
        votes = votes.view(*votes.shape[:2], *self.bias.shape[1:]).permute(1, 2, 0, 3)  # (B, K, types, d)
        c = self.gate.coupled(votes)
        messages = ClassMessages(lambda: c.repeat(1, 1, self.places), partial(self._said_from_places, u))
        collected = self.way(self.gate.collect(votes, c), messages)
        return self.gate.activate(collected).tanh()

    def _said_from_places(self, u: Tensor, direction: Tensor) -> Tensor:
        # what each child, with its share of the bias, added to its type's vote along a direction: (B, K, n)
        weight = rearrange(self.weight, "t (p i) k d -> t p i k d", p=self.places)
        children = rearrange(u, "b (p t) i -> b p t i", t=self.types)
        asked = einsum(weight, direction, "t p i k d, b k d -> b k p t i")
        said = einsum(asked, children, "b k p t i, b p t i -> b k p t")
        shared = einsum(self.bias, direction, "t k d, b k d -> b k t").unsqueeze(2) / self.places
        return (said + shared).flatten(2)


class AttentionGate(nn.Module):
    """The gate of a layer: for each parent, `c = softmax(A votes)` over its children, and a map of what it collected.

    Shapes:
        - votes: (B, parents, children, dim)
    """

    AXES: ClassVar[Axes] = {"attention": ("outputs", "", ""), "weight": ("outputs", "", ""), "bias": ("outputs", "")}

    def __init__(self, *, parents: int, children: int, dim: int) -> None:
        super().__init__()
        entries = children * dim
        bound, own = math.sqrt(6 / (entries + children)), math.sqrt(3 / dim)
        self.attention = nn.Parameter(torch.empty(parents, entries, children).uniform_(-bound, bound))
        self.weight = nn.Parameter(torch.empty(parents, dim, dim).uniform_(-own, own))
        self.bias = nn.Parameter(torch.zeros(parents, dim))
        self.coupling = Coupling(branch="attention", dim=-1, alpha=1.0)

    def coupled(self, votes: Tensor) -> Tensor:
        """How much of each child each parent takes: (B, parents, children)."""
        logits = votes.flatten(2).transpose(0, 1) @ self.attention  # (parents, B, children)
        c: Tensor = self.coupling(logits.transpose(0, 1).unsqueeze(1)).squeeze(1)
        return c

    def collect(self, votes: Tensor, c: Tensor) -> Tensor:
        """The sum of what is taken: (B, parents, dim)."""
        return (c.unsqueeze(2) @ votes).squeeze(2)

    def activate(self, collected: Tensor) -> Tensor:
        """The map of each parent, before the tanh: (B, parents, dim)."""
        return (collected.transpose(0, 1) @ self.weight).transpose(0, 1) + self.bias
