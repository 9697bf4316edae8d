"""A user's mistake costs one line that says what to do, before anything is written."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.command import fails, run
from tests.explain.make_explained import make_folder
from tests.training.make import TINY

SMALL = " ".join(f"--set {setting}" for setting in TINY)
MISTAKES = [
    "summary medcal",
    "summary tiny --size 12",
    "summary tiny --json no/such/folder.json",
    "summary tiny --json .",
    "doctor --yes",
    "demo --quick --config mine.yaml",
    "data check nowhere",
    "data check phantom:m=3",
    "data check phantom:n=1000000000",
    "data check phantom --source phantum",
    "data check phantom:n=40 --test-fold 2",
    "data check phantom:n=40 --split gone.csv",
    "train",
    "train phantom --set training.epoch=3",
    "train phantom --set training.epochs=0",
    "train phantom --config gone.yaml",
    "train phantom --folds 1",
    "train phantom --resume old",
    "train --resume x",
    f"train phantom:n=72,size=32 --devices 3 {SMALL}",
    "pretrain a b --licence CC0 --out new",
    "pretrain phantom:n=36,size=32 scans --out new",
    f"pretrain phantom:n=36,size=32 --start gone --out new {SMALL}",
    "evaluate .",
    "evaluate MODEL --part tset",
    "evaluate MODEL --set training.epochs=3",
    "evaluate MODEL --views 0",
    "predict MODEL x.png --out x.csv --set batchsize=3",
    "predict MODEL x.png --out x.csv --risk 1.5",
    "audit MODEL",
    "audit MODEL phantom:n=5 --limit 0",
    "explain . IMAGE",
    "explain MODEL IMAGE --method gradcam",
    "explain MODEL IMAGE --risk 0.1",
    "explain MODEL none.png",
    "explain MODEL",
    "explain MODEL IMAGE --out why",
    "remember MODEL",
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved model that is no run, and an image."""
    folder = tmp_path_factory.mktemp("model")
    make_folder(folder, "bottleneck")
    image = tmp_path_factory.mktemp("images") / "skin.png"
    Image.fromarray(np.full((32, 32, 3), 99, np.uint8)).save(image)
    return {"MODEL": shutil.copytree(folder / "bundle", folder / "given" / "model"), "IMAGE": image}


@pytest.mark.parametrize("command", MISTAKES)
def test_a_mistake_costs_one_line(
    command: str, places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [places.get(word, word) for word in command.split()]
    fails(*words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    ["summary", "demo", "train", "pretrain", "data check", "data split", "concepts", "reproduce", "export", "serve"],
)
def test_help_has_an_example(command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"parsecaps {command} " in " ".join(result.stdout.split()).partition("Examples")[2]
