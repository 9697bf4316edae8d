"""MONAI's DenseNet-121, from scratch, without ImageNet weights."""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.models.features import SIZE_PRESETS, SMALL_IMAGE, FeatureModel
from parsecaps.models.pretrained import Head
from parsecaps.system.extras import require

_BLOCKS = (6, 12, 24, 16)  # dense layers of each block, two convolutions each
_MOST_GROWTH = 256


class DenseNet121(FeatureModel):
    """The network of Huang et al. (2017) in which each layer sees all before it, as `monai.networks.nets` builds it.

    From scratch, without ImageNet weights: 7.0 million parameters before the heads. `growth_rate` is the paper's k,
    the channels that each layer adds; the first convolution has twice as many. It halves images of more than 64 pixels
    and the pooling after it too; smaller ones keep their size there, with a kernel of 3, as in the paper.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits and, where there are concepts, presences
    """

    presets = {**SIZE_PRESETS, "tiny": {**SIZE_PRESETS["tiny"], "growth_rate": 4}}  # noqa: RUF012

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 224,
        head: Head = "parallel",
        growth_rate: int = 32,
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        if not 1 <= growth_rate <= _MOST_GROWTH:
            raise ValueError(f"growth_rate is {growth_rate}; give 32 (as published), or from 1 to {_MOST_GROWTH}")
        require("monai")  # which takes seconds to import
        from monai.networks.nets.densenet import DenseNet

        first = 2 * growth_rate
        net = DenseNet(2, in_channels, num_classes, first, growth_rate, _BLOCKS)
        self.layers = net.features
        if image_size <= SMALL_IMAGE:
            self.layers.conv0 = nn.Conv2d(in_channels, first, 3, padding=1, bias=False)
            nn.init.kaiming_normal_(self.layers.conv0.weight)  # as MONAI starts the others
            del self.layers.pool0
        top: nn.BatchNorm2d = net.features.norm5  # type: ignore[assignment]
        self.add_heads(top.num_features)

    def last_map(self, image: Tensor) -> Tensor:
        return F.relu(self.layers(image))
