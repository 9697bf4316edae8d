"""MONAI's ResNet-18, the network that most would take first, trained from nothing as ours are."""

from typing import Any

from torch import Tensor, nn

from parsecaps.models.features import FeatureModel
from parsecaps.models.pretrained import Head

RESNET_PRESETS: dict[str, dict[str, Any]] = {
    "medical": {"image_size": 224},
    "digits": {"image_size": 28},
    "tiny": {"image_size": 32, "num_concepts": 3},
}

_FEATURES = 512
_SMALL = 64  # images up to this size would be 2 x 2 after the usual five halvings


class ResNet18(FeatureModel):
    """The residual network of He et al. with 18 layers, as `monai.networks.nets.resnet18` builds it.

    The first convolution halves images of more than 64 pixels and the pooling after it too, as in the original; smaller
    ones keep their size there, as is usual for them.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits and, where there are concepts, presences

    >>> import torch
    >>> model = ResNet18.from_preset("medical", num_classes=3, image_size=96).eval()
    >>> model(torch.rand(1, 1, 96, 96)).logits.shape
    torch.Size([1, 3])
    """

    presets = RESNET_PRESETS

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
        from monai.networks.nets.resnet import resnet18  # which takes seconds to import

        small = image_size <= _SMALL
        net = resnet18(
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

    def features(self, image: Tensor) -> Tensor:
        return self.layers(image).mean((2, 3))  # type: ignore[no-any-return]
