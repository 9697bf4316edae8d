"""A public name that disappears breaks somebody's code: then this fails, and the changelog must say so."""

import importlib

import pytest

NAMES = {
    "parsecaps": ["__version__"],
    "parsecaps.types": ["Batch", "Output"],
    "parsecaps.functional": [
        "class_loss",
        "entmax",
        "gather_windows",
        "presentation_loss",
        "reconstruction_loss",
        "squash",
        "triplet_loss",
    ],
    "parsecaps.nn": [
        "AxialAttention",
        "Bottleneck",
        "CapsuleCell",
        "ConceptLayer",
        "Coupling",
        "Decoder",
        "FullyCaps",
        "InitialBlock",
        "PConvCaps",
        "PhraseEmbedding",
        "PrimaryCaps",
        "SAARouting",
        "SparseAttention",
        "capsule_block",
        "record_couplings",
        "replace_couplings",
    ],
    "parsecaps.models": ["MODELS", "ParseCaps", "PlainCNN", "PretrainedModel", "load_model"],
    "parsecaps.training": ["Losses", "Objective"],
    "parsecaps.cli": ["app"],
}


@pytest.mark.parametrize("module", NAMES)
def test_public_names(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in NAMES[module] if not hasattr(loaded, name)] == []
    if hasattr(loaded, "__all__"):
        assert sorted(loaded.__all__) == sorted(NAMES[module])
