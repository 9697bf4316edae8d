"""The recipes that are shipped train the networks as their authors did."""

import pytest

from parsecaps import load_config


@pytest.mark.parametrize(
    ("name", "kind", "preset", "optimizer", "learning_rate"),
    [
        ("ar-capsnet", "ARCapsNet", "digits", "rmsprop", 1e-3),
        ("efficient-capsnet", "EfficientCapsNet", "digits", "adam", 5e-4),
        ("orthcaps", "OrthCaps", "auto", "adamw", 5e-3),
    ],
)
def test_a_recipe(name: str, kind: str, preset: str, optimizer: str, learning_rate: float) -> None:
    config = load_config(name)
    assert (config.model.kind, config.model.preset) == (kind, preset)
    assert (config.training.optimizer, config.training.learning_rate) == (optimizer, learning_rate)
