"""DeepCaps: a deep capsule network whose lower layers are convolutions (Rajasegaran et al. 2019).

A layer has `types` capsules at each of `width` x `width` positions. They lie in (B, n, d) row by row, and by type
within a position: a convolution's channels-last output.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.models.pretrained import Presets, check_counts
from parsecaps.nn.capsules import CapsuleGrid, CapsuleLayer
from parsecaps.rivals.class_capsules import ClassCapsuleModel, ClassCapsules, ClassRoutingConfig, channels_last

_CHILDREN_PER_CLASS = 256  # at most in the authors' own networks: 64 pixels and ten classes
_SMALLEST = 8  # the grid that the decoder starts from is at most this wide
_CHANNELS = (64, 32, 16, 8)  # the last one from there on
_SEEDS = 16  # channels of that grid


class DeepCaps(ClassCapsuleModel):
    """Cells of convolutional capsules with skips, the last of which routes, and a capsule for each class.

    A convolution, then four cells that each halve the grid, of `types` capsules with `dims` numbers at each position.
    The capsules of the last two cells vote for the classes by a matrix for each pair, and are routed by agreement; so
    the weights grow with the area of the image. The `decoder` has the same weights for every class.

    Deviations from the authors' code: the last cell keeps types and positions apart (`Routing3D`); pixels are
    standardised; convolutions of stride 2 pad all sides alike; and where more capsules vote for each class than in
    their networks, votes are scaled down and their weights start larger: the same network, in which a step of their
    learning rate moves a class capsule as far as in theirs. Without it all class capsules soon are long, and stay so.

    >>> model = DeepCaps.from_preset("digits", num_classes=10, decoder=False)
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '8,441,920'
    """

    presets: ClassVar[Presets] = {
        "medical": {"image_size": 64},
        "digits": {"image_size": 28},
        "tiny": {"image_size": 32, "stem_channels": 8, "types": 4, "dims": (2, 4, 4, 4), "class_dim": 8},
    }
    image_size = 64
    largest_image = 128
    losses: ClassVar[Mapping[str, float]] = {"margin": 1.0, "class_reconstruction": 0.4}

    def build_layers(
        self,
        *,
        stem_channels: int = 128,
        types: int = 32,
        dims: Sequence[int] = (4, 8, 8, 8),
        class_dim: int = 32,
        iterations: int = 3,
        decoder: bool = True,
    ) -> None:
        check_counts(stem_channels=stem_channels, types=types, dims=dims, class_dim=class_dim)
        if len(dims) < 2 or dims[-1] != dims[-2]:
            raise ValueError(f"dims is {list(dims)}; give at least two, of which the last two vote and so are the same")
        convolution = nn.Conv2d(self.in_channels, stem_channels, 3, padding=1)
        self.stem = channels_last(convolution, nn.ReLU(inplace=True), nn.BatchNorm2d(stem_channels))
        cells, width, last = [], self.image_size, (stem_channels, 1)  # each channel is a capsule of one number
        for i, dim in enumerate(dims):
            routed = iterations if i == len(dims) - 1 else None
            cell = DeepCapsCell(width=width, in_types=last[0], in_dim=last[1], types=types, dim=dim, iterations=routed)
            cells.append(cell)
            width, last = cell.width, (types, dim)
        self.cells = nn.ModuleList(cells)
        children = types * sum(cell.width**2 for cell in cells[-2:])
        parents = self.num_classes
        wanted = ClassRoutingConfig(capsules=children, classes=parents, dim=class_dim, iterations=iterations, bias=True)
        self.classes = ClassCapsules(in_dim=dims[-1], routing="dynamic", config=wanted)
        # as in the authors' code: with larger votes, sums of so many would saturate every class
        variance = 2 / ((dims[-1] + class_dim) * parents * children)
        self.vote_scale = min(1.0, _CHILDREN_PER_CLASS * parents / children)
        nn.init.normal_(self.classes.votes.weight, std=math.sqrt(variance) / self.vote_scale)
        if decoder:
            self.decoder = DeconvDecoder(dim=class_dim, channels=self.in_channels, image_size=self.image_size)

    @property
    def class_children(self) -> tuple[CapsuleGrid, ...]:
        grids, layers = [], [*self.stem]
        for cell in self.cells:
            assert isinstance(cell, DeepCapsCell)
            layers.append(cell.reduce.conv)
            grids.append(CapsuleGrid.behind(layers, width=cell.width, types=self.config["types"]))
        return grids[-1], grids[-2]

    def capsules(self, image: Tensor) -> Tensor:
        layers = [rearrange(self.stem(image), "b c h w -> b (h w c) 1")]
        for cell in self.cells:
            layers.append(cell(layers[-1]))
        return self.classes(self.vote_scale * torch.cat([layers[-1], layers[-2]], 1))  # type: ignore[no-any-return]


def halved(width: int) -> int:
    """The width of a grid after a convolution of stride 2 with padding.

    >>> [halved(width) for width in (28, 14, 7, 4)]
    [14, 7, 4, 2]
    """
    return -(-width // 2)


class ConvCaps(nn.Module):
    """A 3x3 convolution of all numbers of all capsules, then squash; its weights start as in the authors' code.

    Shapes:
        - input: (B, width * width * in_types, in_dim)
        - output: (B, width' * width' * types, dim), width' being that of the input, halved with a stride of 2
    """

    def __init__(self, *, width: int, in_types: int, in_dim: int, types: int, dim: int, stride: int = 1) -> None:
        super().__init__()
        self.width, self.dim = width, dim
        self.conv = nn.Conv2d(in_types * in_dim, types * dim, 3, stride, padding=1, bias=False)
        bound = math.sqrt(3) * self.conv.weight.numel() ** -0.25
        nn.init.uniform_(self.conv.weight, -bound, bound)
        self.conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, u: Tensor) -> Tensor:
        maps = rearrange(u, "b (h w t) d -> b (t d) h w", h=self.width, w=self.width)
        s = rearrange(self.conv(maps), "b (t d) h w -> b (h w t) d", d=self.dim)
        return squash(s, "quadratic")


class Routing3D(nn.Module):
    """Dynamic routing between types of capsules, which all vote by one shared convolution.

    A child is a type with all its positions; its votes are `V = W * u`, a 3x3 convolution from the `dim` numbers of the
    child to those of every parent. `c = softmax(b)` over the parents and all positions together, for each child; `s` is
    the sum of `c V` over the children and a bias; `v = squash(s)` by the length over numbers and positions, one for
    each parent; and `b` grows by the agreement `V . v` at each position after each of the `iterations` but the last.

    Deviation: the authors' code reshapes (H, W, types, dim) for a 3D convolution without a transposition, which mixes
    positions with types; here a child is one type.

    Shapes:
        - input and output: (B, width * width * types, dim)
    """

    def __init__(self, *, width: int, types: int, dim: int, iterations: int = 3) -> None:
        super().__init__()
        if iterations < 1:
            raise ValueError(f"iterations is {iterations}; give at least 1")
        self.width, self.types, self.iterations = width, types, iterations
        self.conv = nn.Conv2d(dim, types * dim, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(self.conv.weight)
        self.bias = nn.Parameter(torch.full((types, dim, 1, 1), 0.1))

    def forward(self, u: Tensor) -> Tensor:
        votes = self.votes(u)
        b = votes.new_zeros(*votes.shape[:3], *votes.shape[4:])  # (B, child, parent, h, w)
        for i in range(self.iterations):
            c = b.flatten(2).softmax(-1).view_as(b)
            s = einsum(c, votes, "b i j h w, b i j d h w -> b j d h w") + self.bias
            v = squash(s.flatten(2), "quadratic").view_as(s)
            if i + 1 < self.iterations:
                b = b + einsum(votes, v, "b i j d h w, b j d h w -> b i j h w")
        return rearrange(v, "b j d h w -> b (h w j) d")

    def votes(self, u: Tensor) -> Tensor:
        """Of every child for every parent at each position: (B, child, parent, dim, h, w)."""
        children = rearrange(u, "b (h w t) d -> (b t) d h w", h=self.width, w=self.width)
        votes: Tensor = self.conv(children)
        return rearrange(votes, "(b i) (j d) h w -> b i j d h w", i=self.types, j=self.types)


class DeepCapsCell(CapsuleLayer):
    """Layer `a` of stride 2, two more behind it, and a skip from `a`: a layer too, or with `iterations` `Routing3D`.

    Shapes:
        - input: (B, width * width * in_types, in_dim)
        - output: (B, n, dim), n being types * halved(width) ** 2
    """

    def __init__(
        self, *, width: int, in_types: int, in_dim: int, types: int, dim: int, iterations: int | None = None
    ) -> None:
        super().__init__()
        self.width = halved(width)
        same = {"width": self.width, "types": types, "dim": dim}
        self.reduce = ConvCaps(width=width, in_types=in_types, in_dim=in_dim, types=types, dim=dim, stride=2)
        self.first = ConvCaps(in_types=types, in_dim=dim, **same)
        self.second = ConvCaps(in_types=types, in_dim=dim, **same)
        self.skip: nn.Module
        if iterations is None:
            self.skip = ConvCaps(in_types=types, in_dim=dim, **same)
        else:
            self.skip = Routing3D(iterations=iterations, **same)

    def forward(self, u: Tensor) -> Tensor:
        a = self.reduce(u)
        capsules: Tensor = self.second(self.first(a)) + self.skip(a)
        return capsules


class DeconvDecoder(nn.Module):
    """From one class capsule to the image, by the same weights for every class (Rajasegaran et al. 2019).

    A linear layer makes a grid of 16 channels, 7 x 7 for 28 pixels and 8 x 8 for 64; transposed 3x3 convolutions double
    it, without an activation in between, and a ReLU ends it. For other sizes the grid is the largest of up to 8 x 8
    that doublings bring to the image; the excess is cut off, and the fourth and later layers have 8 channels.

    Shapes:
        - input: class capsules (B, K, dim), index (B,) int64, the class of each image
        - output: (B, channels, image_size, image_size)
    """

    def __init__(self, *, dim: int, channels: int, image_size: int) -> None:
        super().__init__()
        width, doublings = image_size, 0
        while width > _SMALLEST:
            width, doublings = -(-width // 2), doublings + 1
        self.width, self.image_size = width, image_size
        self.seed = nn.Sequential(nn.Linear(dim, _SEEDS * width**2), nn.ReLU(inplace=True))
        layers: list[nn.Module] = [nn.BatchNorm2d(_SEEDS, momentum=0.2)]  # 0.8 as Keras counts it
        last = _SEEDS
        for i in range(doublings + 1):
            out = _CHANNELS[min(i, len(_CHANNELS) - 1)]
            stride = 1 if i == 0 else 2
            layers.append(nn.ConvTranspose2d(last, out, 3, stride, padding=1, output_padding=stride - 1))
            last = out
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(last, channels, 3, padding=1), nn.ReLU(inplace=True))
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.ConvTranspose2d):  # a bias below 0 at the end would leave no gradient
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, class_capsules: Tensor, index: Tensor) -> Tensor:
        capsule = class_capsules.gather(1, index[:, None, None].expand(-1, 1, class_capsules.shape[2])).squeeze(1)
        image: Tensor = self.layers(self.seed(capsule).view(-1, _SEEDS, self.width, self.width))
        return image[..., : self.image_size, : self.image_size]
