"""Every kind of model trains by the same command, and its bundle predicts."""

from pathlib import Path

import pytest
import torch

from parsecaps.config import load_config
from parsecaps.model import Model
from parsecaps.models import find_model
from parsecaps.training import Callbacks
from tests.data.make import folder_of_pictures
from tests.messages import message, refused
from tests.training.make import PHANTOM, skewed_manifest, train


@pytest.mark.parametrize("kind", ["FlatCaps", "PlainCNN", "EfficientNetLite0", "GoogLeNet"])
def test_a_baseline_trains_with_concepts(kind: str, tmp_path: Path) -> None:
    config = load_config(None, [*PHANTOM, f"model.kind={kind}", "training.epochs=1", "model.head=bottleneck"])
    train(config, run_folder=tmp_path / "run")
    model = Model.load(tmp_path / "run" / "bundle")
    assert type(model.network).__name__ == kind
    assert len(model.concepts) == model.network.num_concepts == 7
    assert model.network.config["head"] == "bottleneck"


def test_images_without_concepts_are_not_reconstructed_by_a_model_that_cannot(tmp_path: Path) -> None:
    settings = [f"data.path={skewed_manifest(tmp_path)}", "model.kind=PlainCNN", "model.preset=tiny"]
    config = load_config(None, [*settings, "training.epochs=1", "data.test=0"])
    train(config, run_folder=tmp_path / "run")
    assert Model.load(tmp_path / "run" / "bundle").concepts == ("veil", "streaks")


@pytest.mark.parametrize("setting", ["model.kind=Parsecap", "model.preset=huge"])
def test_unknown_kinds_and_presets(setting: str, tmp_path: Path) -> None:
    with refused(ValueError):
        train(load_config(None, [*PHANTOM, "model.kind=FlatCaps", setting]), run_folder=tmp_path / "run")


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("CBM", ["model.settings.mode=independent", "training.ema=0.9"]),
        ("CBM", ["model.settings.mode=sequential"]),
        ("CEM", ["training.mixup=0.4", "training.consistency_weight=1"]),
        ("CCNN", []),
        ("CoherentCNN", ["training.mixup=0.4"]),
    ],
)
def test_a_concept_model_trains_with_its_own_losses(kind: str, settings: list[str], tmp_path: Path) -> None:
    config = load_config(None, [*PHANTOM, f"model.kind={kind}", "training.epochs=1", *settings])
    run = train(config, run_folder=tmp_path / "run")
    (row,) = run.history
    for name in find_model(kind).losses:
        assert row[f"train_{name}"] > 0
        assert row[f"val_{name}"] > 0
    assert Model.load(tmp_path / "run" / "bundle").network.num_concepts == 7


def test_classes_start_from_what_is_usual_in_them() -> None:
    nan = float("nan")
    known = torch.tensor([[1.0, 0, nan], [1, 1, nan], [0, 1, nan], [1, nan, 1], [0, 0, 0]])
    model = find_model("CCNN").from_preset("tiny", num_classes=3)
    model.start(torch.tensor([0, 0, 1, 1, -1]), known)
    assert (model.classes.weight > 0).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize("kind", ["CBM", "CEM", "CCNN", "CoherentCNN"])
def test_data_without_concepts_are_refused_before_training(kind: str, tmp_path: Path) -> None:
    folder_of_pictures(tmp_path / "pictures", per_class=8, side=32)
    given = [f"data.path={tmp_path / 'pictures'}", "model.preset=tiny", f"model.kind={kind}"]
    with refused(ValueError):
        train(load_config(None, given), run_folder=tmp_path / "run")
    given = [*PHANTOM, f"model.kind={kind}", "model.num_concepts=0"]
    with refused(ValueError):
        train(load_config(None, given), run_folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_concepts_that_are_unknown_in_all_cases_are_refused(tmp_path: Path) -> None:
    table = skewed_manifest(tmp_path)
    lines = [line.split(",")[:3] for line in table.read_text().splitlines()]
    table.write_text("\n".join(",".join([*line, "concept:veil" if i == 0 else ""]) for i, line in enumerate(lines)))
    config = load_config(None, [f"data.path={table}", "model.kind=CEM", "model.preset=tiny"])
    with refused(ValueError):
        train(config, run_folder=tmp_path / "run")


def test_coherence_needs_masks(tmp_path: Path) -> None:
    given = [f"data.path={skewed_manifest(tmp_path)}", "model.kind=CoherentCNN", "model.preset=tiny"]
    said: list[str] = []
    config = load_config(None, [*given, "training.epochs=1"])
    run = train(config, run_folder=tmp_path / "run", callbacks=Callbacks(log=said.append))
    message(*said, containing="training.losses.coherence: ")
    assert "train_coherence" not in run.history[0]
    with refused(ValueError):
        train(load_config(None, [*given, "training.losses.coherence=0.3"]), run_folder=tmp_path / "other")
