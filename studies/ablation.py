"""What each of the paper's parts is worth (its Tab. 5 and Sec. 4.5), on drawn lesions (`studies/results.md`).

    python -m studies.ablation --out runs/ablation

Every variant is the demonstration with the parallel head and one thing changed: many images, each seen a few times, so
that a part that only slows learning down shows as much as one that limits it. One line of JSON per training, with the
scores of the test patients; no choice is made by them. A variant that has a run folder is not trained again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from parsecaps.config import Config, load_config
from parsecaps.metrics import Score
from studies.routings import PAPER_CELL, PLACE, SPARSE_ALONE
from studies.runs import train_or_resume

NETWORK: dict[str, dict[str, Any]] = {
    "without_content": PLACE,
    "without_place": {"locality": False},
    "without_axial": SPARSE_ALONE,
    "alpha_1": {"alpha": 1.0},
    "alpha_2": {"alpha": 2.0},
    "alpha_learned": {"learn_alpha": True},
    "one_head": {"heads": [1, 1, 1]},
    "paper_cell": PAPER_CELL,
}
LOSSES: dict[str, dict[str, Any]] = {
    "class_loss_alone": {"losses": {"presentation": 0.0, "triplet": 0.0}},
    "without_presentation": {"losses": {"presentation": 0.0}},
    "without_triplet": {"losses": {"triplet": 0.0}},
}
OTHER: dict[str, dict[str, Any]] = {
    "as_shipped": {},
    "plain_cnn": {"model": {"kind": "PlainCNN", "settings": {"stem_channels": [16, 32, 32, 32]}}},
    "bottleneck": {"model": {"head": "bottleneck"}},
    "adamw": {"training": {"optimizer": "adamw"}},
}
VARIANTS = [*OTHER, *NETWORK, *LOSSES]


def settings_of(variant: str) -> dict[str, Any]:
    """What the variant changes, by section."""
    if variant in NETWORK:
        return {"model": {"settings": NETWORK[variant]}}
    return {"training": LOSSES[variant]} if variant in LOSSES else OTHER[variant]


def changed(config: Config, variant: str) -> Config:
    """A configuration with what the variant changes."""
    for section, values in settings_of(variant).items():
        if variant in NETWORK:
            values = {"settings": config.model.settings | values["settings"]}
        config = config.change(section, **values)
    return config


def shipped() -> Config:
    """The demonstration with the parallel head and a rate for four epochs, for all that is compared here."""
    return load_config("demo").change("model", head="parallel").change("training", learning_rate=0.002)


def train_variant(variant: str, folder: Path, *, epochs: int, seed: int) -> dict[str, Any]:
    """Train, or read what was trained, and give a row of the table."""
    config = changed(shipped().change("training", epochs=epochs, seed=seed), variant)
    run = train_or_resume(config, folder)
    assert run.scores is not None
    row: dict[str, Any] = {"variant": variant, "seed": seed, "epochs": epochs, "n": run.scores.images}
    row["parameters"] = sum(p.numel() for p in run.model.network.parameters())
    row["accuracy"] = _with_interval(run.scores.overall["accuracy"], 100)
    row |= {name: _with_interval(run.scores.concepts[name], 1) for name in ("mean_auroc", "explanation_error_l2")}
    row["seconds"] = round(sum(each["seconds"] for each in run.history))
    return row


def _with_interval(score: Score, scale: float) -> list[float | None]:
    """Value, lower and upper end, None where not defined."""
    return [None if each is None else round(scale * each, 3) for each in (score.value, score.low, score.high)]


def main() -> None:
    """Train the variants in turn and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="only this one; may be repeated")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/ablation"))
    options = parser.parse_args()
    for variant in options.variant or VARIANTS:
        folder = options.out / f"{variant}-{options.epochs}-{options.seed}"
        print(json.dumps(train_variant(variant, folder, epochs=options.epochs, seed=options.seed)), flush=True)


if __name__ == "__main__":
    main()
