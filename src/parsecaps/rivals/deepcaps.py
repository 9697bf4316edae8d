"""DeepCaps: a deep capsule network whose lower layers are convolutions (Rajasegaran et al. 2019)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from einops import rearrange
from torch import Tensor, nn

from parsecaps.models.pretrained import PretrainedModel, check_counts
from parsecaps.nn.capsules import CapsuleGrid
from parsecaps.nn.heads import length
from parsecaps.rivals.class_routing import ClassCapsules, ClassRoutingConfig
from parsecaps.rivals.convcaps import DeepCapsCell
from parsecaps.rivals.deconvolution import DeconvDecoder
from parsecaps.types import Output

DEEPCAPS_PRESETS: dict[str, dict[str, Any]] = {
    "medical": {"image_size": 64},
    "digits": {"image_size": 28},
    "tiny": {"image_size": 32, "stem_channels": 8, "types": 4, "dims": (2, 4, 4, 4), "class_dim": 8},
}

_CHILDREN_PER_CLASS = 256  # at most in the authors' own networks: 64 pixels and ten classes


class DeepCaps(PretrainedModel):
    """Cells of convolutional capsules with skips, the last of which routes, and a capsule for each class.

    A convolution, then four cells that each halve the grid, of `types` capsules with `dims` numbers at each position.
    The capsules of the last two cells vote for the classes by a matrix for each pair, and are routed by agreement. The
    score of a class is the length of its capsule; the `decoder` draws the image from one of them, with the same weights
    for every class. The votes' weights grow with the area of the image.

    Deviations from the authors' code: the last cell keeps types and positions apart (`rivals.convcaps.Routing3D`);
    pixels are standardised; convolutions of stride 2 pad all sides alike; and where more capsules vote for each class
    than in their networks, as with three classes, votes are scaled down and their weights start larger. That is the
    same network, but a step of their learning rate then moves a class capsule as far as it did in theirs. Without it
    all class capsules of 64 pixels and three classes are long after a few steps, and stay so.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits in [0, 1), class capsules and, where it was asked for, the picture of the longest

    >>> model = DeepCaps.from_preset("digits", num_classes=10, decoder=False)
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '8,441,920'
    """

    presets = DEEPCAPS_PRESETS
    names_concepts = False
    largest_image = 128
    losses: ClassVar[Mapping[str, float]] = {"margin": 1.0, "class_reconstruction": 0.4}

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 64,
        stem_channels: int = 128,
        types: int = 32,
        dims: Sequence[int] = (4, 8, 8, 8),
        class_dim: int = 32,
        iterations: int = 3,
        decoder: bool = True,
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        check_counts(stem_channels=stem_channels, types=types, dims=dims, class_dim=class_dim)
        if len(dims) < 2 or dims[-1] != dims[-2]:
            raise ValueError(f"dims is {list(dims)}; give at least two, of which the last two vote and so are the same")
        self.stem = nn.Sequential(
            nn.Conv2d(in_channels, stem_channels, 3, padding=1), nn.ReLU(inplace=True), nn.BatchNorm2d(stem_channels)
        )
        self.stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        cells, width, last = [], image_size, (stem_channels, 1)  # each channel is a capsule of one number
        for i, dim in enumerate(dims):
            routed = iterations if i == len(dims) - 1 else None
            cell = DeepCapsCell(width=width, in_types=last[0], in_dim=last[1], types=types, dim=dim, iterations=routed)
            cells.append(cell)
            width, last = cell.width, (types, dim)
        self.cells = nn.ModuleList(cells)
        children = types * sum(cell.width**2 for cell in cells[-2:])
        wanted = ClassRoutingConfig(
            capsules=children, classes=num_classes, dim=class_dim, iterations=iterations, bias=True
        )
        self.classes = ClassCapsules(in_dim=dims[-1], routing="dynamic", config=wanted)
        # as in the authors' code: with larger votes, sums of so many would saturate every class
        variance = 2 / ((dims[-1] + class_dim) * num_classes * children)
        self.vote_scale = min(1.0, _CHILDREN_PER_CLASS * num_classes / children)
        nn.init.normal_(self.classes.votes.weight, std=math.sqrt(variance) / self.vote_scale)
        self.decoder = DeconvDecoder(dim=class_dim, channels=in_channels, image_size=image_size) if decoder else None

    @property
    def class_children(self) -> tuple[CapsuleGrid, ...]:
        grids, layers = [], [*self.stem]
        for cell in self.cells:
            assert isinstance(cell, DeepCapsCell)
            layers.append(cell.reduce.conv)
            grids.append(CapsuleGrid.behind(layers, width=cell.width, types=self.config["types"]))
        return grids[-1], grids[-2]

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        features = self.stem(image.contiguous(memory_format=torch.channels_last))
        layers = [rearrange(features, "b c h w -> b (h w c) 1")]
        for cell in self.cells:
            layers.append(cell(layers[-1]))
        capsules = self.classes(self.vote_scale * torch.cat([layers[-1], layers[-2]], 1))
        scores = length(capsules)
        picture = self.decode(capsules, scores.argmax(1)) if reconstruct else None
        return Output(scores, class_capsules=capsules, reconstruction=picture)

    def decode(self, class_capsules: Tensor, index: Tensor) -> Tensor:
        """The picture that the decoder makes of the capsule of one class, whichever it is.

        Shapes:
            - class_capsules: (B, num_classes, class_dim); index: (B,) int64
            - output: (B, in_channels, image_size, image_size)
        """
        if self.decoder is None:
            raise ValueError("this DeepCaps has no decoder; build it with decoder=True")
        chosen = class_capsules.gather(1, index[:, None, None].expand(-1, 1, class_capsules.shape[2]))
        picture: Tensor = self.decoder(chosen.squeeze(1))
        return picture
