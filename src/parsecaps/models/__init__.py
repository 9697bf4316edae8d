"""ParseCaps and the models it is compared with, in one plain dictionary."""

from pathlib import Path

from parsecaps.models.ar_capsnet import ARCapsNet
from parsecaps.models.capsnet import CapsNet
from parsecaps.models.cbm import CBM
from parsecaps.models.ccnn import CCNN
from parsecaps.models.cem import CEM
from parsecaps.models.cnn import PlainCNN
from parsecaps.models.coherent import CoherentCNN
from parsecaps.models.deepcaps import DeepCaps
from parsecaps.models.densenet import DenseNet121
from parsecaps.models.efficient_capsnet import EfficientCapsNet
from parsecaps.models.efficientnet import EfficientNetLite0
from parsecaps.models.efficientnet_b0 import EfficientNetB0
from parsecaps.models.flat import FlatCaps
from parsecaps.models.googlenet import GoogLeNet
from parsecaps.models.imagenet import imagenet_weights
from parsecaps.models.orthcaps import OrthCaps
from parsecaps.models.parsecaps import ParseCaps
from parsecaps.models.pretrained import PretrainedModel, read_config
from parsecaps.models.protocaps import ProtoCaps
from parsecaps.models.resnet import ResNet18, ResNet34
from parsecaps.models.squeezenet import SqueezeNet
from parsecaps.models.three_layer import ThreeLayerCaps
from parsecaps.models.vgg import VGG19, ConvVGG16

MODELS: dict[str, type[PretrainedModel]] = {
    "ParseCaps": ParseCaps,
    "FlatCaps": FlatCaps,
    "PlainCNN": PlainCNN,
    "ResNet18": ResNet18,
    "EfficientNetLite0": EfficientNetLite0,
    "ResNet34": ResNet34,
    "CBM": CBM,
    "CEM": CEM,
    "CCNN": CCNN,
    "CoherentCNN": CoherentCNN,
    "DenseNet121": DenseNet121,
    "EfficientNetB0": EfficientNetB0,
    "GoogLeNet": GoogLeNet,
    "VGG19": VGG19,
    "SqueezeNet": SqueezeNet,
    "ConvVGG16": ConvVGG16,
    "ProtoCaps": ProtoCaps,
    "CapsNet": CapsNet,
    "DeepCaps": DeepCaps,
    "OrthCaps": OrthCaps,
    "EfficientCapsNet": EfficientCapsNet,
    "ARCapsNet": ARCapsNet,
    "ThreeLayerCaps": ThreeLayerCaps,
}


def load_model(folder: str | Path) -> PretrainedModel:
    """Read a model of any kind from the folder that its `save_pretrained` wrote."""
    name = read_config(Path(folder))["model"]
    if name not in MODELS:
        raise ValueError(f"{folder} holds a model of kind {name!r}; known kinds are {', '.join(MODELS)}")
    return MODELS[name].from_pretrained(folder)


__all__ = [
    "CBM",
    "CCNN",
    "CEM",
    "MODELS",
    "VGG19",
    "ARCapsNet",
    "CapsNet",
    "CoherentCNN",
    "ConvVGG16",
    "DeepCaps",
    "DenseNet121",
    "EfficientCapsNet",
    "EfficientNetB0",
    "EfficientNetLite0",
    "FlatCaps",
    "GoogLeNet",
    "OrthCaps",
    "ParseCaps",
    "PlainCNN",
    "PretrainedModel",
    "ProtoCaps",
    "ResNet18",
    "ResNet34",
    "SqueezeNet",
    "ThreeLayerCaps",
    "imagenet_weights",
    "load_model",
]
