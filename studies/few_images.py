"""Which settings suit few images? Small draws from five data sets, judged on unseen patients, at home and elsewhere.

    python -m studies.few_images train DATA --out runs/few --candidate auto --set isic --seed 0
    python -m studies.few_images table --out runs/few
    python -m studies.few_images routes --out runs/few --candidate bottleneck

`DATA` is a folder with `isic`, `ham`, `bus`, `lidc`, `cemri` and `wbcatt`. A set is drawn once, by its own seed, and
written as a manifest; every candidate is trained on the same images by `fit` and scored on the same patients. Home is
the test part of the same source, elsewhere another source or part. `table` has the mean AUROC of each candidate, and
what would have been chosen without each of the sets.
"""

import argparse
import csv
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parsecaps.audit.ablation import MEAN, OTHER, UNIFORM
from parsecaps.config import Config, load_settings
from parsecaps.data.cases import Case, DataSet
from parsecaps.data.sources import open_data
from parsecaps.evaluation import evaluate
from parsecaps.explain.context import TESTIMONY
from parsecaps.run import Run
from studies.routes import TWIN, measure_run, strongest_of
from studies.routings import PLACE
from studies.runs import train_or_resume

RESULTS = "results.jsonl"
_BEFORE: dict[str, Any] = {
    "model.settings.whole_values": False,
    "augmentation.rotation": 15.0,
    "augmentation.colour": 0.0,
    "augmentation.resampling": "bilinear",
    "training.mixup": 0.0,
    "training.losses.consistency": 0.0,
    "training.ema": 0.0,
    "training.epochs": 100,
    "training.keep": "best",
}
_STRONG: dict[str, Any] = {
    "augmentation.scale": 0.3,
    "augmentation.shear": 0.1,
    "augmentation.shift": 0.1,
    "augmentation.gamma": 0.4,
    "augmentation.contrast": 0.3,
    "augmentation.brightness": 0.1,
}
_IMAGENET: dict[str, Any] = {"model.kind": "EfficientNetLite0", "model.start": "imagenet"}
_TRUNK: dict[str, Any] = {"model.preset": "trunk"}
_LINEAR: dict[str, Any] = {"model.kind": "TrunkCNN", "model.preset": "medical"}
_BOTTLENECK: dict[str, Any] = {"model.head": "bottleneck"}
_PLACE = {f"model.settings.{name}": value for name, value in {**PLACE, "context": "none"}.items()}
# Each is what is changed of what is chosen by itself; `before` is what version 0.1 chose.
CANDIDATES: dict[str, dict[str, Any]] = {
    "auto": {},
    "before": _BEFORE,
    "colourless": {"augmentation.colour": 0.0},
    "unmixed": {"augmentation.colour": 0.0, "training.mixup": 0.0},
    "strong": _STRONG,
    "dropout": {"model.settings.dropout": 0.3},
    "long": {"training.epochs": 80},
    "imagenet": _IMAGENET,
    "linear": _LINEAR,
    "trunk": _TRUNK,
    "bottleneck": _TRUNK | _BOTTLENECK,
    "bottleneck-block": _TRUNK | _BOTTLENECK | {"model.settings.context_cells": 2},
    "bottleneck-all": _TRUNK | _BOTTLENECK | {"model.settings.context_cells": 7},
    "bottleneck-two": _TRUNK | _BOTTLENECK | {"model.settings.heads": [2, 2]},
    "bottleneck-tiles": _TRUNK | _BOTTLENECK | {"model.settings.context": "none"},
    "trunk-place": _TRUNK | _PLACE,
    "bottleneck-place": _TRUNK | _BOTTLENECK | _PLACE,
    "imagenet-adamw": _IMAGENET
    | {"training.optimizer": "adamw", "training.learning_rate": 5e-4, "training.epochs": 15, "model.image_size": 160},
}
_SIZES_BEFORE = {"isic": 128, "ham": 64, "bus": 128, "lidc": 64, "cemri": 224, "wbcatt": 128}  # by the shorter side
_TWINS = ("wbcatt",)  # sets in which one of the drawn test images looks the same as one to train on
_MOST_TESTED = 1500  # images of a test part: enough for an interval of two points
_SKIN = {"mel": "melanoma", "nv": "nevus", "melanoma": "melanoma", "nevus": "nevus"}

Rows = list[tuple[Case, str]]  # cases with their parts, train or test


class Drawn(NamedTuple):
    """What to train on, with its test part, and other images to be scored on, where there are any."""

    home: Rows
    elsewhere: Rows
    classes: Callable[[str], str | None]


def draw_isic(folder: Path) -> tuple[DataSet, DataSet | None, Drawn]:
    """350 images of the training part, nevus or melanoma; elsewhere is HAM10000."""
    data, other = open_data(folder / "isic" / "manifest.csv"), open_data(folder / "ham" / "manifest.csv")
    test = _of_part(data, "test", _SKIN)
    known = {case.patient for case in test}  # near-duplicates cross the official parts
    train = [case for case in _of_part(data, "train", _SKIN) if case.patient not in known]
    home = _some(train, 350, "train") + _some(test, None, "test")
    return data, other, Drawn(home, _some(_of_part(other, None, _SKIN), _MOST_TESTED, "test"), _SKIN.get)


