"""A new metric is one function and one row of `METRICS`: JSON, terminal, pages and model card follow."""

import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from parsecaps.config import Config, load_settings
from parsecaps.data.preparation import Preparation
from parsecaps.metrics import METRICS, Metric, Score, Scores, Sets, Weighted, find_metric, score, score_sets
from parsecaps.metrics.bootstrap import SIGNED_SHARE
from parsecaps.metrics.classification import Classification
from parsecaps.metrics.concepts import Concepts
from parsecaps.metrics.conformal import LabelledSets
from parsecaps.model import Model
from parsecaps.models import ParseCaps
from parsecaps.report.cards import model_card
from parsecaps.report.draw import draw
from parsecaps.report.result_pages import scores_page
from tests.messages import refused
from tests.metrics.copies import assert_interval_of_copies, resampled_copies
from tests.metrics.make import make_predictions


def correlation(cases: Weighted) -> np.ndarray:
    """Matthews' correlation coefficient."""
    total, truth, named = cases.weights.sum(0), cases.total("positive"), cases.total("answered")
    spread = (total**2 - (truth**2).sum(0)) * (total**2 - (named**2).sum(0))
    return np.asarray((cases.total("hit").sum(0) * total - (truth * named).sum(0)) / np.sqrt(spread))


def prevalence(cases: Weighted) -> np.ndarray:
    return cases.total("positive") / cases.sum(cases.cases.known)


def empty(cases: Weighted) -> np.ndarray:
    return cases.mean(cases.cases.size == 0)


ROWS = [
    Metric(
        "overall", "correlation", "Matthews' correlation", Classification, correlation, short="MCC", bounds=SIGNED_SHARE
    ),
    Metric("by_class", "prevalence", "class prevalence", Classification, prevalence, share=True),
    Metric("by_concept", "prevalence", "concept prevalence", Concepts, prevalence, share=True),
    Metric("sets", "empty", "empty sets", LabelledSets, empty, share=True),
]


@pytest.fixture
def added() -> Iterator[None]:
    METRICS.extend(ROWS)
    yield
    del METRICS[-len(ROWS) :]


@pytest.fixture
def scores(added: None) -> Scores:
    predictions = make_predictions(90)
    sets = score_sets(predictions, {0.1: Sets(predictions.probabilities() > 0.3, [])}, resamples=40, seed=3)
    return replace(score(predictions, resamples=40, seed=3), sets=sets, cases="test part")


def test_its_value_and_interval_are_there(scores: Scores) -> None:
    predictions = make_predictions(90)
    known = predictions.label >= 0
    wanted = matthews_corrcoef(predictions.label[known], predictions.logits.argmax(1)[known])
    assert scores["correlation"].value == pytest.approx(wanted)
    values = [copy["correlation"].value for copy in resampled_copies(predictions, 40, seed=3)]
    assert_interval_of_copies(scores["correlation"], ROWS[0], Classification.of(predictions), values)
    shares = [scores.by_class[name]["prevalence"].value for name in scores.classes]
    assert shares == pytest.approx([(predictions.label[known] == k).mean() for k in range(3)])
    assert scores.by_concept["concept 0"]["prevalence"].value is not None
    assert scores.sets[0]["empty"].n == known.sum()


def test_json_has_it_and_reads_scores_without_it(scores: Scores) -> None:
    stored = json.loads(json.dumps(scores.as_dict(), allow_nan=False))
    assert stored["overall"]["correlation"]["n"] == scores.labelled
    assert stored["sets"][0]["empty"]["value"] is not None
    assert Scores.from_dict(stored) == scores
    for part in (stored["overall"], *stored["by_class"].values(), *stored["by_concept"].values()):
        part.pop("correlation", None), part.pop("prevalence", None)
    stored["sets"][0].pop("empty")
    older = Scores.from_dict(stored)
    for text in (scores_page({"older": older}), card(older), printed(older)):
        assert "accuracy" in text
        assert not re.search("Matthews|prevalence|empty sets", text)


def test_terminal_page_card_and_summary_show_it(scores: Scores) -> None:
    texts = {"page": scores_page({"a": scores}), "two": scores_page({"a": scores, "b": scores}), "card": card(scores)}
    texts["terminal"] = printed(scores)
    number = f"{scores['correlation'].value:.3f}"
    for name, text in texts.items():
        for title in ("correlation", "class prevalence", "empty sets"):
            assert title in text, (name, title)
        assert number in text, name
    assert "concept prevalence" in texts["page"]
    assert "concept prevalence" in texts["terminal"]
    assert number in repr(scores)
    assert number in scores._repr_html_()


def test_numbers_are_written_as_the_metric_says() -> None:
    metric = find_metric("accuracy")
    assert (metric.title, metric.number(0.9534), metric.number(None)) == ("accuracy", "95.3 %", "-")
    assert metric.interval(Score(0.95, 0.9, 0.99, 100)) == "90.0 to 99.0"
    assert metric.interval(Score(0.95, None, None, 1)) == "-"
    assert metric.with_interval(Score(0.95, 0.9, 0.99, 100)) == "95.0 % (90.0 to 99.0)"
    assert metric.with_deviation(0.9, 0.02) == "90.0 % ± 2.0"
    assert (metric.difference(0.0123), metric.difference_interval(-0.01, 0.11)) == ("+1.2", "-1.0 to +11.0")


def test_names_are_told_apart_and_found() -> None:
    assert len({(metric.part, metric.name) for metric in METRICS}) == len(METRICS)
    single = [metric.name for metric in METRICS if metric.part in ("overall", "concepts")]
    assert len(set(single)) == len(single)
    assert all(find_metric(name).name == name for name in single)
    with refused(KeyError):
        find_metric("precison")


def printed(scores: Scores) -> str:
    from rich.console import Console

    file = io.StringIO()
    console = Console(width=200, file=file)
    for table in (*scores.tables().values(), *scores.tables(short=True).values()):
        console.print(draw(table, "terminal"))
    return file.getvalue()


def card(scores: Scores) -> str:
    network = ParseCaps.from_preset("tiny", num_classes=3, num_concepts=4, in_channels=3)
    model = Model(network, Preparation(size=32, channels=3), scores.classes, scores.concept_names)
    counts = {"train": 3, "val": 2, "test": 1, "unused": 0}
    concept = {part: {"present": 1, "absent": 1, "unknown": 0} for part in counts}
    data = {
        "source": "folder",
        "images": 6,
        "patients": 6,
        "concepts": scores.concept_names,
        "patients_by_part": counts,
        "by_class": dict.fromkeys(scores.classes, counts),
        "by_concept": dict.fromkeys(scores.concept_names, concept),
        "notes": [],
    }
    about = {
        "finished": "today",
        "device": "cpu",
        "split_hash": "abc",
        "validation": True,
        "epochs": 2,
        "best_epoch": 1,
        "seeds": {"split": 0, "training": 0},
        "versions": {},
    }
    return model_card(model, load_settings(Config, values={"data": {"path": "cases"}}), about, data, scores)
