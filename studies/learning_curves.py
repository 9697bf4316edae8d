"""What weights to start from are worth: scores over the share of the training patients, from nothing and started.

    python -m studies.learning_curves train DATA --out runs/curves --set isic --share 25 --seed 0
    python -m studies.learning_curves train DATA --out runs/curves --set isic --share 25 --seed 0 --start TRUNK
    python -m studies.learning_curves train DATA --out runs/curves --set isic --share 25 --seed 0 --imagenet
    python -m studies.learning_curves table --out runs/curves

`DATA` is a folder with `isic`, `bus`, `lidc` and `cemri`. The test patients of a set are always the same: the official
test part of ISIC, fold 3 of CE-MRI, a fifth of the patients of BUS-BRA and of LIDC. The patients of a share are among
those of every larger one with the same seed. `TRUNK` must not have learned from the set; the leak check sees to it.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parsecaps.config import Config, load_settings
from parsecaps.data.cases import Case, DataSet
from parsecaps.data.sources import open_data
from parsecaps.data.splits import hold_out
from studies.few_images import Rows, write_manifest
from studies.runs import train_or_resume

RESULTS = "results.jsonl"
SHARES = (10, 25, 50, 100)
SETS = ("isic", "cemri", "bus", "lidc")
METRICS = ("macro_auroc", "accuracy", "balanced_accuracy", "mean_auroc")
_IMAGENET: dict[str, Any] = {
    "model.kind": "EfficientNetLite0",
    "model.start": "imagenet",
    "model.image_size": 160,
    "training.optimizer": "adamw",
    "training.learning_rate": 5e-4,
    "training.epochs": 15,
}


def open_set(folder: Path, name: str) -> tuple[DataSet, list[Case], list[Case]]:
    """A data set with its cases to train on, before any share is drawn, and those to test on."""
    data = open_data(folder / name if name == "cemri" else folder / name / "manifest.csv")
    cases = [case for case in data.cases if case.label >= 0]
    if name == "isic":
        test = [case for case in cases if case.split == "test"]
    elif name == "cemri":
        test = [case for case in cases if case.fold == 3]
    else:
        division = hold_out(data, val=0.0, test=0.2)
        test = [case for case, part in zip(data.cases, division, strict=True) if part == "test" and case.label >= 0]
    tested = {case.patient for case in test}
    return data, [case for case in cases if case.patient not in tested], test


def draw(train: Sequence[Case], share: int, seed: int) -> list[Case]:
    """The cases of a share of the patients, each class by itself so that none goes missing."""
    chosen: set[str] = set()
    for label in sorted({case.label for case in train}):
        patients = sorted({case.patient for case in train if case.label == label})
        order = np.random.default_rng([seed, label]).permutation(len(patients))
        chosen |= {patients[i] for i in order[: max(2, round(len(patients) * share / 100))]}
    return [case for case in train if case.patient in chosen]


def train(
    folder: Path,
    out: Path,
    name: str,
    share: int,
    seed: int,
    start: str | None = None,
    start_rate: float = 1.0,
    imagenet: bool = False,
) -> dict[str, Any]:
    """Train on a share, score it on the test patients, and add the line to the results."""
    out.mkdir(parents=True, exist_ok=True)
    manifest = out / f"{name}-{share}-{seed}.csv"
    if not manifest.is_file():
        data, cases, test = open_set(folder, name)
        rows: Rows = [(case, "train") for case in draw(cases, share, seed)] + [(case, "test") for case in test]
        write_manifest(manifest, data, rows, str)
    how = "imagenet" if imagenet else "nothing" if start is None else "trunk"
    changes = (
        _IMAGENET if imagenet else {} if start is None else {"model.start": start, "training.start_rate": start_rate}
    )
    config = load_settings(Config, values={"data.path": str(manifest), "training.seed": seed, **changes})
    run = train_or_resume(config, out / f"{how}-{name}-{share}-{seed}")
    assert run.scores is not None
    images = len(run.rows("train"))
    row = {"from": how, "set": name, "share": share, "seed": seed, "images": images, "seconds": run.about["seconds"]}
    row |= {metric: run.scores[metric].value for metric in METRICS if metric in run.scores.single}
    with open(out / RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    return row


def table(rows: Sequence[Mapping[str, Any]], metric: str = "macro_auroc") -> list[str]:
    r"""A line for each set and start with the mean over the seeds at each share, and the means over the sets.

    >>> point = {"set": "bus", "from": "nothing", "share": 25}
    >>> rows = [point | {"seed": 0, "macro_auroc": 0.7}, point | {"seed": 1, "macro_auroc": 0.8}]
    >>> print("\n".join(table(rows)))
    set    from      10 %   25 %   50 %   100 %
    bus    nothing   -      0.750  -      -
    mean   nothing   -      0.750  -      -
    """
    lines = [f"{'set':<6} {'from':<9} " + "".join(f"{f'{share} %':<7}" for share in SHARES).rstrip()]
    starts = list(dict.fromkeys(row["from"] for row in rows))
    sets = [name for name in SETS if any(row["set"] == name for row in rows)]
    means: dict[tuple[str, str, int], float] = {}
    for name in sets:
        for how in starts:
            for share in SHARES:
                values = [r[metric] for r in rows if (r["set"], r["from"], r["share"]) == (name, how, share)]
                if values:
                    means[name, how, share] = float(np.mean(values))
            lines.append(_line(name, how, [means.get((name, how, share)) for share in SHARES]))
    for how in starts:
        whole = [[means.get((name, how, share)) for name in sets] for share in SHARES]
        lines.append(_line("mean", how, [None if None in each else float(np.mean(each)) for each in whole]))  # type: ignore[arg-type]
    return lines


def _line(name: str, how: str, values: Sequence[float | None]) -> str:
    return f"{name:<6} {how:<9} " + "".join(f"{'-' if v is None else f'{v:.3f}':<7}" for v in values).rstrip()


def main() -> None:
    """Train one point of a curve, or print all that were trained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("data", type=Path)
    one.add_argument("--set", choices=SETS, required=True)
    one.add_argument("--share", type=int, choices=SHARES, required=True)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--start")
    one.add_argument("--start-rate", type=float, default=1.0)
    one.add_argument("--imagenet", action="store_true")
    for command in (one, commands.add_parser("table")):
        command.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "train":
        place = (options.data, options.out, options.set, options.share, options.seed)
        print(json.dumps(train(*place, options.start, options.start_rate, options.imagenet)))
    else:
        with open(options.out / RESULTS, encoding="utf-8") as file:
            print("\n".join(table([json.loads(line) for line in file])))


if __name__ == "__main__":
    main()
