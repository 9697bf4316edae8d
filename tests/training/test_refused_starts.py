"""Weights that cannot be started from: refused in one line, and nothing is left behind."""

import json
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
from tests.messages import LIBRARY, message, refused

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


DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing": lambda f: f.rename(f.with_name("gone")),
    "another kind": other_kind,
    "weights cut": lambda f: cut(f / WEIGHTS),
    "no weights": lambda f: (f / WEIGHTS).unlink(),
    "nan": lambda f: change(f / WEIGHTS, np.nan),
    "inf": lambda f: change(f / WEIGHTS, np.inf),
    "prints cut": lambda f: cut(f / PRINTS),
    "prints empty": lambda f: (f / PRINTS).write_bytes(b""),
    "prints of another name": lambda f: save_file({"x": np.zeros((2, 32), np.uint8)}, f / PRINTS),
    "prints of another length": lambda f: save_file({"bits": np.zeros((2, 8), np.uint8)}, f / PRINTS),
    "prints of another kind": lambda f: save_file({"bits": np.zeros((2, 32), np.int8)}, f / PRINTS),
    "prints that numpy cannot hold": lambda f: save_tensors(
        {"bits": torch.zeros(2, 32).to(torch.float8_e4m3fn)}, f / PRINTS
    ),
    "a cross-validation": folds,
    "a run without a model": lambda f: [path.unlink() for path in f.iterdir()],
    "classes of another number": lambda f: text(f / "bundle.json", classes=["a"]),
    "unknown model": lambda f: text(f / "config.json", model="os.system"),
}


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A bundle with fingerprints, as a run gives it away."""
    model = ParseCaps.from_preset("tiny", num_classes=2).eval()
    Model(model, Preparation(32, 1), ("a", "b"), ("x", "y", "z")).save(tmp_path / "start")
    write_fingerprints(tmp_path / "start" / PRINTS, np.zeros((1, 32), np.uint8))
    return tmp_path / "start"


def fit_is_refused(start: object, tmp_path: Path, **settings: object) -> None:
    """In one line, and nothing is left."""
    with refused((ValueError, OSError), hide=LIBRARY):
        parsecaps.fit(
            DATA,
            settings={**SETTINGS, **settings},
            start=str(start),
            run_folder=tmp_path / "deep" / "run",
            callbacks=Callbacks(),
        )
    assert not (tmp_path / "deep").exists()


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_damaged_or_of_another_kind(name: str, start: Path, tmp_path: Path) -> None:
    DAMAGE[name](start)
    fit_is_refused(start, tmp_path)


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
    fit_is_refused(start, tmp_path, **{f"model.settings.{name}": value for name, value in sizes.items()})


def test_imagenet_is_for_its_own_kind(tmp_path: Path) -> None:
    fit_is_refused("imagenet", tmp_path)


def test_a_file_is_no_folder(start: Path, tmp_path: Path) -> None:
    fit_is_refused(start / WEIGHTS, tmp_path)


def test_files_of_others_stay_in_the_folder(start: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / PRINTS).write_bytes(b"precious")
    change(start / WEIGHTS, np.nan)
    with refused(ValueError):
        parsecaps.fit(DATA, settings=SETTINGS, start=start, run_folder=tmp_path / "run", callbacks=Callbacks())
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == {PRINTS: b"precious"}


@pytest.mark.parametrize("name", ["missing", "weights cut", "prints cut"])
def test_the_command_says_it_in_one_line(
    name: str, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    DAMAGE[name](start)
    before = sorted(path.name for path in tmp_path.iterdir())
    settings = [argument for key, value in SETTINGS.items() for argument in ("--set", f"{key}={value}")]
    result = CliRunner().invoke(app, ["train", DATA, *settings, "--start", str(start)])
    assert result.exit_code == 2
    message(result.stderr, hide=LIBRARY)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
