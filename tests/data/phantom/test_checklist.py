"""Cases before they are drawn: the rule of the diagnosis, patients, the prior, noise, and forced concepts."""

import time
from itertools import product

import numpy as np
import pytest

from parsecaps.data.phantom import CLASSES, CONCEPTS, case_table, diagnose, score
from parsecaps.data.phantom.canvas import Randomness
from parsecaps.data.phantom.checklist import EXCLUSIVE, PRIOR, draw_cases
from tests.messages import refused

MANY = 20_000
GOLDEN_PATIENTS = [0, 0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 4]
GOLDEN_CONCEPTS = [38, 82, 41, 80, 0, 34, 72, 2, 69, 86, 73, 81]  # as binary numbers, the first concept the lowest bit


def test_names_and_order() -> None:
    assert CLASSES == ("nevus", "melanoma")
    assert CONCEPTS == (
        "typical pigment network",
        "atypical pigment network",
        "blue-whitish veil",
        "regular streaks",
        "irregular streaks",
        "regular dots and globules",
        "irregular dots and globules",
    )


def test_rule_for_every_combination() -> None:
    for flags in product((0, 1), repeat=7):
        _, atypical, veil, _, streaks, _, dots = flags
        majors, minors = atypical + veil, streaks + dots
        melanoma = majors == 2 or (majors == 1 and minors >= 1)
        row = np.array(flags, np.float32)
        assert diagnose(row) == melanoma
        assert score(row) == 2 * majors + minors


def test_prior_is_met_and_concepts_are_independent_but_for_exclusion() -> None:
    table = case_table(MANY)
    rates = table.concepts.mean(0)
    np.testing.assert_allclose(rates, [PRIOR[name] for name in CONCEPTS], atol=0.015)
    assert ((rates > 0.15) & (rates < 0.45)).all()
    assert 0.3 < table.label.mean() < 0.5
    correlation = np.corrcoef(table.concepts.T)
    pairs = {(CONCEPTS.index(a), CONCEPTS.index(b)) for a, b in EXCLUSIVE}
    for i in range(7):
        for j in range(i + 1, 7):
            if (i, j) in pairs:
                assert not (table.concepts[:, i] * table.concepts[:, j]).any()
            else:
                assert abs(correlation[i, j]) < 0.03
    np.testing.assert_array_equal(table.label, diagnose(table.concepts))


def test_patients_have_one_to_four_images_in_a_row() -> None:
    patient = case_table(MANY).patient
    assert (np.diff(patient) >= 0).all()
    names, counts = np.unique(patient, return_counts=True)
    np.testing.assert_array_equal(names, np.arange(MANY // 10 * 4))
    np.testing.assert_array_equal(np.unique(counts, return_counts=True), [[1, 2, 3, 4], [MANY // 10] * 4])
    assert len({tuple(counts[i : i + 4]) for i in range(0, 400, 4)}) > 15  # of 24 orders


def test_values_do_not_drift() -> None:
    """A data set that somebody trained on must be the same after an update."""
    table = case_table(12, seed=3)
    assert table.patient.tolist() == GOLDEN_PATIENTS
    assert (table.concepts @ 2 ** np.arange(7)).astype(int).tolist() == GOLDEN_CONCEPTS


def test_seeds_differ() -> None:
    assert (case_table(500, seed=1).concepts != case_table(500, seed=2).concepts).any(1).mean() > 0.5


def test_a_longer_table_begins_with_the_shorter_and_any_rows_can_be_had() -> None:
    long, short = case_table(300, seed=5), case_table(40, seed=5)
    rows = np.array([299, 3, 41, 3])
    some = draw_cases(rows, seed=5, concept_noise=0, label_noise=0, force=None)
    for whole, part, chosen in zip(long, short, some, strict=True):
        np.testing.assert_array_equal(whole[:40], part)
        np.testing.assert_array_equal(whole[rows], chosen)


def test_noise_flips_the_stated_share_and_keeps_the_truth() -> None:
    clean, noisy = case_table(MANY), case_table(MANY, concept_noise=0.1, label_noise=0.2)
    np.testing.assert_array_equal(noisy.true_concepts, clean.concepts)
    np.testing.assert_array_equal(noisy.true_label, clean.label)
    assert abs((noisy.label != clean.label).mean() - 0.2) < 0.01
    wrong = (noisy.concepts != clean.concepts).mean(0)
    np.testing.assert_allclose(wrong, 0.1, atol=0.01)
    assert set(np.unique(noisy.concepts)) == {0.0, 1.0}
    assert set(np.unique(noisy.label)) == {0, 1}
    more = case_table(MANY, concept_noise=0.3)  # what was wrong stays wrong
    assert ((more.concepts != clean.concepts) >= (noisy.concepts != clean.concepts)).all()
    np.testing.assert_array_equal(case_table(9, concept_noise=1, label_noise=1).label, 1 - clean.label[:9])


def test_forcing_a_concept_changes_it_its_opposite_and_the_diagnosis_alone() -> None:
    indices = np.arange(400)
    asis = case_table(400)
    forced = draw_cases(indices, seed=0, concept_noise=0, label_noise=0, force={"irregular streaks": True})
    expected = asis.concepts.copy()
    expected[:, 3], expected[:, 4] = 0, 1
    np.testing.assert_array_equal(forced.concepts, expected)
    np.testing.assert_array_equal(forced.label, diagnose(expected))
    np.testing.assert_array_equal(forced.patient, asis.patient)
    off = draw_cases(indices, seed=0, concept_noise=0, label_noise=0, force={"irregular streaks": False})
    np.testing.assert_array_equal(off.concepts[:, 3], asis.concepts[:, 3])
    assert not off.concepts[:, 4].any()


@pytest.mark.parametrize(
    "change",
    [
        {"force": {"regression": True}},
        {"force": {"regular streaks": True, "irregular streaks": True}},
        {"concept_noise": 1.5},
        {"label_noise": -0.1},
        {"indices": np.array([3, -1])},
    ],
)
def test_errors_name_the_fix(change: dict[str, object]) -> None:
    arguments = {"indices": np.arange(2), "seed": 0, "concept_noise": 0.0, "label_noise": 0.0, "force": None, **change}
    with refused(ValueError):
        draw_cases(**arguments)  # type: ignore[arg-type]


def test_a_large_table_is_fast() -> None:
    start = time.process_time()
    assert len(case_table(100_000).label) == 100_000
    assert time.process_time() - start < 3


def test_numbers_are_uniform_and_unrelated() -> None:
    ids = np.arange(4000)
    first = Randomness(0, "image", ids).uniform("a", 5)
    assert first.min() >= 0
    assert first.max() < 1
    histogram = np.histogram(first, bins=20, range=(0, 1))[0] / first.size
    np.testing.assert_allclose(histogram, 0.05, atol=0.006)
    others = [
        Randomness(0, "image", ids).uniform("b", 5),
        Randomness(0, "patient", ids).uniform("a", 5),
        Randomness(1, "image", ids).uniform("a", 5),
        Randomness(0, "image", ids + 1).uniform("a", 5),
        np.roll(first, 1, 1),
    ]
    for other in others:
        assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.03
    np.testing.assert_array_equal(Randomness(0, "image", ids).uniform("a", 3), first[:, :3])
