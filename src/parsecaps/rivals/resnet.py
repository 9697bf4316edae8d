"""MONAI's ResNets, the networks that most would take first, trained from nothing as ours are."""

from typing import Any, ClassVar

from torch import Tensor, nn

from parsecaps.models.features import SIZE_PRESETS, SMALL_IMAGE, FeatureModel
from parsecaps.models.pretrained import Head
from parsecaps.system.extras import require

_FEATURES = 512


class ResNet(FeatureModel):
    """The residual network of He et al. as `monai.networks.nets.resnet` builds it, with `blocks` of two convolutions.

    The first convolution halves images of more than 64 pixels and the pooling after it too, as in the original; smaller
    ones keep their size there, as is usual for them.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits and, where there are concepts, presences
    """

    presets = SIZE_PRESETS
    blocks: ClassVar[tuple[int, int, int, int]]

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 224,
        head: Head = "parallel",
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        require("monai")  # which takes seconds to import
        from monai.networks.nets.resnet import ResNet as MonaiResNet

        small = image_size <= SMALL_IMAGE
        net = MonaiResNet(
            "basic",
            list(self.blocks),
            [64, 128, 256, _FEATURES],
            spatial_dims=2,
            n_input_channels=in_channels,
            conv1_t_size=3 if small else 7,
            conv1_t_stride=1 if small else 2,
            bias_downsample=False,  # a normalisation follows
        )
        pooling = [] if small else [net.maxpool]
        self.layers = nn.Sequential(
            net.conv1, net.bn1, net.act, *pooling, net.layer1, net.layer2, net.layer3, net.layer4
        )
        self.add_heads(_FEATURES)

    def last_map(self, image: Tensor) -> Tensor:
        return self.layers(image)  # type: ignore[no-any-return]


class ResNet18(ResNet):
    """The residual network with 18 layers.

    >>> import torch
    >>> model = ResNet18.from_preset("medical", num_classes=3, image_size=96).eval()
    >>> model(torch.rand(1, 1, 96, 96)).logits.shape
    torch.Size([1, 3])
    """

    blocks = (2, 2, 2, 2)


class ResNet34(ResNet):
    """The residual network with 34 layers."""

    blocks = (3, 4, 6, 3)
