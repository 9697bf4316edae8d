"""Convolutional networks that most would take first, trained from nothing as ours are: tables of layers."""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.models.cnn import NARROW_PRESETS, SIZE_PRESETS, SMALL_IMAGE, FeatureModel, scaled
from parsecaps.models.pretrained import Head
from parsecaps.system.extras import require


class ResNet(FeatureModel):
    """The residual network of He et al. as `monai.networks.nets.resnet` builds it, with `blocks` of two convolutions.

    The first convolution halves images of more than 64 pixels, and so does the pooling after it, as in the original.
    """

    presets = SIZE_PRESETS
    blocks: ClassVar[tuple[int, int, int, int]]

    def build_layers(self, *, head: Head = "parallel") -> None:
        require("monai")  # which takes seconds to import
        from monai.networks.nets.resnet import ResNet as MonaiResNet

        small, channels = self.image_size <= SMALL_IMAGE, [64, 128, 256, 512]
        net = MonaiResNet(
            "basic",
            list(self.blocks),
            channels,
            spatial_dims=2,
            n_input_channels=self.in_channels,
            conv1_t_size=3 if small else 7,
            conv1_t_stride=1 if small else 2,
            bias_downsample=False,  # a normalisation follows
        )
        pooling = [] if small else [net.maxpool]
        self.layers = nn.Sequential(
            net.conv1, net.bn1, net.act, *pooling, net.layer1, net.layer2, net.layer3, net.layer4
        )
        self.add_heads(channels[-1], head)


class ResNet18(ResNet):
    """The residual network with 18 layers.

    >>> model = ResNet18.from_preset("medical", num_classes=3, image_size=96).eval()
    >>> model(torch.rand(1, 1, 96, 96)).logits.shape
    torch.Size([1, 3])
    """

    blocks = (2, 2, 2, 2)


class ResNet34(ResNet):
    """The residual network with 34 layers."""

    blocks = (3, 4, 6, 3)


_DENSE_BLOCKS = (6, 12, 24, 16)  # dense layers of each block, two convolutions each
_MOST_GROWTH = 256


class DenseNet121(FeatureModel):
    """The network of Huang et al. (2017) in which each layer sees all before it, as `monai.networks.nets` builds it.

    From scratch, without ImageNet weights: 7.0 million parameters before the heads. `growth_rate` is the paper's k, the
    channels that each layer adds; the first convolution has twice as many. It and the pooling after it halve images of
    more than 64 pixels; smaller ones keep their size there, with a kernel of 3, as in the paper.
    """

    presets = {**SIZE_PRESETS, "tiny": {**SIZE_PRESETS["tiny"], "growth_rate": 4}}  # noqa: RUF012

    def build_layers(self, *, head: Head = "parallel", growth_rate: int = 32) -> None:
        if not 1 <= growth_rate <= _MOST_GROWTH:
            raise ValueError(f"growth_rate is {growth_rate}; give 32 (as published), or from 1 to {_MOST_GROWTH}")
        require("monai")
        from monai.networks.nets.densenet import DenseNet

        first = 2 * growth_rate
        net = DenseNet(2, self.in_channels, self.num_classes, first, growth_rate, _DENSE_BLOCKS)
        self.layers = net.features
        if self.image_size <= SMALL_IMAGE:
            net.features.conv0 = nn.Conv2d(self.in_channels, first, 3, padding=1, bias=False)
            nn.init.kaiming_normal_(net.features.conv0.weight)  # as MONAI starts the others
            del net.features.pool0
        top: nn.BatchNorm2d = net.features.norm5  # type: ignore[assignment]
        self.add_heads(top.num_features, head)

    def last_map(self, image: Tensor) -> Tensor:
        return F.relu(super().last_map(image))


class SequentialCNN(FeatureModel):
    """`layers` in a row that start as He et al. (2015), without normalisation; `width` is a factor on all channels."""

    presets = NARROW_PRESETS

    @property
    def feature_map(self) -> nn.Module:
        return self.layers

    def add_heads(self, num_features: int, head: Head, dropout: float = 0.0) -> None:
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        super().add_heads(num_features, head, dropout)


