import numpy as np
import pytest

from parsecaps.explain.case_memory import prototypes, similar
from tests.explain.make import make_memory


def one_per_patient(rows: list[int], patient: list[str], count: int) -> list[int]:
    kept, seen = [], set()
    for row in rows:
        if not patient[row] or patient[row] not in seen:
            kept.append(row)
            seen.add(patient[row])
    return kept[:count]


PATIENTS = ["a", "a", "b", "", "b", "c", "", "a", "c", "d"] * 3


def presences() -> np.ndarray:
    return np.round(np.random.default_rng(0).random((30, 3)), 1)  # with ties


@pytest.mark.parametrize("concept", [0, 2])
@pytest.mark.parametrize("count", [1, 6, 100])
def test_prototypes_are_the_strongest_one_per_patient(concept: int, count: int) -> None:
    memory = make_memory(presences(), patient=PATIENTS)
    found = prototypes(memory, concept, count)
    ordered = sorted(range(30), key=lambda row: (-presences()[row, concept], row))
    assert [each.case.row for each in found] == one_per_patient(ordered, PATIENTS, count)
    assert [each.presence for each in found] == [presences()[each.case.row, concept] for each in found]


def test_a_prototype_says_what_is_true_and_what_was_said() -> None:
    truth = np.array([[1.0, np.nan], [0.0, 1.0]])
    memory = make_memory(np.array([[0.8, 0.1], [0.3, 0.9]]), truth=truth, label=np.array([2, -1]), patient=["x", "y"])
    first, second = prototypes(memory, 0)
    assert (first.truth, second.truth, prototypes(memory, 1)[1].truth) == (True, False, None)
    assert (first.case.label, second.case.label) == ("pituitary", None)
    assert (first.case.name, first.case.patient) == ("image 0", "x")
    chances = np.exp(memory.predictions.logits[0]) / np.exp(memory.predictions.logits[0]).sum()
    assert first.case.diagnosis == memory.predictions.classes[int(chances.argmax())]
    assert first.case.probability == pytest.approx(chances.max())


@pytest.mark.parametrize("count", [1, 4, 100])
def test_similar_cases_are_the_nearest_one_per_patient(count: int) -> None:
    memory = make_memory(presences(), patient=PATIENTS)
    image = np.random.default_rng(1).normal(size=(3, 4)) / 4
    apart = [np.sqrt(np.mean(((case.astype(float) - image) ** 2).sum(-1))) for case in memory.capsules]
    ordered = sorted(range(30), key=lambda row: (apart[row], row))
    found = similar(memory, image, count)
    assert [each.case.row for each in found] == one_per_patient(ordered, PATIENTS, count)
    assert [each.distance for each in found] == pytest.approx([apart[each.case.row] for each in found], abs=1e-6)


def test_an_image_that_is_known_is_nearest_to_itself() -> None:
    memory = make_memory(presences(), patient=PATIENTS)
    for row in (0, 17):
        (nearest,) = similar(memory, memory.capsules[row], 1)
        assert (nearest.case.row, nearest.distance) == (row, 0)


def test_what_does_not_fit_is_refused() -> None:
    memory = make_memory(presences())
    with pytest.raises(ValueError, match="concept 3 is not among the 3"):
        prototypes(memory, 3)
    with pytest.raises(ValueError, match="ask for at least 1"):
        prototypes(memory, 0, 0)
    with pytest.raises(ValueError, match=r"are \(2, 4\); \(3, 4\) are remembered"):
        similar(memory, np.zeros((2, 4)))
