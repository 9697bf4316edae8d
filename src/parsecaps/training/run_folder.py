"""The folder of a run: everything about it, each file written whole or not at all."""

import csv
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from parsecaps import __version__
from parsecaps.prediction.bundle import Bundle
from parsecaps.config import Config, load_config
from parsecaps.data.cases import DataSet
from parsecaps.data.files import write_atomically
from parsecaps.data.splits import Division, read_split, relative_name, split_hash, split_names

_PACKAGES = ("torch", "lightning", "numpy", "monai", "pydicom", "pillow", "safetensors", "pydantic")


@dataclass(frozen=True)
class RunFolder:
    """Where the files of a run are.

    `config.yaml` has every setting, `split.csv` who trains, chooses and tests, `run.json` versions, seeds and results,
    `data.json` what the check of the data found, `history.csv` and `curves.png` the epochs, `logs` is for TensorBoard,
    `checkpoints` what is needed to resume, and `bundle` the model with all that prediction needs, `card` among it.
    `scores.json` and `scores.html` say how good it is. A cross-validation has a run in each `fold`.
    """

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def split(self) -> Path:
        return self.path / "split.csv"

    @property
    def about(self) -> Path:
        return self.path / "run.json"

    @property
    def data(self) -> Path:
        return self.path / "data.json"

    @property
    def history(self) -> Path:
        return self.path / "history.csv"

    @property
    def curves(self) -> Path:
        return self.path / "curves.png"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def bundle(self) -> Path:
        return self.path / "bundle"

    @property
    def card(self) -> Path:
        return self.bundle / "README.md"

    @property
    def scores(self) -> Path:
        return self.path / "scores.json"

    @property
    def page(self) -> Path:
        return self.path / "scores.html"

    def fold(self, number: int) -> "RunFolder":
        """The run of a fold, counted from 1."""
        return RunFolder(self.path / f"fold-{number}")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def last(self) -> Path:
        return self.checkpoints / "last.pt"

    def best(self, epoch: int) -> Path:
        """The weights after an epoch, counted from 1, that was the best so far."""
        return self.checkpoints / f"best-{epoch:04}.pt"

    def forget_all_but(self, epoch: int) -> None:
        """Remove the weights of epochs that are not the best any more, and what a killed process left unfinished."""
        for path in [*self.checkpoints.glob("best-*.pt"), *self.checkpoints.glob(".*.tmp")]:
            if path != self.best(epoch):
                path.unlink(missing_ok=True)

    def read_config(self) -> Config:
        """The settings of the run."""
        if not self.config.is_file():
            raise FileNotFoundError(f"{self.config} is missing; give the folder of a run of parsecaps train")
        return load_config(self.config)

    def read_about(self) -> dict[str, Any]:
        """Versions, seeds, choices and results."""
        try:
            about: dict[str, Any] = json.loads(self.about.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{self.about} is not valid JSON ({error}); train again") from None
        return about

    def read_division(self, data: DataSet) -> Division:
        """Who trained, chose and tested; refused where a case is gone or another patient's.

        Cases that have come since then take no part.
        """
        named = split_names(self.split)
        rows = [i for i, case in enumerate(data.cases) if (relative_name(data, case), case.frame) in named]
        if gone := named - {(relative_name(data, data.cases[i]), data.cases[i].frame) for i in rows}:
            name, frame = min(gone, key=str)
            what = name if frame is None else f"{name}#{frame}"
            raise ValueError(f"{what} of the run {self.path} is not in {data.root} any more; put it back")
        then_there = data.subset(rows)
        parts, problems = read_split(self.split, then_there)
        if problems:
            raise ValueError(f"{problems[0]}; restore the file as the run wrote it")
        if (now := split_hash(then_there, parts)) != (then := self.read_about()["split_hash"]):
            reason = "restore the file, or the patients of the data"
            raise ValueError(f"{self.split} has the hash {now}, but the run was started with {then}; {reason}")
        division: Division = [None] * len(data)
        for row, part in zip(rows, parts, strict=True):
            division[row] = part
        return division

    def read_parts(self) -> dict[str, int]:
        """How many patients are in each part, as `data.json` has them."""
        counts: dict[str, int] = json.loads(self.data.read_text(encoding="utf-8"))["patients_by_part"]
        return counts

    def write_json(self, path: Path, content: Mapping[str, Any]) -> None:
        """Write a JSON file."""
        with write_atomically(path) as file:
            file.write(json.dumps(content, indent=2) + "\n")

    def save_bundle(self, bundle: Bundle) -> None:
        """Write the model into a folder of another name, which takes its own when it is whole."""
        for left in self.path.glob(".bundle.*.tmp"):  # of a process that was killed
            _remove(left)
        unfinished = self.path / f".bundle.{os.getpid()}.tmp"
        bundle.save(unfinished)
        _remove(self.bundle)
        os.replace(unfinished, self.bundle)


def versions() -> dict[str, str]:
    """What the run was made with."""
    found = {
        "parsecaps": __version__,
        "python": platform.python_version(),
        "system": f"{sys.platform} {platform.machine()}",
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def write_history(path: Path, history: Sequence[Mapping[str, float]]) -> None:
    """One row per epoch; the file has all of them again each time, so it always fits the checkpoint."""
    with write_atomically(path) as file:
        writer = csv.DictWriter(file, list(history[0]), lineterminator="\n")
        writer.writeheader()
        for row in history:
            writer.writerow({name: f"{value:.9g}" for name, value in row.items()})


def draw_curves(path: Path, history: Sequence[Mapping[str, float]], best: int) -> None:
    """Loss and accuracy over the epochs as a PNG, with the chosen epoch marked."""
    from matplotlib.figure import Figure  # half a second, and a cache of fonts

    figure = Figure(figsize=(10, 4), layout="constrained")
    epochs = [row["epoch"] for row in history]
    for axes, lines in zip(
        figure.subplots(1, 2),
        (("train_loss", "val_loss"), ("train_accuracy", "val_accuracy", "val_balanced_accuracy")),
        strict=True,
    ):
        for name in lines:
            if name in history[0]:
                label = name.replace("val", "validation").replace("train", "training").replace("_", " ")
                axes.plot(epochs, [row[name] for row in history], marker="." if len(epochs) < 20 else "", label=label)
        axes.axvline(epochs[best], color="0.6", linestyle=":", label=f"chosen: epoch {epochs[best]:.0f}")
        axes.set(xlabel="epoch", ylabel=lines[0].rpartition("_")[2])
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    figure.savefig(unfinished, format="png", dpi=120)
    os.replace(unfinished, path)


def _remove(folder: Path) -> None:
    if folder.is_dir():
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
