"""Split conformal prediction sets: with a chosen risk, which classes cannot be ruled out, and when to abstain.

If validation and future patients are exchangeable, and the validation patients decided nothing else about the model,
the set of a new image holds its class with a probability of at least 1 - risk: on average over patients, not for each
kind of patient, and not among the answered images alone (`coverage` and `accuracy_answered` measure those). Here the
same patients also fit the temperature and may choose the epoch, so the risk is kept approximately
(`studies.coverage --sets` measures it).

Images of one patient are alike, so images are not exchangeable; patients are. Each patient has one vote, shared equally
by its images, and one more vote stands for the patient to come (Lee, Barber and Willett 2023, "Distribution-free
inference with hierarchical data"): the guarantee is for an image drawn from a new patient.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from parsecaps.metrics.metric import ScoredCases


class ConformalThreshold(NamedTuple):
    """The least probability of a class in the set; 0 makes every image abstain, for the reason in the `note`."""

    probability: float
    patients: int
    note: str | None = None


@dataclass(frozen=True)
class ConformalQuantiles:
    """What thresholds at every risk follow from: the probability of the truth in each calibration image.

    `probabilities` fall; `votes` are how many votes of patients stand behind the images so far.
    """

    probabilities: tuple[float, ...]
    votes: tuple[float, ...]
    patients: int

    def __post_init__(self) -> None:
        if not 0 <= self.patients <= len(self.probabilities) == len(self.votes):
            counts = f"{len(self.probabilities)} probabilities, {len(self.votes)} votes"
            raise ValueError(f"{counts} and {self.patients} patients do not fit together; give one of each per image")
        inside = all(0 <= each <= 1 for each in self.probabilities) and all(map(math.isfinite, self.votes))
        if not inside or any(one > other for one, other in pairwise(self.votes)):
            raise ValueError("probabilities are not from 0 to 1, or votes do not rise; fit the quantiles again")

    @classmethod
    def fit(
        cls, probabilities: np.ndarray, label: np.ndarray, patient: Sequence[str] | np.ndarray | None = None
    ) -> "ConformalQuantiles":
        """Sort the images of labelled calibration cases.

        Shapes:
            - probabilities: (N, K); label: (N,), -1 = unknown; patient: N, anything that tells patients apart, None
              where each image is a patient of its own (`Predictions.groups` gives both)
        """
        known = np.flatnonzero(label >= 0)
        of_truth = probabilities[known, label[known]]
        group = np.asarray(patient)[known] if patient is not None else known
        _, index, size = np.unique(group, return_inverse=True, return_counts=True)
        order = np.argsort(-of_truth, kind="stable")
        votes = np.cumsum(1 / size[index[order]])
        return cls(tuple(of_truth[order].tolist()), tuple(votes.tolist()), len(size))

    def threshold(self, risk: float) -> ConformalThreshold:
        """The highest threshold that keeps the risk."""
        if not 0 < risk < 1:
            raise ValueError(f"risk is {risk}; give a share between 0 and 1, such as 0.05")
        needed = (1 - risk) * (self.patients + 1) - 1e-9
        if self.patients < needed:
            least = math.ceil((1 - 1e-9) / risk) - 1
            few = f"{self.patients} patients are too few for a risk of {risk:g}"
            return ConformalThreshold(0.0, self.patients, f"{few}: every image abstains; calibrate on {least}")
        place = min(int(np.searchsorted(self.votes, needed)), len(self.votes) - 1)
        return ConformalThreshold(self.probabilities[place], self.patients)


def prediction_sets(probabilities: np.ndarray, threshold: float) -> np.ndarray:
    """The classes of each image that cannot be ruled out, always with the most probable one: (N, K) -> (N, K) bool.

    >>> prediction_sets(np.array([[0.9, 0.1], [0.6, 0.4]]), 0.3)
    array([[ True, False],
           [ True,  True]])
    >>> prediction_sets(np.array([[0.9, 0.1], [0.6, 0.4]]), 0.8)
    array([[ True, False],
           [ True, False]])
    """
    return np.asarray(probabilities >= np.minimum(threshold, probabilities.max(1, keepdims=True)))


@dataclass(frozen=True)
class Sets:
    """The classes that cannot be ruled out at a risk: (N, K) bool, in the order of the predictions; and notes."""

    inside: np.ndarray
    notes: list[str]


class LabelledSets(ScoredCases):
    """The prediction sets of the images with a known label; the model abstains from all that are not `single`.

    Shapes:
        - inside: (N, K) bool; label: (N,) all known
        - covers, single: (N,) bool, whether a set holds the truth, and has one class; size: (N,) its classes

    >>> sets = LabelledSets(np.array([[1, 0], [1, 1], [1, 0]]) == 1, np.array([0, 1, 1]))
    >>> sets.covers.tolist(), sets.single.tolist(), sets.size.tolist()
    ([True, True, False], [True, False, True], [1, 2, 1])
    """

    def __init__(self, inside: np.ndarray, label: np.ndarray) -> None:
        super().__init__(len(label))
        self.covers = inside[np.arange(len(label)), label]
        self.size = inside.sum(1)
        self.single = self.size == 1
