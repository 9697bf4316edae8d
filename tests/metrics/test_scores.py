import json
import time
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import stats

from parsecaps.metrics import METRICS, FoldScores, Score, Scores, find_metric, score
from parsecaps.metrics.bootstrap import FEW_PATIENTS
from parsecaps.metrics.predictions import Predictions
from tests.messages import message, refused
from tests.metrics.copies import assert_interval_of_copies, resampled_copies
from tests.metrics.make import make_predictions


def every_score(scores: Scores) -> list[Score]:
    parts = (scores.single, *scores.by_class.values(), *scores.by_concept.values())
    return [each for part in parts for each in part.values()]


def right_and_wrong(right: int, wrong: int, **changes: object) -> Predictions:
    """Two classes, every image of class 0 and a patient of its own, so many named rightly."""
    count = right + wrong
    plain = Predictions(
        logits=np.array([[1.0, 0.0]] * right + [[0.0, 1.0]] * wrong).reshape(count, 2),
        label=np.zeros(count),
        patient=[""] * count,
        name=[str(i) for i in range(count)],
        classes=("a", "b"),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_score_is_that_of_the_cases_and_its_interval_that_of_copies() -> None:
    """The same numbers from resampled copies of the predictions, scored one by one."""
    predictions = make_predictions(90)
    scores = score(predictions, resamples=40, seed=3)
    copies = resampled_copies(predictions, 40, seed=3)
    for key, each in scores.single.items():
        metric = find_metric(key)
        if metric.noise is None and (cases := metric.cases.of(predictions)) is not None:
            assert_interval_of_copies(each, metric, cases, [copy[key].value for copy in copies])
    for part in ("by_class", "by_concept"):
        for i, (name, by_key) in enumerate(getattr(scores, part).items()):
            for key, each in by_key.items():
                (metric,) = (metric for metric in METRICS if (metric.part, metric.name) == (part, key))
                cases = metric.cases.of(predictions)
                assert cases is not None
                assert_interval_of_copies(each, metric, cases, [getattr(c, part)[name][key].value for c in copies], i)


def test_values_by_hand() -> None:
    """truth 0 0 0 1 1 2, named 0 0 1 1 0 2, and one unknown."""
    logits = np.eye(3)[[0, 0, 1, 1, 0, 2, 2]]
    label = np.array([0, 0, 0, 1, 1, 2, -1])
    names = [str(i) for i in range(7)]
    scores = score(Predictions(logits=logits, label=label, patient=names, name=names, classes=("a", "b", "c")))
    assert scores.confusion == [[2, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert scores["accuracy"].value == pytest.approx(4 / 6)
    assert scores["balanced_accuracy"].value == pytest.approx((2 / 3 + 1 / 2 + 1) / 3)
    assert scores["balanced_accuracy"] == scores["macro_recall"]
    assert (scores["accuracy"].n, scores.images, scores.labelled, scores.patients) == (6, 7, 6, 7)
    a = scores.by_class["a"]
    assert (a["precision"].value, a["precision"].n) == (pytest.approx(2 / 3), 3)
    assert (a["recall"].value, a["recall"].n) == (pytest.approx(2 / 3), 3)
    assert (a["f1"].value, a["f1"].n) == (pytest.approx(2 / 3), 4)
    assert (a["specificity"].value, a["specificity"].n) == (pytest.approx(2 / 3), 3)
    assert (a["auroc"].value, a["auroc"].n) == (pytest.approx((2.5 + 2.5 + 1) / 9), 6)
    message(*scores.notes)
    assert scores.by_class["c"]["recall"].low is None  # one patient only
    assert scores.concepts == {}
    assert scores.by_concept == {}


def test_n_counts_the_images_that_a_score_is_computed_from() -> None:
    predictions = make_predictions(90, skill=0.5)
    scores, known, named = score(predictions, resamples=0), predictions.label >= 0, predictions.logits.argmax(1)
    for k, name in enumerate(predictions.classes):
        truth, answered = predictions.label == k, known & (named == k)
        wanted = {"precision": answered, "recall": truth, "f1": truth | answered, "specificity": known & ~truth}
        counts = {key: int(mask.sum()) for key, mask in {**wanted, "auroc": known}.items()}
        assert {key: each.n for key, each in scores.by_class[name].items()} == counts
        assert len(set(counts.values())) == 5


def test_auroc_has_an_interval_if_positives_and_negatives_are_of_several_patients() -> None:
    predictions = replace(make_predictions(12, 2, unknown=0), label=np.array([1, 1] + [0] * 10))
    scores = score(replace(predictions, patient=["ann", "ann"] + [f"p{i}" for i in range(10)]), resamples=30)
    assert scores.by_class["class 1"]["auroc"].value is not None
    assert (scores.by_class["class 1"]["auroc"].low, scores.by_class["class 0"]["auroc"].low) == (None, None)
    others = score(replace(predictions, patient=["ann", "bob"] + [f"p{i}" for i in range(10)]), resamples=30)
    assert others.by_class["class 1"]["auroc"].low is not None


def test_the_interval_of_an_accuracy_is_that_of_the_binomial() -> None:
    found = score(right_and_wrong(80, 20), resamples=4000)["accuracy"]
    wilson = stats.binomtest(80, 100).proportion_ci(0.95, "wilson")
    assert found.value == 0.8
    assert (found.low, found.high) == pytest.approx((wilson.low, wilson.high), abs=0.006)


def test_images_of_a_patient_go_together() -> None:
    """Ten images of a patient that are right or wrong together tell as much as one."""
    predictions = make_predictions(240, unknown=0)
    right = predictions.logits.argmax(1) == predictions.label
    alike = predictions.subset(np.argsort(right, kind="stable"))
    tens = [f"p{i // 10}" for i in range(240)]
    alone = score(replace(alike, patient=[""] * 240))["accuracy"]
    together = score(replace(alike, patient=tens))["accuracy"]
    assert alone.value == together.value == right.mean()
    widths = [(each.high or 0) - (each.low or 0) for each in (alone, together)]
    assert widths[1] == pytest.approx(np.sqrt(10) * widths[0], rel=0.15)


def test_a_temperature_changes_confidence_but_not_the_classes_named() -> None:
    predictions = make_predictions(200, ties=False)
    plain, hot = score(predictions, resamples=0), score(predictions, temperature=5.0, resamples=0)
    assert plain["accuracy"] == hot["accuracy"]
    assert plain.confusion == hot.confusion
    assert hot.temperature == 5
    tempered = score(predictions.tempered(5.0), resamples=0)
    assert hot["nll"] == tempered["nll"]
    assert hot["nll"].value != plain["nll"].value


def test_scores_survive_json() -> None:
    scores = score(make_predictions(), resamples=20)
    stored = json.loads(json.dumps(scores.as_dict(), allow_nan=False))
    assert Scores.from_dict(stored) == scores
    assert set(stored) == {field.name for field in fields(Scores)} - {"patient_errors"} | {"over_folds", "misread"}
    assert stored["misread"]["wrong"] == (scores.patient_errors or pytest.fail("no errors")).wrong
    assert stored["overall"]["accuracy"]["n"] == scores.labelled
    for damage in ({"overall": 3}, {"overall": {"accuracy": {"value": 1}}}, {"extra": 1}):
        with refused(ValueError):
            Scores.from_dict({**stored, **damage})
    with refused(ValueError):
        Scores.from_dict({name: part for name, part in stored.items() if name != "classes"})


def test_scores_of_other_views() -> None:
    consistency = np.random.default_rng(0).integers(3, size=60) / 2
    scores = score(replace(make_predictions(), consistency=consistency), resamples=20)
    assert scores["consistency"].value == pytest.approx(consistency.mean())
    assert (scores["consistency"].n, scores["consistency"].low is None) == (60, False)


def test_a_class_that_is_absent_is_not_made_up() -> None:
    predictions = make_predictions(40, 3, unknown=0)
    without = predictions.subset(np.flatnonzero(predictions.label != 2))
    scores = score(without, resamples=50)
    assert (scores.by_class["class 2"]["auroc"].value, scores.by_class["class 2"]["recall"].value) == (None, None)
    assert scores.by_class["class 2"]["specificity"].value is not None
    assert "class 2" not in scores.roc
    recalls = [scores.by_class[name]["recall"].value or 0 for name in ("class 0", "class 1")]
    assert scores["balanced_accuracy"].value == pytest.approx(np.mean(recalls))
    message(*scores.notes)


@pytest.mark.parametrize("count", [0, 1])
def test_hardly_any_image(count: int) -> None:
    scores = score(make_predictions(3, unknown=0).subset(range(count)), resamples=20)
    assert all(each.low is None and each.high is None for each in every_score(scores))
    assert (scores["accuracy"].value is None) is (count == 0)
    assert scores["macro_auroc"] == Score(None, None, None, count)
    json.dumps(scores.as_dict(), allow_nan=False)


def test_all_labels_unknown() -> None:
    predictions = make_predictions()
    scores = score(replace(predictions, label=np.full(60, -1)), resamples=20)
    assert all(each == Score(None, None, None, 0) for each in scores.overall.values())
    assert scores["mean_auroc"].value is not None
    assert scores["mean_auroc"].low is not None
    assert scores.confusion == [[0] * 3] * 3
    assert sum(each.n for each in scores.reliability) == 0
    message(*scores.notes)


def test_all_concepts_unknown_or_none_predicted() -> None:
    predictions = make_predictions()
    unknown = score(replace(predictions, concepts=np.full((60, 4), np.nan)), resamples=20)
    assert all(each == Score(None, None, None, 0) for each in unknown.concepts.values())
    for field in ("presence", "concepts"):
        scores = score(replace(predictions, **{field: None}), resamples=5)
        assert (scores.concepts, scores.by_concept, scores.concept_names) == ({}, {}, ())
        assert scores["accuracy"] == score(predictions, resamples=5)["accuracy"]


def test_constant_scores_are_worth_a_coin() -> None:
    predictions = replace(make_predictions(), logits=np.zeros((60, 3)), presence=np.full((60, 4), 0.5))
    scores = score(predictions, resamples=50)
    assert scores["macro_auroc"] == Score(0.5, 0.5, 0.5, scores.labelled)
    assert scores["mean_auroc"].value == 0.5
    assert scores["mean_f1"].value == 0
    assert scores["nll"].value == pytest.approx(np.log(3))
    assert scores.roc["class 0"] == [(0, 0), (1, 1)]
    share = np.mean(predictions.label[predictions.label >= 0] == 0)
    assert scores["ece"].value == pytest.approx(abs(share - 1 / 3))


def test_one_patient_gives_no_interval() -> None:
    scores = score(replace(make_predictions(), patient=["the one"] * 60), resamples=20)
    assert scores["accuracy"].value is not None
    assert all(each.low is None and each.high is None for each in every_score(scores))
    message(*scores.notes)


def test_few_patients_are_a_note() -> None:
    few, enough = (right_and_wrong(count - 5, 5) for count in (FEW_PATIENTS - 1, FEW_PATIENTS))
    message(*score(few, resamples=5).notes)
    assert not any("few patients" in note for note in score(enough, resamples=5).notes)
    many = replace(enough, patient=[str(i // 2) for i in range(len(enough))])
    assert any("few patients" in note for note in score(many, resamples=5).notes)


def test_no_mistake_is_not_certainty() -> None:
    scores = score(right_and_wrong(30, 0), resamples=20)
    exact = stats.binomtest(30, 30).proportion_ci(0.95, "exact")
    assert (scores["accuracy"].low, scores["accuracy"].high) == (pytest.approx(exact.low), 1)
    message(*scores.notes)
    assert not any("no mistake" in note for note in score(right_and_wrong(30, 1), resamples=5).notes)


def test_a_thousand_resamples_take_seconds_at_most() -> None:
    predictions = make_predictions(2000, 5, 8, ties=False)
    score(predictions.subset(range(50)), resamples=1)  # imports torchmetrics
    start = time.process_time()
    score(predictions)
    assert time.process_time() - start < 4


def fold(**values: float | None) -> FoldScores:
    return FoldScores("fold", 10, 5, 1.0, {key: Score(value, None, None, 10) for key, value in values.items()})


def test_mean_and_deviation_leave_out_what_is_not_defined() -> None:
    scores = score(make_predictions(), resamples=0)
    folds = [fold(accuracy=0.8, ece=0.1), fold(accuracy=0.9, ece=None), fold(accuracy=0.6, ece=None)]
    found = replace(scores, folds=folds).over_folds
    assert found["accuracy"] == pytest.approx((np.mean([0.8, 0.9, 0.6]), np.std([0.8, 0.9, 0.6], ddof=1), 3))
    assert found["ece"] == (0.1, None, 1)
    assert scores.over_folds == {}
    assert replace(scores, folds=[fold(ece=None)]).over_folds == {}