def draw_ham(folder: Path) -> tuple[DataSet, DataSet | None, Drawn]:
    """350 images, nevus or melanoma; elsewhere is the test part of ISIC."""
    data, other = open_data(folder / "ham" / "manifest.csv"), open_data(folder / "isic" / "manifest.csv")
    home = _parted(_of_part(data, None, _SKIN), 350)
    return data, other, Drawn(home, _some(_of_part(other, "test", _SKIN), None, "test"), _SKIN.get)


def draw_bus(folder: Path) -> tuple[DataSet, DataSet | None, Drawn]:
    """400 images of breast ultrasound."""
    data = open_data(folder / "bus" / "manifest.csv")
    return data, None, Drawn(_parted(list(data.cases), 400), [], str)


def draw_lidc(folder: Path) -> tuple[DataSet, DataSet | None, Drawn]:
    """500 lung nodules that radiologists call benign or malignant."""
    data = open_data(folder / "lidc" / "manifest.csv")
    return data, None, Drawn(_parted([case for case in data.cases if case.label >= 0], 500), [], str)


def draw_cemri(folder: Path) -> tuple[DataSet, DataSet | None, Drawn]:
    """The author's fold 1 to train on, fold 2 to test on, without patients who are in both."""
    data = open_data(folder / "cemri")
    first, second = ([case for case in data.cases if case.fold == fold] for fold in (1, 2))
    tested = {case.patient for case in second}
    home = [(case, "train") for case in first if case.patient not in tested] + [(case, "test") for case in second]
    return data, None, Drawn(home, [], str)


def draw_wbcatt(folder: Path) -> tuple[DataSet, DataSet | None, Drawn]:
    """500 cells of the training part; elsewhere is the validation part."""
    data = open_data(folder / "wbcatt")
    home = _parted([case for case in data.cases if case.split == "train"], 500)
    elsewhere = [(case, "test") for case in data.cases if case.split == "val"]
    return data, data, Drawn(home, elsewhere, str)


SETS = {
    "isic": draw_isic,
    "ham": draw_ham,
    "bus": draw_bus,
    "lidc": draw_lidc,
    "cemri": draw_cemri,
    "wbcatt": draw_wbcatt,
}
HOME = ("isic", "bus", "lidc", "cemri", "wbcatt")  # the sets whose mean counts
ELSEWHERE = ("isic", "ham", "wbcatt")


def _of_part(data: DataSet, part: str | None, classes: Mapping[str, str]) -> list[Case]:
    """The cases of a part whose class counts."""
    return [
        case
        for case in data.cases
        if case.label >= 0 and data.classes[case.label] in classes and (part is None or case.split == part)
    ]


def _some(cases: Sequence[Case], number: int | None, part: str) -> Rows:
    """So many of the cases, patient by patient in an order that is always the same."""
    patients = sorted({case.patient for case in cases})
    rank = {patients[i]: place for place, i in enumerate(np.random.default_rng(0).permutation(len(patients)))}
    ordered = sorted(cases, key=lambda case: (rank[case.patient], str(case.image)))
    return [(case, part) for case in ordered[:number]]


def _parted(cases: Sequence[Case], number: int) -> Rows:
    """So many to train on, and others of other patients to test on."""
    ordered = [case for case, _ in _some(cases, None, "")]
    train = ordered[:number]
    known = {case.patient for case in train}
    test = [case for case in ordered[number:] if case.patient not in known]
    return [(case, "train") for case in train] + [(case, "test") for case in test[:_MOST_TESTED]]


