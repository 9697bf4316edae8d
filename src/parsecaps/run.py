"""A run: the folder that `parsecaps train` makes, and everything in it, each thing read once when it is asked for."""

import csv
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from parsecaps.config import Config, load_config
from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet, Division, Split
from parsecaps.data.leaks import FINGERPRINTS_FILE
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_all
from parsecaps.data.splits import case_key, read_split, rows_of, split_hash, split_keys
from parsecaps.files.untrusted import checked, read_document, shown
from parsecaps.files.writing import remove_files, unfinished_pattern, write_text
from parsecaps.metrics.scores import Scores
from parsecaps.model import FILES_PATTERN, Model
from parsecaps.types import ProgressCallback, silent

T = TypeVar("T")
CONTENT = "content"  # a column of `split.csv`
BEST_CHECKPOINT = r"best-[0-9]{4,}\.pt"  # what `Run.best_checkpoint` is called
_FILES = r"config\.yaml|(run|data|scores)\.json|(history|split)\.csv|curves\.png|scores\.html|fingerprints\.safetensors"
_AGAIN = "restore the file as the run wrote it"


class _Seeds(BaseModel):
    split: int
    training: int


@dataclass(frozen=True)
class Origin:
    """The weights that a run was started from.

    `images` counts the images they learned from, None without fingerprints; `taken` counts the numbers in `layers`, of
    all `parameters`; `adapted` layers were changed to fit, `new` ones initialised.
    """

    weights: str
    digest: str
    images: int | None
    taken: int
    parameters: int
    adapted: list[str]
    new: list[str]
    layers: list[str]


class _Started(BaseModel):
    """What `run.json` holds from the start, as far as anything rests on it."""

    versions: dict[str, str]
    seeds: _Seeds
    device: str
    split_hash: str
    choices: list[str]
    start: Origin | None = None


class _Finished(_Started):
    """What it holds of a trained run."""

    finished: str
    epochs: int
    best_epoch: int
    validation: dict[str, float]


class _Parts(BaseModel, Generic[T]):
    train: T
    val: T
    test: T


class _Known(BaseModel):
    present: int
    absent: int
    unknown: int


class _Data(BaseModel):
    """What `data.json` holds, as far as anything rests on it."""

    source: str
    concepts: list[str]
    images: int
    patients: int
    by_class: dict[str, _Parts[int]]
    patients_by_part: _Parts[int]
    by_concept: dict[str, _Parts[_Known]]
    notes: list[str]
    unused: dict[str, int]


