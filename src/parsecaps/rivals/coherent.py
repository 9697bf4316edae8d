"""The coherent concept model for skin lesions: a CCNN whose maps of concepts lie where the lesion is."""

from collections.abc import Mapping
from typing import ClassVar

from parsecaps.rivals.ccnn import CCNN, Uniqueness


class CoherentCNN(CCNN):
    """The model of Patricio, Neves and Teixeira (2023): as `CCNN`, with a bias, another uniqueness loss, and coherence.

    The published ones are on ResNet-101, DenseNet-201 and SEResNeXt-26d, cut at a map of 14 x 14; here it is the last
    map of any network (deviation). The coherence loss needs masks of the lesions; its weight is that for ResNet-101 on
    PH2. Dice is of `tanh` of the maps, since it is made for numbers up to 1 (deviation).

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits, presences and, as `concept_features` (B, m, h, w), the maps
    """

    losses: ClassVar[Mapping[str, float]] = {**CCNN.losses, "coherence": 0.6}
    uniqueness: ClassVar[Uniqueness] = "softmax"
    class_bias: ClassVar[bool] = True
