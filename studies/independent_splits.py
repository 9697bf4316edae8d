"""What the leak check says of the protocol behind published figures on CE-MRI (`studies/leaks.md`).

    python -m studies.independent_splits DATA/cemri

Training and test images drawn from all slices by two independent random draws, as in the authors' release; one random
split of the slices, which keeps files apart but not patients; and a split by patient.
"""

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.cases import DataSet, Division
from parsecaps.data.leaks import Fingerprints, find_leaks, unsafe
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.data.splits import hold_out
from parsecaps.paper.leak import independent_draws, random_slices


def leaking_share(data: DataSet, prepared: PreparedImages, rows: Sequence[int], division: Division) -> dict[str, float]:
    """How many leaks of each kind there are, and how much of the test is also, or has its patient, in training."""
    chosen = data.subset(rows)
    prints = Fingerprints(*(np.asarray(part)[rows] for part in prepared.fingerprints))
    leaks = unsafe(find_leaks(chosen, division, [prepared.digests[i] for i in rows], prints), division)
    tested = [i for i, part in enumerate(division) if part == "test"]
    trained = {rows[i] for i, part in enumerate(division) if part == "train"}
    patients = {data.cases[i].patient for i in trained}
    return {
        **Counter(leak.kind for leak in leaks),
        "test images": len(tested),
        "test images also trained on, %": 100 * sum(rows[i] in trained for i in tested) / len(tested),
        "test images of trained patients, %": 100
        * sum(chosen.cases[i].patient in patients for i in tested)
        / len(tested),
    }


def main() -> None:
    """Print one line of JSON for each way to split."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--share", type=float, default=0.2, help="share of the slices, or patients, to test on")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = open_data(options.data)
    prepared = prepare_all(data, Preparation(size=112, channels=1))
    everything = list(range(len(data)))
    ways = {
        "two independent draws": independent_draws(len(data), options.share, options.seed),
        "one draw of slices": (everything, random_slices(len(data), options.share, options.seed)),
        "by patient": (everything, hold_out(data, val=0, test=options.share, seed=options.seed)),
    }
    for name, (rows, division) in ways.items():
        found = leaking_share(data, prepared, rows, division)
        print(json.dumps({"split": name, **{key: round(value, 1) for key, value in found.items()}}))


if __name__ == "__main__":
    main()
