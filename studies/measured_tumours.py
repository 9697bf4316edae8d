"""How far measures of the outlined tumour carry from patient to patient on CE-MRI (`studies/results.md`).

    python -m studies.measured_tumours DATA/cemri --protocol select

A comparison that no network on whole slices has: the tumour is outlined by hand in training and in test, and 29 numbers
measured of it (`tumour_measures`) are all that is known. They are so few that the classifier, kernel ridge regression,
is solved exactly, so that many draws of patients can be afforded. `select` and `test` are as in `cell_study`. One line
of JSON per split and share of the training patients.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import prepared_masks
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.data.splits import rows_of
from studies.cemri_slices import PROTOCOLS, divide_by_fold
from studies.tumour_measures import MEASURES, measure

_SHARES = (0.25, 0.5, 0.75, 1.0)
_COVERED = 0.5  # of a pixel, to be of the tumour
_RIDGE, _NARROWNESS, _FARTHEST = 0.1, 0.25, 4.0  # chosen by `select`


def kernel_ridge(known: np.ndarray, label: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """The class of each row, by ridge regression on the classes with a normal kernel over standardised columns.

    Shapes:
        - known: (n, K); label: (n,); asked: (m, K)
        - output: (m,)

    >>> known = np.array([[0.0, 1.0], [0.1, 1.2], [5.0, 0.0], [5.1, 0.2]])
    >>> kernel_ridge(known, np.array([0, 0, 1, 1]), np.array([[0.2, 1.1], [4.8, 0.1]]))
    array([0, 1])
    """
    mean, std = known.mean(0), known.std(0).clip(min=1e-9)
    first, second = (np.clip((x - mean) / std, -_FARTHEST, _FARTHEST) for x in (known, asked))
    targets = np.eye(label.max() + 1)[label]
    weights = np.linalg.solve(_kernel(first, first) + _RIDGE * np.eye(len(first)), targets - targets.mean(0))
    return np.asarray((_kernel(second, first) @ weights + targets.mean(0)).argmax(1))


def _kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    squares = (a**2).mean(1)[:, None] + (b**2).mean(1) - 2 * a @ b.T / a.shape[1]
    return np.asarray(np.exp(-_NARROWNESS * squares))


def main() -> None:
    """Measure every tumour once, then score each split and share of patients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--protocol", choices=PROTOCOLS, default="select")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--draws", type=int, default=20, help="of the patients, at each share below 1")
    options = parser.parse_args()
    data = open_data(options.data)
    preparation = Preparation(size=options.size, channels=1, scaling="percentile")
    images, masks = prepare_all(data, preparation).images, prepared_masks(data, preparation, range(len(data)))
    measures = np.stack([measure(image[0] / 255, mask > _COVERED) for image, mask in zip(images, masks, strict=True)])
    label = np.array([case.label for case in data.cases])
    for train_folds, test_folds in PROTOCOLS[options.protocol]:
        for share in _SHARES:
            right, meningioma = [], []
            for seed in range(options.draws if share < 1 else 1):
                division = divide_by_fold(data, train=train_folds, test=test_folds, share=share, seed=seed)
                rows, test = rows_of(division, "train"), rows_of(division, "test")
                named = kernel_ridge(measures[rows], label[rows], measures[test]) == label[test]
                right.append(100 * named.mean())
                meningioma.append(100 * named[label[test] == data.classes.index("meningioma")].mean())
            result = {
                "measures": len(MEASURES),
                "test_folds": sorted(test_folds),
                "share_of_patients": share,
                "draws": len(right),
                "n": len(test),
                "accuracy": round(float(np.mean(right)), 1),
                "standard_deviation": round(float(np.std(right)), 1),
                "meningioma_recall": round(float(np.mean(meningioma)), 1),
            }
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
