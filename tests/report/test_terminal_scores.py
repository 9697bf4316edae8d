import io
from dataclasses import replace

import numpy as np
import pytest

from parsecaps.metrics import compare, ensemble, score
from parsecaps.report.draw import draw
from parsecaps.types import Grid
from tests.metrics.make import make_predictions


def printed(*tables: Grid) -> str:
    from rich.console import Console

    console = Console(width=120, file=io.StringIO())
    for table in tables:
        console.print(draw(table, "terminal"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_all_scores_are_there_uncut() -> None:
    predictions = replace(make_predictions(90), classes=("nevus", "[red]melanoma[/red]", "other"))
    scores = score(predictions, resamples=50)
    text = printed(*scores.tables().values())
    accuracy = scores["accuracy"]
    line = next(line for line in text.splitlines() if line.split()[:1] == ["accuracy"])
    low, high = 100 * (accuracy.low or 0), 100 * (accuracy.high or 0)
    assert line.split() == [
        "accuracy",
        f"{100 * (accuracy.value or 0):.1f}",
        "%",
        f"{low:.1f}",
        "to",
        f"{high:.1f}",
        str(accuracy.n),
    ]
    assert "[red]melanoma[/red]" in text
    assert "concept 3" in text
    assert "…" not in text
    lines = scores.lines()
    assert lines[0].startswith("95 % intervals by 50 resamples of 30 patients")
    assert f"note: {scores.notes[0]}" in lines


def test_long_names_give_way_to_numbers() -> None:
    names = tuple(f"a rather long name of class {k}" for k in range(6))
    text = printed(*score(replace(make_predictions(90, 6), classes=names), resamples=10).tables().values())
    assert "…" not in text
    assert "3 a rather long name of class 2" in text


@pytest.mark.parametrize("count", [0, 1, 60])
def test_two_models_are_compared(count: int) -> None:
    first = make_predictions(60, unknown=0).subset(range(count))
    second = replace(first, logits=-first.logits, presence=None)
    comparison = compare(first, second, resamples=50)
    text = printed(comparison.table("run[a]", "run b"))
    assert "run[a]" in text
    assert text.count("AUROC, macro") == 1
    line = comparison.line("run[a]", "run b")
    assert f"only run[a] is right on {comparison.only_first} images" in line
    if count == 60:
        assert "p < 0.001" in line
        worse = next(line for line in text.splitlines() if line.split()[:1] == ["accuracy"] and " to -" in line)
        difference = comparison.differences["accuracy"].difference
        assert f"{100 * (difference or np.nan):+.1f}" in worse


def test_whose_images_are_wrong() -> None:
    first = make_predictions(90)
    first = replace(first, patient=[f"[b]{who}" for who in first.patient])
    scores, averaged = score(first, resamples=10), ensemble([first, first], resamples=10)
    errors = scores.patient_errors
    assert errors is not None
    alone, both = printed(*scores.tables().values()), printed(*averaged.tables())
    worst = errors.worst[0]
    for text in (alone, both):
        line = next(line for line in text.splitlines() if worst.patient in line)
        assert line.split()[-2:] == [str(worst.wrong), str(worst.images)]
    assert f"wrong images: {errors.wrong}; their patients: {errors.patients};" in alone
    assert f"by all models, wrong images: {averaged.all_wrong};" in both
