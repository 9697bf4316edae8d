"""OrthCaps, the shallow one, after the paper's description (Geng et al. 2024); capsules lie as in `rivals.deepcaps`."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from einops import einsum, rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.functional import entmax, squash
from parsecaps.models.pretrained import Presets, PretrainedModel, check_counts
from parsecaps.nn.capsules import Axes, CapsuleLayer, num_halvings
from parsecaps.rivals.class_capsules import ClassCapsuleModel, channels_last
from parsecaps.rivals.deepcaps import halved

_GRID = 28  # the width of the stem's grid in the authors' later code, at 224 pixels
_CONVOLUTIONS = 4
_NARROWEST = 4  # grid that a further block does not halve


class OrthCaps(ClassCapsuleModel):
    """Primary capsules, pruned of those that repeat others, then orthogonal sparse attention in place of iterations.

    The shallow network, after the paper's description: the code that it names was never published. Sizes are those of
    the authors' later code for 224 pixels: a stem of four convolutions, 8 primary types, a block of two capsule layers
    with 16, and classes. Further `blocks`, by their types, make it deep, as in the ParseCaps paper's Tab. 4 (preset
    "deep"); no more is known of them, and a grid of 4 is not halved. Deviations: routing weights, pruning and entmax do
    what the paper says, not that code; each layer ends with a squash, so that a length is a score from 0 to 1; and the
    stem halves smaller images less often.

    >>> model = OrthCaps.from_preset("medical", num_classes=3)
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '309,840'
    """

    presets: ClassVar[Presets] = {
        "medical": {"image_size": 224},
        "deep": {"image_size": 224, "types": 16, "blocks": (32, 64, 128)},  # the ParseCaps paper's Tab. 4
        "digits": {"image_size": 28},
        "tiny": {"image_size": 32, "stem_channels": (8, 8, 16, 16), "types": 4, "dim": 8},
    }
    losses: ClassVar[Mapping[str, float]] = {"margin": 1.0}
    without_decoder = PretrainedModel.without_decoder

    def build_layers(
        self,
        *,
        stem_channels: Sequence[int] = (32, 64, 128, 128),
        types: int = 8,
        blocks: Sequence[int] = (),
        dim: int = 16,
        theta: float = 0.7,
        dropout: float = 0.3,
    ) -> None:
        blocks = blocks or (2 * types,)
        check_counts(stem_channels=stem_channels, types=types, blocks=blocks, dim=dim)
        if len(stem_channels) != _CONVOLUTIONS:
            raise ValueError(f"stem_channels has {len(stem_channels)} numbers; give {_CONVOLUTIONS}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; give a number from 0 to below 1")
        self.stem, width = _stem(self.in_channels, stem_channels, self.image_size)
        self.primary = OrthPrimaryCaps(in_channels=stem_channels[-1], types=types, dim=dim)
        self.pruning = CapsulePruning(types=types, theta=theta)
        width, made = halved(width), list[nn.Module]()
        for out_types in blocks:
            stride = 1 if made and width <= _NARROWEST else 2
            made.append(OrthBlock(width=width, in_types=types, types=out_types, dim=dim, stride=stride))
            width, types = halved(width) if stride == 2 else width, out_types
        self.block = made[0] if len(made) == 1 else nn.ModuleList(made)
        self.classes = OrthClassCaps(width=width, types=types, dim=dim, num_classes=self.num_classes, dropout=dropout)

    def capsules(self, image: Tensor) -> Tensor:
        u = self.pruning(self.primary(self.stem(image)))
        for block in self.block if isinstance(self.block, nn.ModuleList) else [self.block]:
            u = block(u)
        return self.classes(u)  # type: ignore[no-any-return]


class OrthPrimaryCaps(CapsuleLayer):
    """A depthwise 3x3 convolution of stride 2, a pointwise one and a squash: (B, in_channels, w, w) -> (B, ceil(w / 2)
    ** 2 * types, dim).
    """

    def __init__(self, *, in_channels: int, types: int, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.layers = nn.Sequential(
            nn.Conv2d(in_channels, in_channels, 3, 2, padding=1, groups=in_channels),
            nn.LeakyReLU(inplace=True),
            nn.Conv2d(in_channels, types * dim, 1),
        )

    def forward(self, features: Tensor) -> Tensor:
        return squash(rearrange(self.layers(features), "b (t d) h w -> b (h w t) d", d=self.dim), "quadratic")


def _stem(in_channels: int, channels: Sequence[int], width: int) -> tuple[nn.Sequential, int]:
    """Four convolutions, of which the last ones halve the grid to about 28, and that grid's width."""
    halvings = min(num_halvings(width, _GRID), _CONVOLUTIONS - 1)
    layers: list[nn.Module] = []
    for i, out in enumerate(channels):
        kernel, stride = 5 if i == 0 else 3, 2 if i >= _CONVOLUTIONS - halvings else 1
        layers += [
            nn.Conv2d(in_channels, out, kernel, stride, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
        ]
        in_channels, width = out, halved(width) if stride == 2 else width
    return channels_last(*layers), width


def householder(v: Tensor) -> Tensor:
    """`H = I - 2 v v' / (v' v)`, the reflection that turns `v` around: orthogonal and its own inverse.

    Shapes:
        - v: (..., n); output: (..., n, n)

    >>> householder(torch.tensor([0.0, 2.0]))
    tensor([[ 1.,  0.],
            [ 0., -1.]])
    """
    square = v.square().sum(-1).clamp(min=torch.finfo(v.dtype).tiny)[..., None, None]
    return torch.eye(v.shape[-1], dtype=v.dtype, device=v.device) - 2 * v.unsqueeze(-1) * v.unsqueeze(-2) / square


def pruning_mask(capsules: Tensor, theta: float) -> Tensor:
    """Which capsules (B, n, d) stay: of two with a cosine above `theta` the longer, or the first: (B, n)."""
    length = capsules.norm(dim=-1)
    direction = F.normalize(capsules, dim=-1)
    alike = direction @ direction.mT > theta
    n = capsules.shape[1]
    first = torch.ones(n, n, dtype=torch.bool, device=capsules.device).tril(-1)  # j before i
    mine, other = length.unsqueeze(-1), length.unsqueeze(-2)
    weaker = (mine < other) | ((mine == other) & first)
    kept: Tensor = ~(alike & weaker).any(-1)
    return kept


class CapsulePruning(CapsuleLayer):
    """Prunes redundant capsules (B, width * width * types, dim) per image: of two similar children (types with all
    positions), the weaker becomes 0.
    """

    def __init__(self, *, types: int, theta: float) -> None:
        super().__init__()
        if not -1 <= theta <= 1:
            raise ValueError(f"theta is {theta}; give a cosine similarity, from -1 to 1 (1 prunes nothing)")
        self.types, self.theta = types, theta

    def forward(self, u: Tensor) -> Tensor:
        whole = rearrange(u.detach(), "b (p t) d -> b t (p d)", t=self.types)
        mask = pruning_mask(whole, self.theta).to(u.dtype)  # (B, types)
        return u * mask.repeat(1, u.shape[1] // self.types).unsqueeze(-1)


class OrthogonalAttention(nn.Module):
    """Parents from the votes of their children, without iterations and by orthogonal matrices.

    At each position, the logits of a parent's children are the sum over the `dim` numbers of `H u`, a reflection of the
    children's votes; `c = entmax_1.5(logits / sqrt(dim))` over the children; and one more reflection turns the sum of
    `c u`. The `simplified` form also scales each number.

    Shapes:
        - input: votes (B, parents, children, dim, h, w)
        - output: (B, parents, dim, h, w), before the squash
    """

    def __init__(self, *, children: int, parents: int, dim: int, simplified: bool = False) -> None:
        super().__init__()
        self.choose = nn.Parameter(torch.empty(dim, parents, children))
        self.turn = nn.Parameter(torch.empty(parents, dim))
        for v in (self.choose, self.turn):
            nn.init.xavier_uniform_(v)
        self.scale = nn.Parameter(torch.ones(dim, 1, 1)) if simplified else None

    def forward(self, votes: Tensor) -> Tensor:
        c = self.couplings(votes)
        s = einsum(c, votes, "b j i h w, b j i d h w -> b j d h w")
        s = einsum(s, householder(self.turn), "b j d h w, j d e -> b j e h w")
        return s if self.scale is None else s * self.scale

    def couplings(self, votes: Tensor) -> Tensor:
        """How much of each child each parent takes, at each position: (B, parents, children, h, w)."""
        v = F.normalize(self.choose, dim=-1)  # H u = u - 2 v (v' u), without the matrix
        inside = einsum(v, votes, "d j k, b j k d h w -> b j d h w")
        logits = votes.sum(3) - 2 * einsum(v, inside, "d j i, b j d h w -> b j i h w")
        return entmax(logits / math.sqrt(votes.shape[3]), 1.5, dim=2)


class OrthConvCaps(nn.Module):
    """Votes by a depthwise 3x3 and a pointwise convolution that all children share, then the orthogonal attention.

    Shapes:
        - input: (B, width * width * in_types, dim)
        - output: (B, width' * width' * types, dim), before the squash
    """

    def __init__(self, *, width: int, in_types: int, types: int, dim: int, stride: int = 1) -> None:
        super().__init__()
        self.width, self.in_types, self.types = width, in_types, types
        depthwise = nn.Conv2d(dim, dim, 3, stride, padding=1, groups=dim)
        pointwise = nn.Conv2d(dim, types * dim, 1)
        for convolution in (depthwise, pointwise):
            nn.init.kaiming_normal_(convolution.weight)  # votes about as long as their children
        self.vote = nn.Sequential(depthwise, pointwise, nn.LeakyReLU(inplace=True))
        self.attention = OrthogonalAttention(children=in_types, parents=types, dim=dim)

    def forward(self, u: Tensor) -> Tensor:
        children = rearrange(u, "b (h w t) d -> (b t) d h w", h=self.width, w=self.width)
        votes = rearrange(self.vote(children), "(b i) (j d) h w -> b j i d h w", i=self.in_types, j=self.types)
        s: Tensor = self.attention(votes)
        return rearrange(s, "b j d h w -> b (h w j) d")


class OrthBlock(CapsuleLayer):
    """Two layers, the first with the stride, and a shortcut: pointwise, as strided and normalised; then a squash.

    Shapes:
        - input: (B, width * width * in_types, dim)
        - output: (B, n, dim), n being types * ceil(width / stride) ** 2
    """

    def __init__(self, *, width: int, in_types: int, types: int, dim: int, stride: int = 2) -> None:
        super().__init__()
        self.width = width
        self.first = OrthConvCaps(width=width, in_types=in_types, types=types, dim=dim, stride=stride)
        self.second = OrthConvCaps(width=-(-width // stride), in_types=types, types=types, dim=dim)
        norm = nn.BatchNorm2d(types * dim)
        nn.init.constant_(norm.weight, 1 / math.sqrt(dim))  # a length of 1: what is routed still counts beside it
        self.shortcut = nn.Sequential(nn.Conv2d(in_types * dim, types * dim, 1, stride, bias=False), norm)

    def forward(self, u: Tensor) -> Tensor:
        routed = self.second(self.first(u))
        maps = rearrange(u, "b (h w t) d -> b (t d) h w", h=self.width, w=self.width)
        around = rearrange(self.shortcut(maps), "b (t d) h w -> b (h w t) d", d=u.shape[-1])
        return squash(routed + around, "quadratic")


class OrthClassCaps(CapsuleLayer):
    """A capsule for each class, by the simplified attention over the types of children.

    Each child gives one vote for each class: a depthwise 3x3 of stride 2, a depthwise convolution as wide as the grid
    then is (3x3 behind 7 x 7, as in the authors' later code), and a linear map for each class, all shared.

    Shapes:
        - input: (B, width * width * types, dim)
        - output: (B, num_classes, dim), squashed
    """

    AXES: ClassVar[Axes] = {
        "weight": ("outputs", "", ""),
        "bias": ("outputs", ""),
        "attention.choose": ("", "outputs", ""),
        "attention.turn": ("outputs", ""),
    }

    def __init__(self, *, width: int, types: int, dim: int, num_classes: int, dropout: float) -> None:
        super().__init__()
        self.width, self.types = width, types
        self.dropout = nn.Dropout(dropout)
        self.gather = nn.Sequential(
            nn.Conv2d(dim, dim, 3, 2, groups=dim), nn.Conv2d(dim, dim, (width - 3) // 2 + 1, groups=dim)
        )
        self.weight = nn.Parameter(torch.randn(num_classes, dim, dim) / math.sqrt(dim))
        self.bias = nn.Parameter(torch.zeros(num_classes, dim))
        self.attention = OrthogonalAttention(children=types, parents=num_classes, dim=dim, simplified=True)

    def forward(self, u: Tensor) -> Tensor:
        children = rearrange(self.dropout(u), "b (h w t) d -> (b t) d h w", h=self.width, w=self.width)
        gathered = rearrange(self.gather(children), "(b i) d 1 1 -> b i d", i=self.types)
        votes = einsum(gathered, self.weight, "b i d, j e d -> b j i e") + self.bias.unsqueeze(1)
        return squash(self.attention(votes[..., None, None]).flatten(2), "quadratic")
