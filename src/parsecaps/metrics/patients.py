"""Patients with several images: one answer to all of them, whose images are named wrongly, and answers to other views.

The answer to a patient is the class with the highest mean probability, as a reader of whole examinations goes by.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from parsecaps.metrics.metric import ScoredCases
from parsecaps.metrics.predictions import Predictions
from parsecaps.types import Grid

_LISTED = 10  # patients


class PatientAnswers(ScoredCases):
    """The labelled images of patients, and whether the answer to all images of the patient is right.

    Only the patients with a labelled image are resampled.

    Shapes:
        - right: (N,) bool; group: (N,) the patient of each image
        - first: (N,) bool, one image of each patient, which stands for all of them
    """

    def __init__(self, right: np.ndarray, group: np.ndarray) -> None:
        super().__init__(len(right))
        _, first, own = np.unique(group, return_index=True, return_inverse=True)
        self.of_patients(own)
        self.right, self.first = right, np.isin(np.arange(len(group)), first)

    @classmethod
    def of(cls, predictions: Predictions) -> "PatientAnswers | None":
        """Those of a model; None where no patient has several images, or some patient's are of several classes."""
        group, label = predictions.groups(), predictions.label
        rows = np.flatnonzero(label >= 0)
        one_class = len(set(zip(group[rows], label[rows], strict=True))) == len(set(group[rows]))
        if len(np.unique(group)) == len(group) or not len(rows) or not one_class:
            return None
        return cls((patient_probabilities(predictions).argmax(1) == label)[rows], group[rows])


class OtherViews(ScoredCases):
    """All images, and the share of changed views of each that get the answer of the image itself.

    Shapes:
        - consistency: (N,) in [0, 1]
    """

    def __init__(self, consistency: np.ndarray) -> None:
        super().__init__(len(consistency))
        self.consistency = consistency

    @classmethod
    def of(cls, predictions: Predictions) -> "OtherViews | None":
        if predictions.consistency is None:
            return None
        return cls(predictions.consistency).of_patients(predictions.groups())


def patient_probabilities(predictions: Predictions) -> np.ndarray:
    """The mean probabilities over all images of the patient of each image: (N, K), the same for all of a patient."""
    group, probabilities = predictions.groups(), predictions.probabilities()
    sums = np.zeros((group.max(initial=-1) + 1, probabilities.shape[1]))
    np.add.at(sums, group, probabilities)
    return np.asarray(sums[group] / sums[group].sum(1, keepdims=True))


@dataclass(frozen=True)
class PatientError:
    """A patient, their labelled images and how many are wrong; of those, the most frequent truth and answer."""

    patient: str
    images: int
    wrong: int
    truth: str
    named: str


@dataclass(frozen=True)
class PatientErrors:
    """How many images are wrong, of how many patients, the fewest who have `half` of them, and the ten `worst`."""

    wrong: int
    patients: int
    half: int
    worst: list[PatientError]

    def __str__(self) -> str:
        of_patients = f"their patients: {self.patients:,}; patients who have half of them: {self.half:,}"
        return f"wrong images: {self.wrong:,}; {of_patients}"

    def table(self, title: str = "") -> Grid:
        """The patients with the most errors; the title says how all errors are spread if it is left out."""
        rows = [(each.patient, each.truth, each.named, f"{each.wrong:,}", f"{each.images:,}") for each in self.worst]
        return Grid(title or str(self), ("patient", "truth", "named", "wrong", "images"), rows)


def patient_errors(predictions: Predictions, wrong: np.ndarray | None = None) -> PatientErrors | None:
    """Whose the errors are, or the images of a mask (N,); None where no patient has several labelled images."""
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
        worst.append(PatientError(patient, int(images[who]), int(errors[who]), truth, named))
    half = int(np.searchsorted(2 * sums, sums[-1])) + 1 if sums[-1] else 0
    return PatientErrors(int(sums[-1]), int((errors > 0).sum()), half, worst)
