"""The scores themselves, of cases that count once each, by torchmetrics.

The same names and meanings as in `weighted`, which computes the scores of resamples. Where torchmetrics would put 0 for
a score that is not defined, here it is NaN.
"""

import numpy as np
import torch
from scipy.special import softmax

from parsecaps.metrics.calibration import NUM_BINS, brier, nll
from parsecaps.metrics.weighted import THRESHOLD, squared_distance

ROC_POINTS = 200


def class_scores(logits: np.ndarray, label: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of classification.

    Shapes:
        - logits: (N, K); label: (N,) all known
        - accuracy, ece, brier, nll: (); count, precision, recall, f1, specificity, auroc: (K,); confusion: (K, K),
          the truth in rows
    """
    from torchmetrics.functional.classification import binary_calibration_error, multiclass_confusion_matrix

    probabilities = softmax(logits, axis=1)
    num_classes = logits.shape[1]
    if not len(label):
        nothing, each = np.array(np.nan), np.full(num_classes, np.nan)
        single = dict.fromkeys(("accuracy", "ece", "brier", "nll"), nothing)
        several = dict.fromkeys(("precision", "recall", "f1", "specificity", "auroc"), each)
        return {**single, **several, "count": each * 0, "confusion": np.zeros((num_classes, num_classes), np.int64)}
    predicted, confidence = logits.argmax(1), probabilities.max(1)
    below_one = np.minimum(confidence, np.nextafter(1, 0))  # a confidence of exactly 1 would get a bin of its own
    right = torch.from_numpy((predicted == label).astype(np.int64))
    ece = binary_calibration_error(torch.from_numpy(below_one), right, n_bins=NUM_BINS, norm="l1")
    confusion = multiclass_confusion_matrix(torch.from_numpy(predicted), torch.from_numpy(label), num_classes)
    return {
        **_from_confusion(confusion.numpy()),
        "ece": np.array(ece.item()),
        "brier": brier(probabilities, label).mean(),
        "nll": nll(logits, label).mean(),
        "auroc": np.array([auroc(probabilities[:, k], label == k) for k in range(num_classes)]),
    }


def concept_scores(presence: np.ndarray, concepts: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of concepts; an unknown concept takes no part.

    Shapes:
        - presence: (N, m); concepts: (N, m), NaN = unknown
        - explanation_error_l2, explanation_error_l2_squared: (); count (of those present), auroc, f1: (m,)
    """
    known = ~np.isnan(concepts)
    squared = squared_distance(presence, concepts)[known.any(1)]
    columns = [(presence[rows, j], concepts[rows, j] == 1) for j, rows in enumerate(known.T)]
    return {
        "explanation_error_l2": np.sqrt(squared).mean() if len(squared) else np.array(np.nan),
        "explanation_error_l2_squared": squared.mean() if len(squared) else np.array(np.nan),
        "count": np.array([truth.sum() for _, truth in columns]),
        "auroc": np.array([auroc(seen, truth) for seen, truth in columns]),
        "f1": np.array([_f1(seen > THRESHOLD, truth) for seen, truth in columns]),
    }


def auroc(score: np.ndarray, positive: np.ndarray) -> float:
    """The area under the ROC curve; NaN where all cases are positive, or none: (N,) in [0, 1], (N,) bool."""
    from torchmetrics.functional.classification import binary_auroc

    if positive.all() or not positive.any():
        return float("nan")
    return float(binary_auroc(torch.from_numpy(score), torch.from_numpy(positive.astype(np.int64))))


def roc_curve(score: np.ndarray, positive: np.ndarray) -> list[tuple[float, float]] | None:
    """The corners of the ROC curve from (0, 0) to (1, 1), about 200 at most; None where AUROC is not defined."""
    from torchmetrics.functional.classification import binary_roc

    if positive.all() or not positive.any():
        return None
    false, true, _ = binary_roc(torch.from_numpy(score), torch.from_numpy(positive.astype(np.int64)))
    points = np.stack([false.double().numpy(), true.double().numpy()], axis=1)
    step = np.diff(points, axis=0)
    turns = np.abs(step[:-1, 0] * step[1:, 1] - step[:-1, 1] * step[1:, 0]) > 1e-12
    points = points[np.concatenate([[True], turns, [True]])]
    if len(points) > ROC_POINTS:
        points = points[np.linspace(0, len(points) - 1, ROC_POINTS).round().astype(int)]
    return [(round(x, 4), round(y, 4)) for x, y in points.tolist()]


def _from_confusion(confusion: np.ndarray) -> dict[str, np.ndarray]:
    """All that a confusion matrix tells, in double precision."""
    hits, count, named, total = confusion.diagonal(), confusion.sum(1), confusion.sum(0), confusion.sum()
    with np.errstate(invalid="ignore"):
        return {
            "confusion": confusion,
            "count": count,
            "accuracy": hits.sum() / total,
            "precision": hits / named,
            "recall": hits / count,
            "f1": 2 * hits / (count + named),
            "specificity": (total - count - named + hits) / (total - count),
        }


def _f1(seen: np.ndarray, truth: np.ndarray) -> float:
    from torchmetrics.functional.classification import binary_f1_score

    if not (seen | truth).any():
        return float("nan")
    return float(binary_f1_score(torch.from_numpy(seen.astype(np.int64)), torch.from_numpy(truth.astype(np.int64))))
