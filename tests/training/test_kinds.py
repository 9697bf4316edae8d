"""Every kind of model trains by the same command, and its bundle predicts."""

from pathlib import Path

import pytest

from parsecaps.config import load_config
from parsecaps.prediction.bundle import Bundle
from parsecaps.training.fit import train_run
from tests.training.make import PHANTOM, skewed_manifest


@pytest.mark.parametrize("kind", ["FlatCaps", "PlainCNN", "ResNet18", "EfficientNetLite0"])
def test_a_baseline_trains_with_concepts(kind: str, tmp_path: Path) -> None:
    config = load_config(None, [*PHANTOM, f"model.kind={kind}", "training.epochs=1", "model.head=bottleneck"])
    train_run(config, run_folder=tmp_path / "run")
    bundle = Bundle.load(tmp_path / "run" / "bundle")
    assert type(bundle.model).__name__ == kind
    assert len(bundle.concepts) == bundle.model.num_concepts == 7
    assert bundle.model.config["head"] == "bottleneck"


def test_images_without_concepts_are_not_reconstructed_by_a_model_that_cannot(tmp_path: Path) -> None:
    settings = [f"data.path={skewed_manifest(tmp_path)}", "model.kind=PlainCNN", "model.preset=tiny"]
    config = load_config(None, [*settings, "training.epochs=1", "data.test=0"])
    train_run(config, run_folder=tmp_path / "run")
    assert Bundle.load(tmp_path / "run" / "bundle").concepts == ("veil", "streaks")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("model.kind=Parsecap", r"model.kind is 'Parsecap'; choose one of ParseCaps, FlatCaps, PlainCNN, ResNet18"),
        ("model.preset=huge", r"model.preset is 'huge'; choose one of medical, digits, tiny"),
    ],
)
def test_unknown_kinds_and_presets(setting: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=reason):
        train_run(load_config(None, [*PHANTOM, "model.kind=FlatCaps", setting]), run_folder=tmp_path / "run")
