"""The study behind the capsule cell: what each choice is worth on CE-MRI, by patient (`docs/study.md`).

    python -m studies.cell_study DATA/cemri --variant tree --protocol select --epochs 20

`select` trains on fold 1 and tests on fold 2, and the other way round: choices were made on these. `test` trains on
folds 1 and 2 and tests on fold 3, for what has been chosen. One line of JSON per training.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from parsecaps.data.augment import Augmentation
from parsecaps.models import ParseCaps, PlainCNN, PretrainedModel, ResNet18
from parsecaps.models.presets import PRESETS
from parsecaps.training.schedule import Schedule
from studies.cemri_slices import CLASSES, Slices, read_slices, split_by_fold
from studies.routes import route_scores
from studies.short_training import Split, accuracy, train

VARIANTS: dict[str, dict[str, Any]] = {
    "tree": {},
    "prior_only": {"content": False},
    "no_prior": {"locality": False},
    "one_head": {"heads": (1, 1, 1)},
    "no_axial": {"axial": False},
    "layer_norm": {"normalisation": "layer"},
    "quadratic_squash": {"squash_form": "quadratic"},
    "softmax": {"alpha": 1.0},
    "paper": PRESETS["medical-paper"],
}
PLAIN: dict[str, type[PretrainedModel]] = {"cnn": PlainCNN, "resnet18": ResNet18}
PROTOCOLS: dict[str, list[tuple[set[int], set[int]]]] = {
    "select": [({1}, {2}), ({2}, {1})],
    "test": [({1, 2}, {3})],
}


def build(variant: str, image_size: int, changes: dict[str, Any]) -> PretrainedModel:
    """The model of a variant, with further changes for trying something out."""
    if variant in PLAIN:
        return PLAIN[variant].from_config({"num_classes": len(CLASSES), "image_size": image_size, **changes})
    settings = {**VARIANTS[variant], "num_concepts": 0, "image_size": image_size, **changes}
    return ParseCaps.from_preset("medical", num_classes=len(CLASSES), **settings)


def some_patients(slices: Slices, rows: Tensor, share: float, seed: int) -> Tensor:
    """The rows of a share of their patients, drawn from each class alike, at least one."""
    if not 0 < share <= 1:
        raise ValueError(f"the share of patients is {share}; give a number above 0, up to 1")
    generator, kept = torch.Generator().manual_seed(seed), set[str]()
    for label in range(len(CLASSES)):
        patients = sorted({slices.patient[row] for row in rows.tolist() if slices.label[row] == label})
        drawn = torch.randperm(len(patients), generator=generator)[: max(1, round(share * len(patients)))]
        kept |= {patients[i] for i in drawn.tolist()}
    return torch.tensor([row for row in rows.tolist() if slices.patient[row] in kept])


def main() -> None:
    """Run one variant under one protocol and seed, and print a line of JSON for each split."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--variant", choices=[*PLAIN, *VARIANTS], default="tree")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="select")
    parser.add_argument("--direction", type=int, help="run only this split of the protocol")
    parser.add_argument(
        "--as-published", action="store_true", help="the folds as they are, with patients on both sides"
    )
    parser.add_argument(
        "--around-tumour", action="store_true", help="show the tumour alone, found by its true mask, for comparison"
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--patients", type=float, default=1.0, help="the share of the training patients to train on, in as many steps"
    )
    parser.add_argument("--optimizer", choices=["muon", "adamw"], default="muon")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--change", type=json.loads, default={}, help="further settings of the model, as JSON")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    slices = read_slices(options.data, options.size, around_tumour=options.around_tumour)
    for index, (train_folds, test_folds) in enumerate(PROTOCOLS[options.protocol]):
        if options.direction not in (None, index):
            continue
        train_rows, test_rows = split_by_fold(
            slices, train=train_folds, test=test_folds, as_published=options.as_published
        )
        train_rows = some_patients(slices, train_rows, options.patients, options.seed)
        split = Split(slices.image, slices.label, train_rows, test_rows)
        torch.manual_seed(options.seed)
        model = build(options.variant, options.size, options.change)
        start = time.perf_counter()
        trained = train(
            model,
            split,
            Schedule(epochs=round(options.epochs / options.patients), optimizer=options.optimizer),
            seed=options.seed,
            augmentation=Augmentation(),
            log=lambda line: print("#", line, flush=True),
        )
        result = {
            "variant": options.variant,
            "change": options.change,
            "protocol": options.protocol,
            "as_published": options.as_published,
            "around_tumour": options.around_tumour,
            "test_folds": sorted(test_folds),
            "optimizer": options.optimizer,
            "seed": options.seed,
            "epochs": options.epochs,
            "patients": len({slices.patient[row] for row in train_rows.tolist()}),
            "slices": len(train_rows),
            "parameters": sum(p.numel() for p in model.parameters()),
            "n": len(split.test),
            "train": round(trained, 2),
            "test": round(accuracy(model, split), 2),
            "seconds": round(time.perf_counter() - start),
        }
        if isinstance(model, ParseCaps):
            result |= {name: round(score, 2) for name, score in route_scores(model, split).items()}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
