"""Weights that cannot be started from: refused in one line, and nothing is left behind."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_tensors
from typer.testing import CliRunner

import parsecaps
from parsecaps.cli import app
from parsecaps.data.leaks import FINGERPRINTS_FILE, write_fingerprints
from parsecaps.data.preparation import Preparation
from parsecaps.model import Model
from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.training.callbacks import Callbacks

DATA = "phantom:n=36,size=32"
SETTINGS: dict[str, Any] = {"model.preset": "tiny", "training.epochs": 1, "training.batch_size": 8}
WEIGHTS, PRINTS = "model.safetensors", FINGERPRINTS_FILE


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(path: Path, value: float) -> None:
    tensors = load_file(path)
    tensors["norm.weight"][0] = value
    save_file(tensors, path)


def text(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")


def other_kind(folder: Path) -> None:
    PlainCNN.from_preset("tiny", num_classes=2).save_pretrained(folder)
    (folder / "bundle.json").unlink()


def folds(folder: Path) -> None:
    for number in (1, 2):
        place = folder / f"fold-{number}" / "bundle"
        place.mkdir(parents=True)
        (folder / "bundle.json").rename(place / "bundle.json") if number == 1 else (place / "bundle.json").touch()
    (folder / "config.json").unlink()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (
        lambda f: f.rename(f.with_name("gone")),
        r"start is not there; start from a run, .*, or one of ",
    ),
    "another kind": (other_kind, r"start holds a PlainCNN, but model\.kind is ParseCaps; add --set model\.kind=Plain"),
    "weights cut": (lambda f: cut(f / WEIGHTS), r"model\.safetensors cannot be read .*; save the model again"),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), r"model\.safetensors is missing"),
    "nan": (lambda f: change(f / WEIGHTS, np.nan), r"norm\.weight has values that are not finite; save"),
    "inf": (lambda f: change(f / WEIGHTS, np.inf), r"norm\.weight has values that are not finite; save"),
    "prints cut": (
        lambda f: cut(f / PRINTS),
        r"fingerprints\.safetensors cannot be read .*; save .*, or remove",
    ),
    "prints empty": (lambda f: (f / PRINTS).write_bytes(b""), r"fingerprints\.safetensors cannot be read"),
    "prints of another name": (
        lambda f: save_file({"x": np.zeros((2, 32), np.uint8)}, f / PRINTS),
        r"fingerprints\.safetensors does not hold fingerprints; save",
    ),
    "prints of another length": (
        lambda f: save_file({"bits": np.zeros((2, 8), np.uint8)}, f / PRINTS),
        r"fingerprints\.safetensors does not hold fingerprints; save",
    ),
    "prints of another kind": (
        lambda f: save_file({"bits": np.zeros((2, 32), np.int8)}, f / PRINTS),
        r"fingerprints\.safetensors does not hold fingerprints; save",
    ),
    "prints that numpy cannot hold": (
        lambda f: save_tensors({"bits": torch.zeros(2, 32, dtype=torch.float8_e4m3fn)}, f / PRINTS),
        r"fingerprints\.safetensors does not hold fingerprints; save",
    ),
    "a cross-validation": (folds, r"start is a cross-validation of 2 models; give one of .*fold-1, .*fold-2"),
    "a run without a model": (
        lambda f: [path.unlink() for path in f.iterdir()],
        r"start has no bundle\.json, nor has .*; give a run or a saved model",
    ),
    "classes of another number": (lambda f: text(f / "bundle.json", classes=["a"]), "1 names for 2 classes"),
    "unknown model": (lambda f: text(f / "config.json", model="os.system"), "a model of kind 'os.system'; known"),
}


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A bundle with fingerprints, as a run gives it away."""
    model = ParseCaps.from_preset("tiny", num_classes=2).eval()
    Model(model, Preparation(32, 1), ("a", "b"), ("x", "y", "z")).save(tmp_path / "start")
    write_fingerprints(tmp_path / "start" / PRINTS, np.zeros((1, 32), np.uint8))
    return tmp_path / "start"


def refused(start: object, tmp_path: Path, **settings: object) -> str:
    """The one line that says why, after making sure that nothing is left."""
    with pytest.raises((ValueError, OSError)) as error:
        parsecaps.fit(
            DATA,
            settings={**SETTINGS, **settings},
            start=str(start),
            run_folder=tmp_path / "deep" / "run",
            callbacks=Callbacks(),
        )
    assert "\n" not in str(error.value)
    assert not (tmp_path / "deep").exists()
    return str(error.value)


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_damaged_or_of_another_kind(name: str, start: Path, tmp_path: Path) -> None:
    damage, reason = DAMAGE[name]
    damage(start)
    line = refused(start, tmp_path)
    assert re.search(reason, line), line


def test_the_untouched_one_is_taken(start: Path, tmp_path: Path) -> None:
    run = parsecaps.fit(DATA, settings=SETTINGS, start=start, run_folder=tmp_path / "run", callbacks=Callbacks())
    assert run.origin is not None
    assert (run.origin.images, run.origin.adapted) == (1, ["colour from grey (1 tensor)"])


def test_a_network_that_no_tensor_fits(start: Path, tmp_path: Path) -> None:
    sizes = {
        "dims": [6, 10, 14, 18],
        "stem_channels": [5, 6, 7, 9],
        "heads": [1, 1, 1],
        "decoder_channels": [9, 9, 9, 9],
    }
    line = refused(start, tmp_path, **{f"model.settings.{name}": value for name, value in sizes.items()})
    assert line.startswith(f"no tensor of {start} fits: this ParseCaps has other layers; leave out model.settings")


def test_imagenet_is_for_its_own_kind(tmp_path: Path) -> None:
    line = refused("imagenet", tmp_path)
    reason = "imagenet has weights for EfficientNetLite0, but model.kind is ParseCaps"
    assert line.startswith(f"{reason}; add --set model.kind=EfficientNetLite0 or, ")
    assert "model.settings.trunk=lite0" in line


def test_a_file_is_no_folder(start: Path, tmp_path: Path) -> None:
    assert "give a run or a saved model" in refused(start / WEIGHTS, tmp_path)


def test_files_of_others_stay_in_the_folder(start: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / PRINTS).write_bytes(b"precious")
    change(start / WEIGHTS, np.nan)
    with pytest.raises(ValueError, match="not finite"):
        parsecaps.fit(DATA, settings=SETTINGS, start=start, run_folder=tmp_path / "run", callbacks=Callbacks())
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == {PRINTS: b"precious"}


@pytest.mark.parametrize("name", ["missing", "weights cut", "prints cut"])
def test_the_command_says_it_in_one_line(
    name: str, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    damage, reason = DAMAGE[name]
    damage(start)
    before = sorted(path.name for path in tmp_path.iterdir())
    settings = [argument for key, value in SETTINGS.items() for argument in ("--set", f"{key}={value}")]
    result = CliRunner().invoke(app, ["train", DATA, *settings, "--start", str(start)])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert re.search(reason, result.stderr)
    assert "Traceback" not in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == before
