"""Equal terms: one split file for all models of a table, and one configuration that differs in the model alone."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from parsecaps.config import Config
from parsecaps.data.cases import DataSet, Split
from parsecaps.data.sources import absolute
from parsecaps.data.splits import Division, divide, rows_of, write_split
from parsecaps.files.writing import make_private_folder, plain_name, write_text
from parsecaps.models import all_models, find_model
from parsecaps.paper.plan import Column, Scale, nearest
from parsecaps.training.build import build_network
from parsecaps.training.choose import LARGEST_DIGIT, look_at

BATCH = 16  # images of a step, for all models
CEMRI_FOLD = 3  # that is tested, of the author's five
# what is switched off for all: it was chosen for ParseCaps, and some losses of others have no use for it
_PLAIN = {"mixup": 0.0, "consistency_weight": 0.0, "diversity_weight": 0.0}


@dataclass(frozen=True)
class Cases:
    """A data set of a table with its split: the same for all models.

    `size` is that of the images where a model takes it. `division` is what the split file says.
    """

    name: str
    path: str
    data: DataSet
    division: Division
    split_file: Path
    size: int
    channels: int

    def rows(self, part: Split) -> list[int]:
        """The cases of a part."""
        return rows_of(self.division, part)

    def describe(self) -> str:
        """How many images of how many patients train and test."""

        def counted(part: Split) -> str:
            rows = self.rows(part)
            return f"{len(rows):,} images of {len({self.data.cases[row].patient for row in rows}):,} patients"

        validated = f", {counted('val')} validate" if self.rows("val") else ""
        return f"{self.name}: {counted('train')} train{validated}, {counted('test')} test"


def share_cases(
    folder: Path, path: str, data: DataSet, scale: Scale, *, name: str = "", division: Division | None = None
) -> Cases:
    """A data set with the split that all models of a table share, written once below the folder of the protocol.

    By patient: the official parts or the author's folds where there are such, else a fifth of the patients is tested.
    At a small budget some patients take no part.
    """
    if not len(data):
        raise ValueError(f"{path} has no case that could be used; see parsecaps data check {path}")
    name = name or data_name(data)
    if division is None:
        folds = {case.fold for case in data.cases}
        chosen: dict[str, Any] = {"test_fold": (CEMRI_FOLD,)} if CEMRI_FOLD in folds and len(folds) > 1 else {}
        divided = divide(data, val=0.15, test=0.2, seed=0, **chosen).division
        division = thin(data, divided, {"train": scale.train, "test": scale.test, "val": scale.test})
    make_private_folder(folder)
    file = (folder / f"split-{name}.csv").resolve()
    with FileLock(folder / ".split.lock", mode=0o600):
        _write_once(file, data, division)
    look = look_at(data, rows_of(division, "train"))
    size = max(28, min(scale.size, look.longer))
    return Cases(name, absolute(path), data, division, file, size, 3 if look.has_colour else 1)


def data_name(data: DataSet) -> str:
    """What to call a data set: its source, or its folder where anybody's data have that source."""
    place = data.root.parent if data.root.is_file() else data.root
    return data.source if data.source not in ("manifest", "folder") else plain_name(str(place)) or data.source


def _write_once(file: Path, data: DataSet, division: Division) -> None:
    """Write the split; where one is there already, it must be the same."""
    unfinished = file.with_name(f".{file.name}.new")
    write_split(unfinished, data, division, private=True)
    if file.is_file() and file.read_bytes() != unfinished.read_bytes():
        unfinished.unlink()
        raise ValueError(
            f"{file} divides other cases than this table would; choose another --out, or remove {file.parent}"
        )
    unfinished.replace(file)


def thin(data: DataSet, division: Division, most: Mapping[Split, int | None], seed: int = 0) -> Division:
    """A division with at most so many images in each part: some patients take no part, the classes in turn."""
    random = np.random.default_rng(seed)
    result: Division = list(division)
    for part, limit in most.items():
        rows = rows_of(division, part)
        if limit is None or len(rows) <= limit:
            continue
        by_patient: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            by_patient[data.cases[row].patient].append(row)
        patients = sorted(by_patient)
        random.shuffle(patients)
        turn: dict[str, int] = {}
        seen: dict[int, int] = defaultdict(int)
        for patient in patients:  # the k-th patient of a class comes in turn k
            label = data.cases[by_patient[patient][0]].label
            turn[patient] = seen[label]
            seen[label] += 1
        kept = 0
        for patient in sorted(patients, key=lambda each: turn[each]):
            own = by_patient[patient]
            if kept + len(own) <= limit:
                kept += len(own)
            elif kept:
                for row in own:
                    result[row] = None
            else:  # one patient alone is more than the limit
                for row in own[limit:]:
                    result[row] = None
                kept = limit
    return result


def configure(
    column: Column,
    cases: Cases,
    *,
    optimizer: Mapping[str, Any],
    epochs: int,
    seed: int,
    concepts: bool = False,
    batch: int = BATCH,
) -> Config:
    """The settings of a model on these cases: those of all, its own losses, and an optimizer."""
    if column.kind not in all_models():
        raise ValueError(f"there is no model {column.kind!r}; {nearest(column.kind, list(all_models()))}")
    kind = find_model(column.kind)
    if concepts and not cases.data.concepts:
        raise ValueError(
            f"{cases.path} names no concepts, which {column.name} is to be compared by; give data that do, as "
            "parsecaps data check shows"
        )
    settings = dict(column.settings)
    head = settings.pop("head", "parallel")
    size = min(cases.size, kind.largest_image)
    preset = column.preset or ("digits" if size <= LARGEST_DIGIT else "medical")
    named = len(cases.data.concepts) if concepts and kind.names_concepts else column.unnamed
    config = (
        Config()
        .change("data", path=cases.path, split=str(cases.split_file))
        .change(
            "model",
            kind=column.kind,
            preset=preset,
            image_size=size,
            head=head,
            num_concepts=named,
            settings=settings,
        )
        .change(
            "preparation", channels=cases.channels, scaling="percentile" if cases.data.source == "cemri" else "range"
        )
        .change(
            "training",
            **{
                **_PLAIN,
                **optimizer,
                "epochs": epochs,
                "batch_size": batch,
                "seed": seed,
                "keep": "last",
            },
            **{"class_balance": "none", "ema": 0.99, "patience": 0},
        )
    )
    return config.change("training", **column.training)


def check_builds(columns: Sequence[Column], configs: Sequence[Config], cases: Cases) -> None:
    """Build every model once: one that cannot take the size, or needs concepts, is refused before any trains."""
    for column, config in zip(columns, configs, strict=True):
        try:
            build_network(config, len(cases.data.classes))
        except (ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"{column.name} cannot be built for {cases.name}: {reason}") from None


def settle(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What was settled when a protocol began (epochs, seed), written once; whoever comes later goes by it."""
    make_private_folder(folder)
    file = folder / "plan.json"
    with FileLock(folder / ".plan.lock", mode=0o600):
        if not file.is_file():
            write_text(file, json.dumps(dict(wanted), indent=2) + "\n", private=True)
        stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    for name, value in wanted.items():
        if stored.get(name) != value:
            raise ValueError(f"{file} has {name}={stored.get(name)}, but {value} is wanted; choose another --out")
    return stored


def settled(folder: Path) -> dict[str, Any] | None:
    """The same, if it was settled before."""
    file = folder / "plan.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
