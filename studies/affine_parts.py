"""Which kind of affine change costs a network that has only seen digits moved about (`studies/results.md`).

    python -m studies.affine_parts RUN [RUN...]

Runs of `parsecaps train affnist-like:PATH`. The digits are those of the run's validation part, which come from the
training digits, so that nothing is learned about the test here; each kind of change is made alone, and all together.
One line of JSON per run, in percent.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from parsecaps.data.sources.affnist import change
from parsecaps.data.sources.mnist import image_file, read_idx
from parsecaps.run import Run

# the columns of the draws of `affnist.change` that each kind uses; the others stay in their middle, no change
KINDS: dict[str, tuple[int, ...]] = {
    "in the middle": (),
    "anywhere": (4, 5),
    "turned": (0,),
    "sheared": (1,),
    "scaled": (2, 3),
    "turned, sheared and scaled": (0, 1, 2, 3),
    "all": (0, 1, 2, 3, 4, 5),
}
_BATCH = 500


def changed(digits: Tensor, kind: str, seed: int = 0) -> Tensor:
    """Digits (n, 28, 28) uint8 under one kind of change: (n, 1, 40, 40) in [0, 1]."""
    drawn = np.random.default_rng(seed).random((len(digits), 6), dtype=np.float32)
    draws = np.full_like(drawn, 0.5)
    used = list(KINDS[kind])
    draws[:, used] = drawn[:, used]
    return change(digits, torch.from_numpy(draws)).unsqueeze(1).float() / 255


@torch.no_grad()
def accuracies(folder: Path) -> dict[str, float]:
    """The accuracy of a run on its validation digits under each kind of change, in percent."""
    run = Run(folder)
    data = run.data
    if data.source != "affnist-like":
        raise ValueError(f"{folder} was trained on {data.source}; give runs on affnist-like")
    rows = run.rows("val")
    frames = [data.cases[row].frame for row in rows]
    still = read_idx(image_file(data.root, "train"))
    first = len(data) - len(still)  # the training digits come after the versions of the test digits
    digits = torch.from_numpy(still[[frame - first for frame in frames if frame is not None]])
    label = torch.tensor([data.cases[row].label for row in rows])
    model = run.model.network.eval()
    found = {}
    for kind in KINDS:
        logits = torch.cat([model(part).logits for part in torch.split(changed(digits, kind), _BATCH)])
        found[kind] = round(100 * float((logits.argmax(1) == label).float().mean()), 2)
    return found


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    for run in parser.parse_args().runs:
        print(json.dumps({"run": str(run), **accuracies(run)}), flush=True)


if __name__ == "__main__":
    main()
