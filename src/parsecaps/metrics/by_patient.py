"""One answer for each patient, from all of their images: what a reader of whole examinations goes by."""

import numpy as np

from parsecaps.metrics.means import means
from parsecaps.metrics.score import Score
from parsecaps.prediction.predictions import Predictions


def joint_probabilities(predictions: Predictions) -> np.ndarray:
    """The mean probabilities over all images of the patient of each image: (N, K), the same for all of a patient."""
    group, probabilities = predictions.groups(), predictions.probabilities()
    sums = np.zeros((group.max(initial=-1) + 1, probabilities.shape[1]))
    np.add.at(sums, group, probabilities)
    return np.asarray(sums[group] / sums[group].sum(1, keepdims=True))


def scores_by_patient(predictions: Predictions, *, resamples: int = 1000, seed: int = 0) -> dict[str, Score]:
    """How often the answer to all images of a patient together is right.

    `patient_accuracy` counts each patient once, `pooled_accuracy` each labelled image. Empty where no patient has
    several images, and where the images of some patient have several classes: there, one answer cannot be right.
    """
    group, label = predictions.groups(), predictions.label
    rows = np.flatnonzero(label >= 0)
    who, first = np.unique(group[rows], return_index=True)
    of_patient = np.full(group.max(initial=-1) + 1, -1)
    of_patient[who] = label[rows][first]
    if len(np.unique(group)) == len(group) or not len(rows) or (of_patient[group[rows]] != label[rows]).any():
        return {}
    right = (joint_probabilities(predictions).argmax(1) == label).astype(float)[rows]
    each, of_images = right[first, None], right[:, None]
    (patients,) = means(each, np.arange(len(each)), resamples=resamples, seed=seed).scores()
    (images,) = means(of_images, group[rows], resamples=resamples, seed=seed).scores()
    return {"patient_accuracy": patients, "pooled_accuracy": images}
