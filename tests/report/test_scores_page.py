import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parsecaps.metrics import FoldScores, Sets, compare, ensemble, score, score_sets
from parsecaps.metrics.predictions import Predictions
from parsecaps.report.result_pages import scores_page
from tests.browser import needs_browser, page
from tests.messages import refused
from tests.metrics.make import make_predictions


@pytest.fixture
def predictions() -> Predictions:
    return replace(make_predictions(150, ties=False), classes=("nevus", "mel <b>anoma", "other"))


@pytest.fixture
def two(predictions: Predictions) -> str:
    noise = np.random.default_rng(0).normal(size=predictions.logits.shape)
    second = replace(predictions, logits=predictions.logits + noise)
    models = {name: score(each, resamples=100) for name, each in (("run a", predictions), ("run b", second))}
    comparison = compare(predictions, second, resamples=100)
    averaged = ensemble([predictions, second], resamples=100)
    return scores_page(models, {("run a", "run b"): comparison}, averaged, title="run a and run b")


def test_one_model(predictions: Predictions) -> None:
    scores = score(predictions, resamples=100)
    html = scores_page({"the model": scores})
    accuracy = scores["accuracy"]
    assert f"{100 * (accuracy.value or 0):.1f} %" in html
    assert f"{100 * (accuracy.low or 0):.1f} to {100 * (accuracy.high or 0):.1f}" in html
    assert "mel &lt;b&gt;anoma" in html
    assert "mel <b>anoma" not in html
    assert all(note in html for note in scores.notes)
    assert scores.notes
    assert "Side by side" not in html
    assert html.count("<polyline") == 1 + 3  # reliability, and a ROC curve for each class
    assert not re.search(r'(src|href)="(?!data:)', html)


def test_folds_and_prediction_sets(predictions: Predictions) -> None:
    scores = score(predictions, resamples=50)
    inside = predictions.probabilities() > 0.25
    sets = score_sets(predictions, {0.05: Sets(inside, ["too <few> patients"])}, resamples=50)
    folds = [FoldScores(f"fold-{i}", 50 + i, 20, 1.5, scores.single) for i in (1, 2)]
    html = scores_page({"all": replace(scores, sets=sets, folds=folds, cases="two folds, pooled")})
    section = html.partition('<section class="sets">')[2].partition("</section>")[0]
    assert '<td class="name">5 %</td>' in section
    assert f"{100 * (sets[0]['answered'].value or 0):.1f} %" in section
    assert "too &lt;few&gt; patients" in section
    section = html.partition('<section class="folds">')[2].partition("</section>")[0]
    assert f"<td>{100 * (scores['accuracy'].value or 0):.1f} %<small>± 0.0</small></td>" in section
    assert '<td class="name">fold-2</td><td>52</td>' in section
    assert "Two folds, pooled" in html
    assert "temperature 1 " not in html
    plain = scores_page({"all": scores})
    assert "Prediction sets" not in plain
    assert "Folds" not in plain


def test_two_models_and_their_comparison(two: str) -> None:
    for text in ("Side by side", "run b against run a", "McNemar", "explanation error (L2, squared)"):
        assert text in two
    assert two.count("Confusion matrix") == 2


def test_whose_images_are_wrong(predictions: Predictions, two: str) -> None:
    scores = score(replace(predictions, patient=[f"<p{i // 3}>" for i in range(150)]), resamples=0)
    assert scores.patient_errors is not None
    html = scores_page({"the model": scores})
    section = html.partition('<section class="patient-errors">')[2].partition("</section>")[0]
    for each in scores.patient_errors.worst:
        assert each.wrong > 0
        assert f"&lt;p{each.patient[2:-1]}&gt;" in section
    assert section.count("<tr>") == 1 + 10
    assert f"And {scores.patient_errors.patients - 10} more." in section
    assert "Errors by patient" not in scores_page({"m": score(replace(predictions, patient=[""] * 150), resamples=0)})
    section = two.partition('<section class="ensemble">')[2].partition("</section>")[0]
    assert "Ensemble of all 2" in section
    assert "By all models" in section


@pytest.mark.parametrize("case", ["no labels", "no concepts", "one image", "no images", "one class", "no resamples"])
def test_whatever_is_missing_there_is_a_page(predictions: Predictions, case: str) -> None:
    changed = {
        "no labels": replace(predictions, label=np.full(150, -1)),
        "no concepts": replace(predictions, presence=None, concepts=None, concept_names=()),
        "one image": predictions.subset([0]),
        "no images": predictions.subset([]),
        "one class": predictions.subset(np.flatnonzero(predictions.label == 1)),
        "no resamples": predictions,
    }[case]
    resamples = 0 if case == "no resamples" else 20
    scores, comparison = score(changed, resamples=resamples), compare(changed, changed, resamples=resamples)
    averaged = ensemble([changed, changed], resamples=resamples)
    html = scores_page({"a": scores, "b": scores}, {("a", "b"): comparison}, averaged)
    assert html.count("</svg>") == html.count("<svg")
    assert "nan" not in re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL).lower()
    assert "None" not in html
    assert ("concept AUROC" in html) is (case != "no concepts")


def test_a_page_needs_a_model() -> None:
    with refused(ValueError):
        scores_page({})


@needs_browser
def test_the_page_shows_in_a_browser(two: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(two, encoding="utf-8")
    with page() as (opened, errors):
        opened.goto((tmp_path / "page.html").as_uri())
        assert opened.title() == "run a and run b"
        inside = """plots => plots.every(plot => {
            const box = plot.getBoundingClientRect();
            return box.width > 300 && [...plot.querySelectorAll('polyline, circle, rect, text')].every(each => {
                const part = each.getBoundingClientRect();
                return part.left >= box.left - 1 && part.right <= box.right + 1 &&
                       part.top >= box.top - 1 && part.bottom <= box.bottom + 1;
            });
        })"""
        assert opened.locator("svg.plot").count() == 4
        assert opened.eval_on_selector_all("svg.plot", inside)
        cells = opened.locator("table.confusion").first.locator("td.dark").all_inner_texts()
        assert cells
        for width in (1100, 390):  # a desk, a telephone
            opened.set_viewport_size({"width": width, "height": 900})
            overflow = opened.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
            assert not overflow
    assert errors == []
