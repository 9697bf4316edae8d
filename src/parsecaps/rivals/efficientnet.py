"""EfficientNet-Lite0, a small network that is usually fine-tuned from ImageNet (`rivals.imagenet` has its weights)."""

from typing import Any

from torch import Tensor, nn

from parsecaps.models.features import SIZE_PRESETS, SMALL_IMAGE, FeatureModel
from parsecaps.models.pretrained import Head
from parsecaps.rivals.imagenet import imagenet_weights

STEM, _FEATURES = 32, 1280
STAGES = (  # of B0 and Lite0 alike: expansion, channels, blocks, stride of the first block, kernel
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
_EPSILON = 1e-3  # of the normalisations, as in the original


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
        self.norm = nn.BatchNorm2d(out_channels, eps=_EPSILON)
        self.activation = nn.Identity() if linear else nn.ReLU6()

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


class EfficientNetLite0(FeatureModel):
    """EfficientNet-Lite0 (Tan and Le 2019; Lite: 2020), 3.4 million parameters before the heads.

    The first convolution halves images of more than 64 pixels, as in the original; smaller ones keep their size there.
    The running statistics follow with PyTorch's momentum of 0.1, not the original's 0.01, which is for long trainings.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits and, where there are concepts, presences

    >>> import torch
    >>> model = EfficientNetLite0.from_preset("medical", num_classes=3, image_size=96).eval()
    >>> model(torch.rand(1, 1, 96, 96)).logits.shape
    torch.Size([1, 3])
    """

    presets = SIZE_PRESETS
    imagenet_weights = staticmethod(imagenet_weights)

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 224,
        head: Head = "parallel",
        dropout: float = 0.2,
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        stride = 1 if image_size <= SMALL_IMAGE else 2
        self.stem = ConvNorm(in_channels, STEM, size=image_size, kernel=3, stride=stride)
        blocks: list[MBConv] = []
        last, size = STEM, self.stem.out_size
        for expansion, channels, count, first_stride, kernel in STAGES:
            for i in range(count):
                stride = first_stride if i == 0 else 1
                block = MBConv(last, channels, expansion=expansion, size=size, kernel=kernel, stride=stride)
                blocks.append(block)
                last, size = channels, block.out_size
        self.blocks = nn.Sequential(*blocks)
        self.top = ConvNorm(last, _FEATURES, size=size)
        self.dropout = nn.Dropout(dropout)
        self.add_heads(_FEATURES)

    def last_map(self, image: Tensor) -> Tensor:
        return self.top(self.blocks(self.stem(image)))  # type: ignore[no-any-return]

    def features(self, image: Tensor) -> Tensor:
        return self.dropout(super().features(image))  # type: ignore[no-any-return]
