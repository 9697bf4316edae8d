"""The study behind the capsule cell: what each choice is worth on CE-MRI, by patient (`studies/cell.md`).

    python -m studies.cell_study DATA/cemri --variant tree --protocol select --set training.epochs=20

`select` trains on fold 1 and tests on fold 2, and the other way round: choices were made on these. `test` trains on
folds 1 and 2 and tests on fold 3, for what has been chosen. One run below `--out` and one line of JSON per training;
a run that is there is not trained again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from parsecaps.config import Config, load_config
from parsecaps.data.sources import open_data
from parsecaps.data.splits import write_split
from parsecaps.models import find_model
from parsecaps.run import Run
from parsecaps.training import Callbacks
from studies.cemri_slices import PROTOCOLS, crop_tumours, divide_by_fold
from studies.routes import KEPT, UNIFORM, measure_run, strongest_of
from studies.routings import PAPER_CELL, PLACE, SPARSE_ALONE
from studies.runs import QUIET, train_or_resume

VARIANTS: dict[str, dict[str, Any]] = {
    "tree": {},
    "prior_only": {"settings": PLACE},
    "no_prior": {"settings": {"locality": False}},
    "one_head": {"settings": {"heads": [1, 1, 1]}},
    "no_axial": {"settings": SPARSE_ALONE},
    "layer_norm": {"settings": {"normalisation": "layer"}},
    "quadratic_squash": {"settings": {"squash_form": "quadratic"}},
    "softmax": {"settings": {"alpha": 1.0}},
    "paper": {"settings": PAPER_CELL},
    "cnn": {"kind": "PlainCNN"},
    "resnet18": {"kind": "ResNet18"},
}
# those of studies/cell.md; lines of `--set` may change them
SETTINGS = (
    "model.preset=medical",
    "model.image_size=112",
    "model.num_concepts=0",
    "preparation.channels=1",
    "preparation.scaling=percentile",
    "augmentation.flip=true",
    "augmentation.rotation=15",
    "augmentation.colour=0",
    "augmentation.resampling=bilinear",
    "training.epochs=20",
    "training.batch_size=16",
    "training.class_balance=none",
    "training.mixup=0",
    "training.losses.consistency=0",
    "training.ema=0",
    "training.keep=last",
)


def variant_config(variant: str, settings: list[str]) -> Config:
    """The settings of a variant; what `--set` says of the network goes beside what the variant changes."""
    config = load_config(None, [*SETTINGS, *settings])
    changes = dict(VARIANTS[variant])
    plain = {"whole_values": False} if find_model(changes.get("kind", "ParseCaps")).has_capsules else {}
    changes["settings"] = {**plain, **config.model.settings, **changes.get("settings", {})}
    return config.change("model", **changes)


def train_split(
    config: Config,
    folder: Path,
    folds: tuple[set[int], set[int]],
    *,
    as_published: bool = False,
    around_tumour: bool = False,
    share: float = 1.0,
    callbacks: Callbacks = QUIET,
) -> Run:
    """Train on folds and test on others; a share of the training patients is seen in as many steps as all of them."""
    data, training = open_data(config.data.path), config.training
    assert training.epochs != "auto"
    division = divide_by_fold(
        data, train=folds[0], test=folds[1], as_published=as_published, share=share, seed=training.seed
    )
    if around_tumour:
        manifest = crop_tumours(data, folder.with_name(f"{folder.name}-tumours"))
        config = config.change("data", path=str(manifest)).change("preparation", scaling="range")
        data = open_data(manifest)
    split = folder.with_name(f"{folder.name}.csv")
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_split(split, data, division)
    # published folds have leaks, and tumours alone may look alike though they are of two patients
    config = config.change("data", split=str(split), allow_leaks=as_published or around_tumour)
    return train_or_resume(config.change("training", epochs=round(training.epochs / share)), folder, callbacks)


def row(run: Run) -> dict[str, Any]:
    """What a run measured, as a row of the study's tables."""
    scores = run.scores
    assert scores is not None
    model, trained = run.model.network, run.rows("train")
    found: dict[str, Any] = {
        "epochs": run.about["epochs"],
        "seed": run.config.training.seed,
        "patients": len({run.data.cases[i].patient for i in trained}),
        "slices": len(trained),
        "parameters": sum(p.numel() for p in model.parameters()),
        "n": scores.images,
        "train": round(100 * run.history[-1]["train_accuracy"], 2),
        "test": round(100 * (scores.overall["accuracy"].value or 0), 2),
        "seconds": round(run.about["seconds"]),
    }
    if model.has_capsules:
        routes = measure_run(run.folder)
        found["uniform"] = round(routes.accuracy(UNIFORM), 2)
        found |= {f"strongest_{count}": round(routes.accuracy(strongest_of(count)), 2) for count in KEPT}
    return found


def main() -> None:
    """Run one variant under one protocol, and print a line of JSON for each split."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--variant", choices=VARIANTS, default="tree")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="select")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as for parsecaps train")
    parser.add_argument(
        "--as-published", action="store_true", help="the folds as they are, with patients on both sides"
    )
    parser.add_argument(
        "--around-tumour", action="store_true", help="show the tumour alone, found by its true mask, for comparison"
    )
    parser.add_argument(
        "--patients", type=float, default=1.0, help="the share of the training patients to train on, in as many steps"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/cell_study"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = variant_config(options.variant, options.set).change("data", path=options.data)
    callbacks = Callbacks(log=lambda line: print("#", line, flush=True))
    asked = {"as_published": options.as_published, "around_tumour": options.around_tumour, "share": options.patients}
    for folds in PROTOCOLS[options.protocol]:
        tested = "-".join(map(str, sorted(folds[1])))
        changes = [f"{name}={value}" for name, value in asked.items() if value is True or value not in (False, 1.0)]
        name = "-".join([options.variant, f"test-{tested}", *changes, *sorted(options.set)]).replace("/", "-")
        run = train_split(config, options.out / name, folds, **asked, callbacks=callbacks)
        about = {"variant": options.variant, "set": options.set, "test_folds": sorted(folds[1]), **asked}
        print(json.dumps(about | row(run)), flush=True)


if __name__ == "__main__":
    main()
