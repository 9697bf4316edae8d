"""Trunks: convolutional networks beneath the primary capsules, in place of the paper's initial block.

A trunk is an entry of `TRUNKS`: its layers, and where its weights come from, if it has any.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files

import torch
from einops import rearrange
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn import functional as F

NO_TRUNK = "none"
SMALLEST_OF_TRUNK = 32  # pixels
_STRIDE, _COARSEST = 8, 16  # pixels between two places of the maps that a trunk gives
_RATE = 0.3  # of the learning rate
_FOLDER = files("parsecaps") / "trunks"


@dataclass(frozen=True, kw_only=True)
class TrunkWeights:
    """A weight file of the package: the images it learned from, its licence and its origin.

    The tensors have the names that they have in the layers, in half precision. They are for pixels of mean 0 and
    standard deviation 1 in three channels.
    """

    file: str
    sha256: str
    images: str
    licence: str
    origin: str

    def read(self) -> dict[str, Tensor]:
        """The tensors in single precision; refused where the file is missing or altered."""
        path, advice = _FOLDER / self.file, "install parsecaps again, or set model.settings.trunk=none"
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; {advice}")
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise ValueError(f"{path} is not the file that came with parsecaps: its hash differs; {advice}")
        return {name: tensor.float() for name, tensor in load(content).items()}


@dataclass(frozen=True, kw_only=True)
class TrunkSource:
    """A trunk: `layers(in_channels, size)`, each fed by the one before, and its weights; None to start from nothing.

    The first `frozen` layers keep the weights: edges and colours are the same in any images, and training is faster.
    """

    layers: Callable[[int, int], list[nn.Module]]
    weights: TrunkWeights | None = None
    frozen: int = 0


TRUNKS: dict[str, TrunkSource] = {}


def describe_trunk(name: str) -> str:
    """A trunk of `TRUNKS` and its weights in a few words."""
    weights = TRUNKS[name].weights
    return name + (", no weights" if weights is None else f", weights of {weights.images} ({weights.licence})")


class TrunkBlock(nn.Module):
    """The maps of a trunk at strides 8 and 16, side by side, of the whole image or of its tiles one by one.

    With a `tile`, the image is cut into squares of so many pixels. Each is seen alone with a `margin` around it, so a
    place of the output sees a square of `receptive_field` pixels and nothing beyond. Without one it sees the image.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: (B, channels, width, width), width = ceil(image_size / 8)
    """

    def __init__(self, *, trunk: str, in_channels: int, image_size: int, tile: int = 0, margin: int = 0) -> None:
        super().__init__()
        if trunk not in TRUNKS:
            raise ValueError(f"trunk is {trunk!r}; choose one of {', '.join([NO_TRUNK, *TRUNKS])}")
        if image_size < SMALLEST_OF_TRUNK:
            least = f"a trunk needs at least {SMALLEST_OF_TRUNK} pixels"
            raise ValueError(f"image_size is {image_size}, but {least}; enlarge the images, or set trunk=none")
        if margin and not tile:
            raise ValueError(f"margin is {margin}, but there are no tiles; set tile=32, or margin=0")
        whole = image_size + -image_size % _COARSEST
        for name, value, most in (("tile", tile, whole), ("margin", margin, tile)):
            if not 0 <= value <= most or value % _COARSEST:
                raise ValueError(f"{name} is {value}; give 0 or a multiple of {_COARSEST} pixels, at most {most}")
        self.source, self.in_channels = TRUNKS[trunk], in_channels
        if self.source.weights is not None and in_channels not in (1, 3):
            knows = f"the weights of {trunk} know 1 (grey) and 3 (colour)"
            raise ValueError(f"in_channels is {in_channels}, but {knows}; set trunk=none")
        self.learning_rate_factor = 1.0 if self.source.weights is None else _RATE
        self.tile, self.margin = tile, margin
        self.width = -(-image_size // _STRIDE)
        unit = tile or _COARSEST
        self.tiles = -(-image_size // unit) if tile else 1
        self.padding = -image_size % unit
        self.receptive_field = tile + 2 * margin if tile else image_size
        self.side = tile + 2 * margin or image_size + self.padding
        layers = self.source.layers(in_channels, self.side)
        self.taps, self.channels = _taps(layers, in_channels)
        self.layers = nn.Sequential(*layers[: max(self.taps) + 1])
        self.register_buffer("enlarge", _enlarge(self.side // _COARSEST), persistent=False)

    enlarge: Tensor

    @property
    def places(self) -> tuple[float, int]:
        """Where the first place is centred in the image, and how far places are apart, in pixels."""
        return _STRIDE / 2, _STRIDE

    def load_weights(self) -> None:
        """Take the weights that come with the package, if there are any, and freeze the first layers."""
        if self.source.weights is None:
            return
        tensors = self.source.weights.read()
        first = next(name for name, tensor in tensors.items() if tensor.dim() == 4 and tensor.shape[1] == 3)
        if self.in_channels == 1:
            tensors[first] = tensors[first].sum(1, keepdim=True)
        own = {name for name in self.layers.state_dict() if not name.endswith("num_batches_tracked")}
        assert tensors.keys() == own
        self.layers.load_state_dict(tensors, strict=False)
        self.layers[: self.source.frozen].requires_grad_(False)

    def forward(self, image: Tensor) -> Tensor:
        return self.finish(self.begin(image))

    def begin(self, image: Tensor) -> Tensor:
        """The linear part: the image (B, C, S, S) as its tiles (B * tiles * tiles, C, side, side)."""
        m, n = self.margin, range(self.tiles)
        image = F.pad(image, (m, m + self.padding, m, m + self.padding))
        rows = torch.stack([image.narrow(2, self.tile * y, self.side) for y in n], 1)
        tiles = torch.stack([rows.narrow(4, self.tile * x, self.side) for x in n], 2)
        return rearrange(tiles, "b y x c i j -> (b y x) c i j")

    def finish(self, tiles: Tensor) -> Tensor:
        """The tiles, each seen alone, and their maps put together."""
        x, maps = tiles, []
        for i, layer in enumerate(self.layers):
            x = layer(x.contiguous(memory_format=torch.channels_last))  # lost where there is a single channel
            if i in self.taps:
                maps.append(x)
        fine, coarse = maps
        across = self.enlarge.to(coarse.dtype)
        x = torch.cat([fine, across @ coarse @ across.T], 1)
        n, m = self.tiles, self.margin // _STRIDE
        if m:
            x = x[..., m:-m, m:-m]
        return rearrange(x, "(b y x) c i j -> b c (y i) (x j)", y=n, x=n)[..., : self.width, : self.width]


def _taps(layers: list[nn.Module], in_channels: int) -> tuple[list[int], int]:
    """Indices of the last layers at strides 8 and 16, and the sum of their channels."""
    x, last = torch.zeros(1, in_channels, SMALLEST_OF_TRUNK, SMALLEST_OF_TRUNK), dict[int, tuple[int, int]]()
    modes = [layer.training for layer in layers]
    with torch.no_grad():
        for i, layer in enumerate(layers):
            x = layer.eval()(x)
            if x.shape[-1] < SMALLEST_OF_TRUNK // _COARSEST:
                break
            last[SMALLEST_OF_TRUNK // x.shape[-1]] = (i, x.shape[1])
    for layer, mode in zip(layers, modes, strict=True):
        layer.train(mode)
    if not {_STRIDE, _COARSEST} <= last.keys():
        raise ValueError(f"the trunk has no maps of strides {_STRIDE} and {_COARSEST}; choose another one")
    taps, channels = zip(*(last[stride] for stride in (_STRIDE, _COARSEST)), strict=True)
    return list(taps), sum(channels)


def _enlarge(size: int) -> Tensor:
    """(2 * size, size): bilinear interpolation along one side, from places to twice as many."""
    place = ((torch.arange(2 * size) + 0.5) / 2 - 0.5).clamp(0, size - 1)
    return (1 - (place.unsqueeze(1) - torch.arange(size)).abs()).clamp_min(0)
