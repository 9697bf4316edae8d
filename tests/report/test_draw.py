"""What each result prints in a terminal, and the same tables in HTML and Markdown."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parsecaps.cli.doctor import machine_lines
from parsecaps.data.cache import prepare_all
from parsecaps.data.cases import Problem
from parsecaps.data.check import check_data
from parsecaps.data.preparation import Preparation
from parsecaps.data.splits import Divided, hold_out
from parsecaps.discovery.discover import Discovery, discover_concepts
from parsecaps.discovery.stability import Match, Stability
from parsecaps.metrics import FoldScores, Scores, Sets, compare, ensemble, score, score_sets
from parsecaps.metrics.predictions import Predictions
from parsecaps.models import ParseCaps
from parsecaps.models.summary import layer_table, summarize
from parsecaps.report.draw import draw
from parsecaps.types import Cell, Grid
from tests.audit.make_audit import make_audit
from tests.data.make import folder_of_pictures
from tests.explain.make import make_memory
from tests.metrics.make import make_predictions
from tests.report.expected_text import assert_expected, printed


@pytest.fixture
def predictions() -> Predictions:
    """Classes and patients whose names look like markup, and concepts that are the values of an attribute."""
    made = make_predictions(90)
    return replace(
        made,
        classes=("nevus", "[red]melanoma[/red]", "other"),
        patient=[f"[b]{who}" for who in made.patient],
        concept_names=("shape=round", "shape=oval", ":smile: veil", "dots"),
    )


@pytest.fixture
def scores(predictions: Predictions) -> Scores:
    found = score(predictions, resamples=50)
    sets = score_sets(predictions, {0.05: Sets(predictions.probabilities() > 0.25, ["too few patients"])}, resamples=50)
    folds = [FoldScores(f"fold-{i}", 50 + i, 20, 1.5, found.single) for i in (1, 2)]
    return replace(found, sets=sets, folds=folds, cases="two folds, pooled")


def test_scores(scores: Scores) -> None:
    assert_expected("scores.txt", printed(*scores.tables().values(), *scores.lines()))
    short = scores.tables(short=True)
    assert list(short) == ["folds", "single"]
    assert short["single"].rows == [row for row in scores.tables()["single"].rows if row in short["single"].rows]


def test_two_models(predictions: Predictions) -> None:
    second = replace(predictions, logits=-predictions.logits, presence=None)
    comparison, averaged = compare(predictions, second, resamples=50), ensemble([predictions] * 2, resamples=10)
    shown = (comparison.table("run[a]", "run b"), comparison.line("run[a]", "run b"), *averaged.tables())
    assert_expected("comparison.txt", printed(*shown))


@pytest.mark.parametrize("count", [0, 1])
def test_few_images_can_be_compared(predictions: Predictions, count: int) -> None:
    few = predictions.subset(range(count))
    compared = compare(few, few, resamples=20)
    assert "p = 1.000" in compared.line("a", "b")
    assert "nan" not in printed(compared.table("a", "b"), *score(few, resamples=20).tables().values())


def test_long_names_give_way_to_numbers() -> None:
    names = tuple(f"a rather long name of class {k}" for k in range(6))
    text = printed(score(replace(make_predictions(90, 6), classes=names), resamples=10).tables()["confusion"])
    assert "…" not in text
    assert "3 a rather long name of class 2" in text


def test_audit() -> None:
    audit = make_audit()
    assert_expected("audit.txt", printed(*audit.tables(), *audit.lines()))


def test_data_check(tmp_path: Path) -> None:
    data = folder_of_pictures(tmp_path / "pictures", per_class=8)
    cases = [replace(case, concepts=(float(i % 2), float("nan"))) for i, case in enumerate(data.cases)]
    problems = [Problem("cases.csv", row, "the label is blank; write one") for row in (8, 9, 10)]
    data = replace(data, concepts=("stripes", "[b]veil"), cases=cases, notes=("a note",), problems=tuple(problems))
    division = hold_out(data, val=0.25, test=0.25)
    division[0] = "test" if division[0] != "test" else "train"
    division[-2:] = [None, None]
    prepared = prepare_all(data, Preparation(size=32, channels=3), folder=tmp_path / "cache")
    check = check_data(data, prepared, Divided(division, left_out="the official test part"))
    text = printed(*check.tables(), *check.lines(2)).replace(str(tmp_path), "FOLDER")
    assert_expected("data.txt", text.replace(check.split_hash, "HASH"))


def test_discovery() -> None:
    presence = np.random.default_rng(0).random((30, 3))
    presence[:, 1], presence[:, 2] = 0.5, 1 - presence[:, 0]
    memory = make_memory(presence, label=np.arange(30) % 3, names=("[b]rim", "unnamed 2", "unnamed 3"))
    stability = Stability(
        {(0, 1): Match([], 0.44, 0.1, 0.012, [], None)},
        *(0.44, 0.1, [0.81, 0.5, 0.0], [0.12, 0.1, 0.0], [0.64, 0.2, 0.0]),
    )

    def left(rows: object, concept: int = 0) -> np.ndarray:
        heat = np.zeros((len(rows), 32, 32))  # type: ignore[arg-type]
        heat[:, :, :8] = 1
        return heat

    found = Discovery(Path("run"), memory, discover_concepts(memory, maps=left, masks=left), 1.9, left)
    text = printed(found.table(), *found.lines())
    again = replace(found, stability=stability, others=(Path("other"),))
    assert_expected("discovery.txt", text + printed(again.table(), *again.lines()))


def test_layers() -> None:
    assert_expected("layers.txt", printed(layer_table(summarize(ParseCaps.from_preset("tiny", num_classes=3)), "tiny")))


def test_machine() -> None:
    machine = {
        **{"parsecaps": "0.2.0", "python": "3.11.7", "system": "Linux x86_64", "package": "/parsecaps"},
        **{"torch": "2.9.1", "torch_build": "cpu", "threads": 2, "threads_why": "4 of 6 are busy", "cores": 6},
        **{"load": 4.0, "gpus": [], "decoders": {"RLE": True, "JPEG 2000": False}, "browser": None, "weights": {}},
        "trunks": {"cnn": "cnn, weights of pictures (Apache-2.0)"},
        "missing": {"dicom": ["pylibjpeg"], "export": [], "text": ["spacy"]},
        "free_bytes": {"/": 71 * 10**9},
        "prepared_images": {"folder": "/cache", "bytes": 1_499_000, "parts": 1},
        "hub_models": {"folder": "/hub", "bytes": 0, "parts": 0},
    }
    assert_expected("machine.txt", printed(*machine_lines(machine)))


def test_tables_on_a_page_and_in_a_card(scores: Scores) -> None:
    tables = scores.tables()
    assert_expected("sets.html", draw(tables["sets"], "html"))
    assert_expected("classes.md", draw(tables["by_class"], "markdown"))
    odd = Grid("a", ("<b>", "n|m"), [("<i>", Cell("1", "0 to 2", bold=True)), ("_", Cell("-", "-"))])
    assert draw(odd, "html").splitlines()[1:] == [
        '<tr><td class="name">&lt;i&gt;</td><td><b>1</b><small>0 to 2</small></td></tr>',
        '<tr><td class="name">_</td><td>-<small>-</small></td></tr></table>',
    ]
    assert draw(odd, "markdown").splitlines() == [
        "| \\<b\\> | n\\|m |", "| --- | ---: |", "| \\<i\\> | 1 (0 to 2) |", "| \\_ | - |"
    ]  # fmt: skip
