"""A user's mistake costs one line that says what to do, before anything is written."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.command import refused, run
from tests.explain.make_explained import make_folder
from tests.training.make import TINY

SMALL = " ".join(f"--set {setting}" for setting in TINY)
MISTAKES = {
    "summary medcal": "did you mean 'medical'?",
    "summary tiny --size 12": "give at least 28",
    "summary tiny --json no/such/folder.json": "is not there; mkdir -p no/such makes it",
    "summary tiny --json .": "is a folder",
    "doctor --yes": "run parsecaps doctor --clear-cache --yes",
    "demo --quick --config mine.yaml": "--quick and --config mine.yaml both name settings",
    "data check nowhere": "nowhere is not there",
    "data check phantom:m=3": "phantom has no option 'm'",
    "data check phantom:n=1000000000": "is more than can be drawn; give at most 1000000",
    "data check phantom --source phantum": "source 'phantum' is not known",
    "data check phantom:n=40 --test-fold 2": "has no author's folds",
    "data check phantom:n=40 --split gone.csv": "gone.csv is missing",
    "train": "there is nothing to train on; give DATA",
    "train phantom --set training.epoch=3": "did you mean 'training.epochs'?",
    "train phantom --set training.epochs=0": "training.epochs is 0",
    "train phantom --config gone.yaml": "gone.yaml is missing",
    "train phantom --folds 1": "1 folds leave nothing to train on",
    "train phantom --resume old": "parsecaps train --resume old",
    "train --resume x": "config.yaml is missing; give the folder of a run",
    f"train phantom:n=72,size=32 --devices 3 {SMALL}": "batch_size is 8; give a positive multiple of the 3",
    "pretrain a b --licence CC0 --out new": "1 licences for 2 data sets; give one for each",
    "pretrain phantom:n=36,size=32 scans --out new": "scans is not there",
    f"pretrain phantom:n=36,size=32 --start gone --out new {SMALL}": "gone is not there; start from a run",
    "evaluate .": "config.yaml is missing",
    "evaluate MODEL --part tset": "part is 'tset'",
    "evaluate MODEL --set training.epochs=3": "there is no key 'training.epochs'; did you mean '",
    "evaluate MODEL --views 0": "views is 0; input should be greater than 0",
    "predict MODEL x.png --out x.csv --set batchsize=3": "there is no key 'batchsize'; did you mean 'batch_size'?",
    "predict MODEL x.png --out x.csv --risk 1.5": "risk is 1.5; input should be less than 1",
    "audit MODEL": "is not a run, so it has no data of its own",
    "audit MODEL phantom:n=5 --limit 0": "limit is 0",
    "explain . IMAGE": "has no bundle.json",
    "explain MODEL IMAGE --method gradcam": "method is 'gradcam'",
    "explain MODEL IMAGE --risk 0.1": "no risk can be promised",
    "explain MODEL none.png": "none.png is not there",
    "explain MODEL": "is not the folder of a run",
    "explain MODEL IMAGE --out why": "give a page, such as why.html, or --files why",
    "remember MODEL": "config.yaml is missing",
}


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
    assert MISTAKES[command] in refused(*words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    ["summary", "demo", "train", "pretrain", "data check", "data split", "concepts", "reproduce", "export", "serve"],
)
def test_help_has_an_example(command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"parsecaps {command} " in " ".join(result.stdout.split()).partition("Examples")[2]
