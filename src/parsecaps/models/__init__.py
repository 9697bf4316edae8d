"""ParseCaps and the models it is compared with, in one plain dictionary."""

from pathlib import Path

from parsecaps.models.cnn import PlainCNN
from parsecaps.models.efficientnet import EfficientNetLite0
from parsecaps.models.flat import FlatCaps
from parsecaps.models.imagenet import imagenet_weights
from parsecaps.models.parsecaps import ParseCaps
from parsecaps.models.pretrained import PretrainedModel, read_config
from parsecaps.models.resnet import ResNet18

MODELS: dict[str, type[PretrainedModel]] = {
    "ParseCaps": ParseCaps,
    "FlatCaps": FlatCaps,
    "PlainCNN": PlainCNN,
    "ResNet18": ResNet18,
    "EfficientNetLite0": EfficientNetLite0,
}


def load_model(folder: str | Path) -> PretrainedModel:
    """Read a model of any kind from the folder that its `save_pretrained` wrote."""
    name = read_config(Path(folder))["model"]
    if name not in MODELS:
        raise ValueError(f"{folder} holds a model of kind {name!r}; known kinds are {', '.join(MODELS)}")
    return MODELS[name].from_pretrained(folder)


__all__ = [
    "MODELS",
    "EfficientNetLite0",
    "FlatCaps",
    "ParseCaps",
    "PlainCNN",
    "PretrainedModel",
    "ResNet18",
    "imagenet_weights",
    "load_model",
]