class Run:
    """The folder of a run; a cross-validation has a run in each fold. Opening one computes nothing.

    `config.yaml` has every setting, `split.csv` the part of each case, `run.json` versions, seeds and results,
    `data.json` the check of the data, `history.csv` and `curves.png` the epochs, `logs` is for TensorBoard,
    `checkpoints` for resuming, `bundle` the model, `scores.json` and `scores.html` its scores.
    `fingerprints.safetensors` tells whether a picture was learned from; `known_cases` are remembered training cases.

    `is_main` is false in all processes but the first where several trained together: they print and write nothing.
    `failure` says why a finished run could not be scored.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        device: str = "cpu",
        reading: ProgressCallback = silent,
        is_main: bool = True,
        failure: str = "",
    ) -> None:
        self.folder = Path(folder)
        self.device, self.reading = device, reading
        self.is_main, self.failure = is_main, failure
        self.config_file = self.folder / "config.yaml"
        self.split_file = self.folder / "split.csv"
        self.about_file = self.folder / "run.json"
        self.data_file = self.folder / "data.json"
        self.history_file = self.folder / "history.csv"
        self.curves_file = self.folder / "curves.png"
        self.scores_file = self.folder / "scores.json"
        self.page_file = self.folder / "scores.html"
        self.log_folder = self.folder / "logs"
        self.bundle_folder = self.folder / "bundle"
        self.card_file = self.bundle_folder / "README.md"
        self.fingerprints_file = self.folder / FINGERPRINTS_FILE
        self.known_cases_folder = self.folder / "known_cases"
        self.checkpoint_folder = self.folder / "checkpoints"
        self.last_checkpoint = self.checkpoint_folder / "last.pt"

    @classmethod
    def around(cls, folder: str | Path) -> "Run | None":
        """The run whose model lies in a folder; None for a model that was given away or saved on its own."""
        place = Path(folder)
        if place.name != "bundle":  # such as `.`
            place = Path(os.path.abspath(place))
        run = cls(place.parent)
        return run if run.bundle_folder == place and run.is_there else None

    def __fspath__(self) -> str:
        return str(self.folder)

    def best_checkpoint(self, epoch: int) -> Path:
        """The file with the weights after an epoch, counted from 1, that was the best so far."""
        return self.checkpoint_folder / f"best-{epoch:04}.pt"

    @property
    def is_there(self) -> bool:
        """Whether the folder holds a run."""
        return self.config_file.is_file()

    @property
    def is_trained(self) -> bool:
        """Whether the folder holds a trained model."""
        return self.bundle_folder.is_dir()

    @cached_property
    def config(self) -> Config:
        """The settings, with no `auto` left."""
        if not self.is_there:
            raise FileNotFoundError(f"{self.config_file} is missing; give the folder of a run of parsecaps train")
        return load_config(self.config_file)

    @property
    def about(self) -> dict[str, Any]:
        """Versions, seeds, choices and results."""
        return _read_json(self.about_file, _Finished if self.is_trained else _Started)

    @property
    def data_check(self) -> dict[str, Any]:
        """What the check of the data found before training."""
        return _read_json(self.data_file, _Data)

    @property
    def history(self) -> list[dict[str, float]]:
        """A row for each epoch."""
        if not self.history_file.is_file():
            raise FileNotFoundError(f"{self.history_file} is missing; {_AGAIN}")
        try:
            with open(self.history_file, encoding="utf-8", newline="") as file:
                rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
        except (TypeError, ValueError, csv.Error) as error:
            raise ValueError(f"{self.history_file} is not a table of numbers ({error}); {_AGAIN}") from None
        needed = {"epoch", "train_loss", "train_accuracy"}
        if not rows or not needed <= rows[0].keys() or (self.is_trained and not 1 <= self.best_epoch <= len(rows)):
            raise ValueError(f"{self.history_file} lacks epochs or their losses; {_AGAIN}")
        return rows

    @property
    def origin(self) -> Origin | None:
        """The weights that the run was started from; None for new ones."""
        stored = self.about.get("start")
        return None if stored is None else checked(Origin, stored, self.about_file, _AGAIN)

    @property
    def threads(self) -> int:
        """How many threads the run was trained with."""
        return int(self.about["threads"])

    @property
    def best_epoch(self) -> int:
        """The number of the epoch that was kept, from 1."""
        return int(self.about["best_epoch"])

    @property
    def folds(self) -> "list[Run]":
        """The runs of a cross-validation, one for each fold; none for a run of its own."""
        section = self.config.data
        return [self.fold(i + 1) for i in range(section.folds)] if section.fold is None else []

    def fold(self, number: int) -> "Run":
        """The run of a fold, counted from 1."""
        return Run(self.folder / f"fold-{number}", device=self.device, reading=self.reading)

    @cached_property
    def data(self) -> DataSet:
        """The cases, whatever part they are in."""
        try:
            return open_all(self.config.data)
        except (OSError, ValueError) as error:
            kind = FileNotFoundError if isinstance(error, OSError) else ValueError
            raise kind(f"{error}; put the data back, or set data.path in {self.config_file}") from None

    @cached_property
    def division(self) -> Division:
        """The part of each case; refused where a case is gone or another patient's. Newer cases take no part."""
        data, named = self.data, split_keys(self.split_file)
        keys = [case_key(data, case) for case in data.cases]
        rows = [i for i, key in enumerate(keys) if key in named]
        if gone := named.difference(keys):
            name, frame = min(gone, key=str)
            what = name if frame is None else f"{name}#{frame}"
            raise ValueError(f"{what} of the run {self.folder} is not in {data.root} any more; put it back")
        then_there = data.subset(rows)
        parts, problems = read_split(self.split_file, then_there)
        if problems:
            raise ValueError(f"{problems[0]}; {_AGAIN}")
        if (now := split_hash(then_there, parts)) != (then := self.about["split_hash"]):
            reason = f"has the hash {now}, but the run was started with {shown(then)}"
            raise ValueError(f"{self.split_file} {reason}; restore the file, or the patients of the data")
        part_of = dict(zip(rows, parts, strict=True))
        return [part_of.get(row) for row in range(len(data))]

    def rows(self, part: Split) -> list[int]:
        """The cases of a part, as rows of the data."""
        return rows_of(self.division, part)

    def cases(self, part: Split) -> CaseSet:
        """The cases of a part whose images can be read, with their prepared images."""
        return CaseSet(self.data, self.prepared, self.rows(part))

    @cached_property
    def prepared(self) -> PreparedImages:
        """The images of all cases, prepared."""
        skip_bad = self.config.data.skip_bad
        return prepare_all(self.data, preparation_of(self.config), skip_bad=skip_bad, progress=self.reading)

    @cached_property
    def model(self) -> Model:
        """The trained model with all that prediction needs: names, preparation, temperature, conformal quantiles."""
        if not self.is_trained:
            _ = self.config  # a folder that is no run says so
            more = f"go on with parsecaps train --resume {self.folder}"
            raise FileNotFoundError(f"{self.bundle_folder} is missing: the run is not finished; {more}")
        model = Model.load(self.bundle_folder, self.device)
        vars(model)["run"] = self  # which it would look for
        return model

    @property
    def scores(self) -> Scores | None:
        """How good the model is on patients it never saw; None where it has not been scored."""
        if not self.scores_file.is_file():
            return None
        try:
            return Scores.from_dict(_read_json(self.scores_file))
        except ValueError as error:
            raise ValueError(f"{self.scores_file}: {error}; parsecaps evaluate {self.folder} writes it anew") from None

    def remove_unfinished(self) -> None:
        """Remove the unfinished files of a killed process, while no other process trains in the folder."""
        remove_files(self.folder, unfinished_pattern(_FILES))
        remove_files(self.checkpoint_folder, unfinished_pattern(rf"last\.pt|{BEST_CHECKPOINT}"))
        remove_files(self.bundle_folder, unfinished_pattern(FILES_PATTERN))
        for path in self.folder.glob(".bundle.*.tmp"):
            if path.name.split(".")[2].isdecimal() and path.is_dir() and not path.is_symlink():
                remove_files(path, f"{FILES_PATTERN}|{unfinished_pattern(FILES_PATTERN)}")
                if left := sorted(path.iterdir()):
                    raise ValueError(f"{left[0]} is not of this run; move it away")
                path.rmdir()

    def write_json(self, path: Path, content: Mapping[str, Any]) -> None:
        """Write a private JSON file of the run."""
        self.write_text(path, json.dumps(content, indent=2) + "\n")

    def write_text(self, path: Path, text: str) -> None:
        """Write a private file of the run."""
        write_text(path, text, private=True)

    def __repr__(self) -> str:
        return "\n".join([self._headline, repr(self.scores) if self.scores else self._not_scored])

    def _repr_html_(self) -> str:
        scores = self.scores
        return f"<p>{escape(self._headline)}</p>" + (scores._repr_html_() if scores else escape(self._not_scored))

    @property
    def _headline(self) -> str:
        if not self.is_there:
            return f"run {self.folder}, not started"
        if folds := self.folds:
            return f"cross-validation {self.folder}, {len(folds)} folds"
        if not self.is_trained:
            return f"run {self.folder}, not finished"
        return f"run {self.folder}: epoch {self.best_epoch} of {self.about['epochs']} chosen"

    @property
    def _not_scored(self) -> str:
        reason = "there is neither a test nor a validation part"
        if self.is_there and self.config.data.also:
            reason = f"each data set has its own head; {self.card_file} says how good they are"
        return f"not scored: {self.failure or reason}"


def preparation_of(config: Config) -> Preparation:
    """How images are prepared for a configuration without `auto`."""
    size, how = config.model.image_size, config.preparation
    if size == "auto" or how.channels == "auto":
        raise ValueError(f"model.image_size or preparation.channels is auto in config.yaml; {_AGAIN}")
    return Preparation(size, how.channels, how.square, how.scaling, how.centre)


def _read_json(path: Path, kind: type = dict) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; give the folder of a run of parsecaps train")
    content = read_document(path, _AGAIN)
    checked(kind, content, path, _AGAIN)
    return content
