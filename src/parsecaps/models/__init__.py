"""ParseCaps and its own baselines, and the plain dictionary of all models, which rivals enter by themselves."""

from importlib import import_module
from pathlib import Path

from parsecaps.models.cnn import PlainCNN, TrunkCNN
from parsecaps.models.parsecaps import FlatCaps, ParseCaps
from parsecaps.models.pretrained import PretrainedModel, read_config

MODELS: dict[str, type[PretrainedModel]] = {kind.__name__: kind for kind in (ParseCaps, FlatCaps, PlainCNN, TrunkCNN)}


def all_models() -> dict[str, type[PretrainedModel]]:
    """`MODELS` with every rival in it."""
    import_module("parsecaps.rivals")
    return MODELS


def find_model(name: str) -> type[PretrainedModel]:
    """The class of a model; rivals are imported only when one is asked for."""
    if name not in MODELS and name not in all_models():
        raise ValueError(f"there is no model {name!r}; choose one of {', '.join(MODELS)}")
    return MODELS[name]


def load_model(folder: str | Path) -> PretrainedModel:
    """Read a model of any kind from the folder that its `save_pretrained` wrote."""
    name = read_config(Path(folder))["model"]
    if name not in MODELS and name not in all_models():
        raise ValueError(f"{folder} holds a model of kind {name!r}; known kinds are {', '.join(MODELS)}")
    return MODELS[name].from_pretrained(folder)


__all__ = [
    "MODELS",
    "FlatCaps",
    "ParseCaps",
    "PlainCNN",
    "PretrainedModel",
    "TrunkCNN",
    "all_models",
    "find_model",
    "load_model",
]
