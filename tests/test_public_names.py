"""Names that others may import: this test fails when one of them disappears or a stranger comes in."""

import importlib
from pathlib import Path

import pytest

import parsecaps
from parsecaps.models import all_models, find_model
from parsecaps.types import Batch, Output

PUBLIC: dict[str, set[str]] = {
    "parsecaps": {
        *("fit", "cross_validate", "evaluate", "load", "open_data", "load_config", "load_model", "record_couplings"),
        *("compare", "pretrain", "Run", "Model", "Config", "Callbacks", "ParseCaps", "save_page"),
    },
    "parsecaps.functional": {
        *("entmax", "squash", "class_loss", "presentation_loss", "triplet_loss", "reconstruction_loss"),
        *("diversity_loss", "consistency_loss", "margin_loss"),
    },
    "parsecaps.models": {
        *("MODELS", "FlatCaps", "ParseCaps", "PlainCNN", "PretrainedModel", "TrunkCNN"),
        *("all_models", "find_model", "load_model"),
    },
    "parsecaps.rivals": {
        *("CapsNet", "DeepCaps", "OrthCaps", "ARCapsNet", "EfficientCapsNet", "ThreeLayerCaps"),
        *(
            "EfficientNetLite0",
            "ResNet18",
            "ResNet34",
            "DenseNet121",
            "EfficientNetB0",
            "GoogLeNet",
            "VGG16",
            "VGG19",
            "SqueezeNet",
            "ProtoCaps",
        ),
        *("CBM", "CEM", "CCNN", "CoherentCNN", "ConvVGG16"),
    },
    "parsecaps.training": {
        *("TERMS", "Callbacks", "DivergedError", "Loss", "Objective", "Progress", "Term", "TermContext"),
        "TerminatedError",
    },
}


@pytest.mark.parametrize("module", PUBLIC)
def test_the_surface_is_what_it_was(module: str) -> None:
    opened = importlib.import_module(module)
    assert set(opened.__all__) == PUBLIC[module]
    assert all(hasattr(opened, name) for name in opened.__all__)


@pytest.mark.parametrize(
    "room",
    [
        "audit",
        "data",
        "discovery",
        "explain",
        "functional",
        "metrics",
        "models",
        "nn",
        "prediction",
        "report",
        "text",
        "training",
    ],
)
def test_every_room_says_what_it_exports(room: str) -> None:
    opened = importlib.import_module(f"parsecaps.{room}")
    assert opened.__doc__
    assert opened.__all__
    assert [name for name in opened.__all__ if not hasattr(opened, name)] == []


def test_names_of_the_package_are_found_by_completion() -> None:
    assert set(parsecaps.__all__) <= set(dir(parsecaps))
    with pytest.raises(AttributeError, match="has no attribute 'fti'"):
        _ = parsecaps.fti


@pytest.mark.parametrize("kind", all_models())
def test_models_have_the_same_methods_and_presets(kind: str) -> None:
    for name in ("from_config", "from_preset", "from_pretrained", "save_pretrained", "summary"):
        assert callable(getattr(find_model(kind), name))
    assert {"medical", "digits", "tiny"} <= set(find_model(kind).presets)


def test_what_flows_between_the_rooms_keeps_its_fields() -> None:
    assert Batch._fields[:3] == ("image", "label", "concepts")
    assert Output._fields == (
        *("logits", "class_capsules", "concept_capsules", "presence", "global_capsule", "reconstruction"),
        *("concept_features", "concept_weights"),
    )


def test_no_public_name_is_that_of_a_module() -> None:
    """A module that is imported would take the place of the function."""
    modules = {path.stem for path in Path(parsecaps.__file__).parent.iterdir()}
    assert modules & set(parsecaps.__all__) == set()
