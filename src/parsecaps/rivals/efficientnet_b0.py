"""MONAI's EfficientNet-B0, from scratch, without ImageNet weights."""

from typing import Any

from torch import Tensor, nn

from parsecaps.models.features import NARROW_PRESETS, SMALL_IMAGE, FeatureModel, check_width
from parsecaps.models.pretrained import Head
from parsecaps.rivals.efficientnet import STAGES, STEM
from parsecaps.system.extras import require

_EPSILON = 1e-3  # of the normalisations, as in the original


class EfficientNetB0(FeatureModel):
    """EfficientNet-B0 (Tan and Le 2019), with squeeze and excitation and SiLU, as `monai.networks.nets` builds it.

    From scratch, without ImageNet weights: 4.0 million parameters before the heads. `EfficientNetLite0` is the one with
    weights. `width` is a factor on all channels. In training, a residual block is left out for an image with a
    probability that grows to `drop_connect`. As in `EfficientNetLite0`, the first convolution keeps the size of
    images up to 64 pixels, and the running statistics follow with a momentum of 0.1, not the original's 0.01.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits and, where there are concepts, presences
    """

    presets = NARROW_PRESETS

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 224,
        head: Head = "parallel",
        width: float = 1.0,
        dropout: float = 0.2,
        drop_connect: float = 0.2,
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        check_width(width)
        if not 0 <= drop_connect < 1:
            raise ValueError(f"drop_connect is {drop_connect}; give 0 (off) or a number below 1")
        require("monai")  # which takes seconds to import
        from monai.networks.nets.efficientnet import EfficientNet

        ends = [STEM, *(channels for _, channels, *_ in STAGES)]
        blocks = [
            f"r{count}_k{kernel}_s{stride}{stride}_e{expansion}_i{last}_o{channels}_se0.25"
            for last, (expansion, channels, count, stride, kernel) in zip(ends, STAGES, strict=False)
        ]
        small = image_size <= SMALL_IMAGE
        net = EfficientNet(
            blocks,
            in_channels=in_channels,
            num_classes=num_classes,
            width_coefficient=width,
            image_size=2 * image_size if small else image_size,  # such that the blocks know the size they get
            norm=("batch", {"eps": _EPSILON}),
            drop_connect_rate=drop_connect,
        )
        net.set_swish(memory_efficient=False)  # which could not be exported
        pad: nn.Module = net._conv_stem_padding
        if small:
            net._conv_stem.stride, pad = (1, 1), nn.ZeroPad2d(1)
        self.stem = nn.Sequential(pad, net._conv_stem, net._bn0, nn.SiLU())
        self.stages = net._blocks
        self.top = nn.Sequential(net._conv_head, net._bn1, nn.SiLU())
        self.dropout = nn.Dropout(dropout)
        self.add_heads(net._fc.in_features)

    def last_map(self, image: Tensor) -> Tensor:
        return self.top(self.stages(self.stem(image)))  # type: ignore[no-any-return]

    def features(self, image: Tensor) -> Tensor:
        return self.dropout(super().features(image))  # type: ignore[no-any-return]