_HIDDEN = 4096
_GRID = 7  # positions along a side that the first linear layer sees at most


class VGG(SequentialCNN):
    """A network of Simonyan and Zisserman (2015): `stages` of convolutions of 3 x 3, and three linear layers.

    From scratch, without ImageNet weights. The last feature map is averaged to at most 7 x 7 for the linear layers,
    which have most of the weights. Images up to 64 pixels are not halved after the last two stages.
    """

    stages: ClassVar[tuple[tuple[int, int], ...]]

    def build_layers(self, *, head: Head = "parallel", width: float = 1.0, dropout: float = 0.5) -> None:
        halvings = 3 if self.image_size <= SMALL_IMAGE else len(self.stages)
        self.layers = vgg_layers(self.stages, self.in_channels, width, halvings)
        last, hidden = self.map_channels, scaled(_HIDDEN, width)
        grid = self.image_size >> halvings
        self.pool = nn.AdaptiveAvgPool2d(_GRID) if grid > _GRID else nn.Identity()
        self.linear = nn.Sequential(
            nn.Flatten(),
            nn.Linear(last * min(grid, _GRID) ** 2, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
        )
        self.add_heads(hidden, head)

    @property
    def map_channels(self) -> int:
        return scaled(self.stages[-1][0], self.config["width"])

    def up_to_map(self) -> Self:
        del self.linear, self.pool
        return super().up_to_map()

    def features(self, image: Tensor) -> Tensor:
        return self.linear(self.pool(self.last_map(image)))  # type: ignore[no-any-return]


class VGG16(VGG):
    """That with 13 convolutions, from scratch, without ImageNet weights."""

    stages = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


class VGG19(VGG):
    """That with 16 convolutions, from scratch, without ImageNet weights."""

    stages = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


class ConvVGG16(SequentialCNN):
    """The 13 convolutions of VGG-16 and their mean over the positions, as networks with maps of concepts use them.

    From scratch, without ImageNet weights, as `VGG19`. It does not halve after the last stage: the last map has 14 x 14
    positions for 224 pixels. Images up to 64 pixels are not halved after the last two.
    """

    def build_layers(self, *, head: Head = "parallel", width: float = 1.0) -> None:
        self.layers = vgg_layers(VGG16.stages, self.in_channels, width, 3 if self.image_size <= SMALL_IMAGE else 4)
        self.add_heads(scaled(VGG16.stages[-1][0], width), head)


def vgg_layers(stages: Sequence[tuple[int, int]], in_channels: int, width: float, halvings: int) -> nn.Sequential:
    """The convolutions of a VGG by stages of channels and their number, with a halving after so many stages."""
    layers: list[nn.Module] = []
    last = in_channels
    for stage, (channels, count) in enumerate(stages):
        for _ in range(count):
            layers += [nn.Conv2d(last, scaled(channels, width), 3, padding=1), nn.ReLU(inplace=True)]
            last = scaled(channels, width)
        layers += [nn.MaxPool2d(2)] if stage < halvings else []
    return nn.Sequential(*layers)


_INCEPTIONS = (  # channels: 1 x 1; 3 x 3 after a reduction; 5 x 5 after a reduction; 1 x 1 after pooling
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)
_EPSILON = 1e-3  # of the normalisations, as in the reference that they come from


class Convolution(nn.Sequential):
    """A convolution that keeps the size unless it has a stride, its batch normalisation where wanted, and ReLU."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, batch_norm: bool, stride: int = 1) -> None:
        convolution = nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, bias=not batch_norm)
        norm = [nn.BatchNorm2d(out_channels, eps=_EPSILON)] if batch_norm else []
        super().__init__(convolution, *norm, nn.ReLU(inplace=True))


class Inception(nn.Module):
    """Parallel branches of 1 x 1, 3 x 3, 5 x 5 (or 3 x 3) and pooling: (B, C, h, w) -> (B, out_channels, h, w)."""

    def __init__(self, in_channels: int, channels: tuple[int, ...], *, batch_norm: bool) -> None:
        super().__init__()
        one, reduce_three, three, reduce_five, five, pooled = channels
        conv, kernel = partial(Convolution, batch_norm=batch_norm), 3 if batch_norm else 5
        self.branches = nn.ModuleList(
            [
                conv(in_channels, one, 1),
                nn.Sequential(conv(in_channels, reduce_three, 1), conv(reduce_three, three, 3)),
                nn.Sequential(conv(in_channels, reduce_five, 1), conv(reduce_five, five, kernel)),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(in_channels, pooled, 1)),
            ]
        )
        self.out_channels = one + three + five + pooled

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class GoogLeNet(SequentialCNN):
    """The network of Szegedy et al. (2015), 22 layers of parallel branches, without its auxiliary heads.

    From scratch, without ImageNet weights. With `batch_norm`, as torchvision builds it: normalised, and a kernel of 3
    where the paper has 5. Without, as in the paper: local response normalisation, and a kernel of 5. The first
    convolution and the pooling after it halve images of more than 64 pixels; for smaller ones the kernel is 3.
    """

    def build_layers(
        self, *, head: Head = "parallel", batch_norm: bool = True, width: float = 1.0, dropout: float = 0.2
    ) -> None:
        small, first, last = self.image_size <= SMALL_IMAGE, scaled(64, width), scaled(192, width)
        kernel, stride = (3, 1) if small else (7, 2)
        layers: list[nn.Module] = [Convolution(self.in_channels, first, kernel, batch_norm=batch_norm, stride=stride)]
        layers += [] if small else [nn.MaxPool2d(3, 2, ceil_mode=True)]
        layers += [] if batch_norm else [nn.LocalResponseNorm(5)]
        layers += [Convolution(first, first, 1, batch_norm=batch_norm)]
        layers += [Convolution(first, last, 3, batch_norm=batch_norm)]
        layers += [] if batch_norm else [nn.LocalResponseNorm(5)]
        for blocks in _INCEPTIONS:
            layers += [nn.MaxPool2d(3, 2, ceil_mode=True)]
            for channels in blocks:
                block = Inception(last, tuple(scaled(each, width) for each in channels), batch_norm=batch_norm)
                layers += [block]
                last = block.out_channels
        self.layers = nn.Sequential(*layers)
        self.add_heads(last, head, dropout)


_FIRST = 96
_FIRES = (((16, 64), (16, 64), (32, 128)), ((32, 128), (48, 192), (48, 192), (64, 256)), ((64, 256),))


class Fire(nn.Module):
    """1 x 1 to few channels, then 1 x 1 beside 3 x 3; ReLU after both: (B, C, h, w) -> (B, 2 expanded, h, w)."""

    def __init__(self, in_channels: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(in_channels, squeezed, 1)
        self.expand_one = nn.Conv2d(squeezed, expanded, 1)
        self.expand_three = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x))
        return F.relu(torch.cat([self.expand_one(x), self.expand_three(x)], 1))


class SqueezeNet(SequentialCNN):
    """The small network of Iandola et al. (2016), version 1.0: 0.74 million parameters.

    From scratch, without ImageNet weights. Deviation: the original takes the mean of a map for each class after a ReLU;
    here the mean comes first, without the ReLU, which could end the learning. Dropout is of the last map, as in the
    original. The first convolution halves images of more than 64 pixels; for smaller ones the kernel is 3.
    """

    def build_layers(self, *, head: Head = "parallel", width: float = 1.0, dropout: float = 0.5) -> None:
        last = scaled(_FIRST, width)
        kernel, stride, padding = (3, 1, 1) if self.image_size <= SMALL_IMAGE else (7, 2, 0)
        layers: list[nn.Module] = [nn.Conv2d(self.in_channels, last, kernel, stride, padding), nn.ReLU(inplace=True)]
        for fires in _FIRES:
            layers += [nn.MaxPool2d(3, 2, ceil_mode=True)]
            for squeezed, expanded in fires:
                layers += [Fire(last, scaled(squeezed, width), scaled(expanded, width))]
                last = 2 * scaled(expanded, width)
        self.layers = nn.Sequential(*layers)
        self.map_dropout = nn.Dropout(dropout)
        self.add_heads(last, head)

    def last_map(self, image: Tensor) -> Tensor:
        return self.map_dropout(super().last_map(image))  # type: ignore[no-any-return]
