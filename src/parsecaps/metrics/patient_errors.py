"""Whose images are named wrongly: errors that are spread over patients, or all of a few of them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parsecaps.prediction.predictions import Predictions

_LISTED = 10  # patients


@dataclass(frozen=True)
class MisreadPatient:
    """A patient, their labelled images and how many are wrong; of those, the most frequent truth and answer."""

    patient: str
    images: int
    wrong: int
    truth: str
    named: str


@dataclass(frozen=True)
class Misread:
    """How many images are wrong, of how many patients, and the fewest patients who have at least half of them.

    `worst` are the ten patients with the most, in falling order.
    """

    wrong: int
    patients: int
    half: int
    worst: list[MisreadPatient]

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Misread":
        """Read what `dataclasses.asdict` gave."""
        return cls(**{**stored, "worst": [MisreadPatient(**each) for each in stored["worst"]]})


def misread(predictions: Predictions, wrong: np.ndarray | None = None) -> Misread | None:
    """Who the errors are about, or the images of a mask (N,); None where no patient has several labelled images."""
    labelled = predictions.label >= 0
    answer = predictions.logits.argmax(1)
    wrong = labelled & (answer != predictions.label if wrong is None else wrong)
    group = predictions.groups()
    images, errors = (np.bincount(group[mask], minlength=group.max(initial=-1) + 1) for mask in (labelled, wrong))
    if images.max(initial=0) < 2:
        return None
    falling = np.argsort(-errors, kind="stable")
    sums = errors[falling].cumsum()
    worst = []
    for who in falling[:_LISTED]:
        rows = np.flatnonzero(wrong & (group == who))
        if not len(rows):
            break
        confused = zip(predictions.label[rows].tolist(), answer[rows].tolist(), strict=True)
        truth, named = (predictions.classes[k] for k in Counter(confused).most_common(1)[0][0])
        patient = predictions.patient[rows[0]] or predictions.name[rows[0]]
        worst.append(MisreadPatient(patient, int(images[who]), int(errors[who]), truth, named))
    half = int(np.searchsorted(2 * sums, sums[-1])) + 1 if sums[-1] else 0
    return Misread(int(sums[-1]), int((errors > 0).sum()), half, worst)