def write_manifest(path: Path, data: DataSet, rows: Rows, classes: Callable[[str], str | None]) -> None:
    """The drawn cases as a manifest, with whole paths."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "patient", "split", "mask", *(f"concept:{name}" for name in data.concepts)])
        for case, part in rows:
            known = ["" if np.isnan(value) else int(value) for value in case.concepts]
            label = classes(data.classes[case.label])
            mask = "" if case.mask is None else case.mask.resolve()
            writer.writerow([case.image.resolve(), label, case.patient, part, mask, *known])


def train(
    folder: Path, out: Path, candidate: str, name: str, seed: int, start: str | None = None, start_rate: float = 1.0
) -> dict[str, Any]:
    """Train a candidate on a set, score it at home and elsewhere, and add the line to the results."""
    home, elsewhere = out / f"{name}.csv", out / f"{name}-elsewhere.csv"
    if not home.is_file():
        out.mkdir(parents=True, exist_ok=True)
        data, other, drawn = SETS[name](folder)
        if other is not None:
            write_manifest(elsewhere, other, drawn.elsewhere, drawn.classes)
        write_manifest(home, data, drawn.home, drawn.classes)
    changes = CANDIDATES[candidate]
    if candidate == "before":
        changes = changes | {"model.image_size": _SIZES_BEFORE[name]}
    if start is not None:
        changes = changes | {"model.start": start, "training.start_rate": start_rate}
        candidate += f"-started-{start_rate:g}"
    own = {"data.path": str(home), "training.seed": seed, "data.allow_leaks": name in _TWINS}
    config = load_settings(Config, values=changes | own)
    run = train_or_resume(config, out / f"{candidate}-{name}-{seed}")
    scores = {"home": run.scores}
    if elsewhere.is_file():
        scores["elsewhere"] = evaluate(run, data=str(elsewhere), resamples=0)
    row: dict[str, Any] = {"candidate": candidate, "set": name, "seed": seed, "seconds": run.about["seconds"]}
    for place, found in scores.items():
        assert found is not None
        for metric in ("macro_auroc", "accuracy", "balanced_accuracy", "mean_auroc"):
            if metric in found.single:
                row[f"{place}_{metric}"] = found[metric].value
    with open(out / RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return row


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    r"""The mean AUROC of each candidate over the sets, and the choice without each set.

    >>> rows = [{"candidate": c, "set": s, "home_macro_auroc": v} for c, s, v in
    ...         [("a", "isic", 0.8), ("a", "bus", 0.7), ("b", "isic", 0.7), ("b", "bus", 0.9)]]
    >>> print("\n".join(table(rows)))
    home       isic   bus    mean
    a          0.800  0.700  0.750
    b          0.700  0.900  0.800
    without isic: b
    without bus: a
    """
    lines: list[str] = []
    for place, sets in (("home", HOME), ("elsewhere", ELSEWHERE)):
        column = f"{place}_macro_auroc"
        there = [name for name in sets if any(row["set"] == name and row.get(column) is not None for row in rows)]
        if not there:
            continue
        lines.append(f"{place:<10} " + "".join(f"{name:<7}" for name in [*there, "mean"]).rstrip())
        means: dict[str, dict[str, float]] = {}
        for candidate in dict.fromkeys(row["candidate"] for row in rows):
            values = {
                name: [row[column] for row in rows if (row["candidate"], row["set"]) == (candidate, name)]
                for name in there
            }
            if all(values.values()):
                means[candidate] = {name: float(np.mean(each)) for name, each in values.items()}
                cells = [*means[candidate].values(), float(np.mean(list(means[candidate].values())))]
                lines.append(f"{candidate:<10} " + "".join(f"{value:<7.3f}" for value in cells).rstrip())
        for left_out in there if place == "home" and len(means) > 1 else ():
            best = max(means, key=lambda each: sum(v for name, v in means[each].items() if name != left_out))
            lines.append(f"without {left_out}: {best}")
    return lines


_ROUTES = (UNIFORM, OTHER, MEAN, strongest_of(1), TWIN, TESTIMONY)
_SHOWN = ("accuracy", "balanced_accuracy", "macro_auroc")


def routes(out: Path, candidate: str) -> list[str]:
    """What the couplings of a candidate's runs decide, run by run and in the mean over runs: see `studies.routes`.

    The scores of the network as it is, then its scores with other couplings, of its twin (the candidate that ends with
    `-place`) and of its own couplings over the evidence of the mean image.
    """
    heads = "  ".join(f"{name:<20.20}" for name in ("own", *_ROUTES))
    lines, found = [f"{'accuracy / balanced / AUROC':<30}{heads}"], []
    for name, seed in product(SETS, range(10)):
        folder, twin = (out / f"{each}-{name}-{seed}" for each in (candidate, f"{candidate}-place"))
        if Run(folder).scores is None:
            continue
        compared = measure_run(folder, None if Run(twin).scores is None else twin).compared
        rows = [[compared[UNIFORM].differences[metric].first for metric in _SHOWN]]
        for each in _ROUTES:
            there = compared[each].differences if each in compared else None
            rows.append([np.nan if there is None else there[metric].second for metric in _SHOWN])
        found.append(rows)
        lines.append(f"{folder.name:<30}" + "  ".join(map(_three, rows)))
    if found:
        lines.append(f"{'mean':<30}" + "  ".join(map(_three, np.nanmean(np.array(found, float), 0))))
    return lines


def _three(values: Sequence[float]) -> str:
    accuracy, balanced, auroc = values
    return f"{100 * accuracy:.1f} / {100 * balanced:.1f} / {auroc:.3f}".ljust(20)


def main() -> None:
    """Train one candidate on one set, or print the table of all that were trained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("data", type=Path)
    one.add_argument("--candidate", choices=CANDIDATES, default="auto")
    one.add_argument("--set", choices=SETS, required=True)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--start")
    one.add_argument("--start-rate", type=float, default=1.0)
    of_routes = commands.add_parser("routes")
    of_routes.add_argument("--candidate", choices=CANDIDATES, required=True)
    for command in (one, of_routes, commands.add_parser("table")):
        command.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "train":
        place = (options.data, options.out, options.candidate, options.set, options.seed)
        print(json.dumps(train(*place, options.start, options.start_rate)))
    elif options.command == "routes":
        print("\n".join(routes(options.out, options.candidate)))
    else:
        with open(options.out / RESULTS, encoding="utf-8") as file:
            print("\n".join(table([json.loads(line) for line in file])))


if __name__ == "__main__":
    main()
