"""Do models that were trained alike find the same concepts? Concepts matched by how their presences go together."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

PERMUTATIONS = 200


@dataclass(frozen=True)
class Match:
    """The concepts of two models, paired so that the correlations of their presences sum to the most.

    `pairs` has a concept of the first, its partner in the second, and their correlation; `mean` is over them. `chance`
    is what the same matching finds among other patients, and `p_value` how often that is as much. `chances` are those
    of each concept of the first; `class_chances` where the other patients are of the same class, None without labels.
    """

    pairs: list[tuple[int, int, float]]
    mean: float
    chance: float
    p_value: float
    chances: list[float]
    class_chances: list[float] | None


@dataclass(frozen=True)
class Stability:
    """Every pair of models with means over them; the lists are for the first model's concepts, over the others."""

    matches: dict[tuple[int, int], Match]
    mean: float
    chance: float
    by_concept: list[float]
    chances: list[float]
    class_chances: list[float] | None

    def as_dict(self) -> dict[str, Any]:
        pairs = [
            {"runs": list(runs), "mean": match.mean, "chance": match.chance, "p_value": match.p_value}
            for runs, match in self.matches.items()
        ]
        return {"mean": self.mean, "chance": self.chance, "pairs_of_runs": pairs}

    def cells(self) -> list[str]:
        by_class = [f", {chance:.2f}" for chance in self.class_chances or ()] or [""] * len(self.chances)
        found = zip(self.by_concept, self.chances, by_class, strict=True)
        return [f"{again:.2f}\n({chance:.2f}{in_class})" for again, chance, in_class in found]


def concept_stability(
    presences: Sequence[np.ndarray],
    group: np.ndarray,
    label: np.ndarray | None = None,
    *,
    permutations: int = PERMUTATIONS,
) -> Stability:
    """Match the concepts of two or more models on the same cases.

    Shapes:
        - presences: for each model (N, m), the cases in the same order; group: (N,) the patient of each case
        - label: (N,) the class of each, -1 = unknown
    """
    if len(presences) < 2:
        raise ValueError(f"{len(presences)} model shows nothing about stability; give at least 2")
    counts = {len(each) for each in presences} | {len(group)}
    if len(counts) > 1:
        raise ValueError(f"the models saw {sorted(counts)} cases; let all of them look at the same")
    matches = {
        (a, b): match_concepts(presences[a], presences[b], group, label, permutations=permutations)
        for a, b in combinations(range(len(presences)), 2)
    }
    own = [match for (a, _), match in matches.items() if a == 0]
    found: list[list[float]] = [[] for _ in range(presences[0].shape[1])]
    for i, _, r in (pair for match in own for pair in match.pairs):
        found[i].append(r)
    in_class = [match.class_chances for match in own if match.class_chances is not None]
    return Stability(
        matches,
        float(np.mean([match.mean for match in matches.values()])),
        float(np.mean([match.chance for match in matches.values()])),
        [float(np.mean(each)) if each else 0.0 for each in found],
        np.mean([match.chances for match in own], axis=0).tolist(),
        np.mean(in_class, axis=0).tolist() if in_class else None,
    )


def match_concepts(
    first: np.ndarray,
    second: np.ndarray,
    group: np.ndarray,
    label: np.ndarray | None = None,
    permutations: int = PERMUTATIONS,
) -> Match:
    """Pair the concepts by the Hungarian algorithm; one that is present where the other is absent is not the same.

    Chance is measured: the patients of one model take each other's places, each with all of its cases, and the concepts
    are paired anew; with labels, also among the patients of the same class.

    Shapes:
        - first: (N, m); second: (N, m'), m and m' may differ; group: (N,); label: (N,), -1 = unknown
    """
    pairs = _pair(correlation(first, second))
    mean = float(np.mean([r for _, _, r in pairs]))
    drawn = _exchanged(first, second, group, np.zeros(len(group)), permutations)
    means = drawn.sum(1) / len(pairs)
    in_class = None
    if label is not None and (label >= 0).any():
        _, start, patient = np.unique(group, return_index=True, return_inverse=True)
        in_class = _exchanged(first, second, group, label[start][patient], permutations).mean(0).tolist()
    p_value = (int((means >= mean).sum()) + 1) / (permutations + 1)
    return Match(pairs, mean, float(means.mean()), p_value, drawn.mean(0).tolist(), in_class)


def correlation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Between the columns of both: (N, m), (N, m') -> (m, m'); 0 for a column that does not vary.

    >>> correlation(np.array([[0.0, 1], [1, 1]]), np.array([[1.0], [0]]))
    array([[-1.],
           [ 0.]])
    """
    standard = []
    for each in (first, second):
        centred = np.asarray(each, dtype=np.float64) - np.mean(each, axis=0, dtype=np.float64)
        spread = np.sqrt((centred**2).mean(0))
        standard.append(np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 1e-9))
    return np.asarray(np.clip(standard[0].T @ standard[1] / len(first), -1, 1))


def _exchanged(
    first: np.ndarray, second: np.ndarray, group: np.ndarray, label: np.ndarray, permutations: int
) -> np.ndarray:
    """The correlations of the first's concepts with their partners as patients of one label change places."""
    parts = [[np.flatnonzero(group == each) for each in np.unique(group[label == own])] for own in np.unique(label)]
    random = np.random.default_rng(0)
    as_they_are = np.concatenate([block for blocks in parts for block in blocks])
    drawn = np.zeros((permutations, first.shape[1]))
    for each in drawn:
        order = np.concatenate([blocks[i] for blocks in parts for i in random.permutation(len(blocks))])
        for i, _, r in _pair(correlation(first[as_they_are], second[order])):
            each[i] = r
    return drawn


def _pair(r: np.ndarray) -> list[tuple[int, int, float]]:
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(-r)
    return [(int(i), int(j), float(r[i, j])) for i, j in zip(rows, columns, strict=True)]
