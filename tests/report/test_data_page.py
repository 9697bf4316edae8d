import re
from dataclasses import replace
from pathlib import Path

import pytest

from parsecaps.data.cache import prepare_all
from parsecaps.data.cases import DataSet, Problem
from parsecaps.data.check import check_data
from parsecaps.data.preparation import Preparation
from parsecaps.data.splits import Divided, hold_out
from parsecaps.report.result_pages import data_page
from tests.browser import needs_browser, page
from tests.data.make import folder_of_pictures


@pytest.fixture
def html(tmp_path: Path) -> str:
    data = folder_of_pictures(tmp_path / "pictures", classes=("nevus", "mel <b>anoma"), per_class=8)
    cases = [replace(case, concepts=(float(i % 2), float(case.label))) for i, case in enumerate(data.cases)]
    problem = Problem("cases.csv", 9, "the label is blank; write one")
    data = DataSet("manifest", data.root, data.classes, ("stripes", "veil"), cases, (problem,), ("a note",))
    prepared = prepare_all(data, Preparation(size=64, channels=3), folder=tmp_path / "cache")
    division = hold_out(data, val=0.25, test=0.25)
    division[0] = "test" if division[0] != "test" else "train"
    division[-2:] = [None, None]
    return data_page(check_data(data, prepared, Divided(division, left_out="the official <test> part")), data, prepared)


def test_the_page_has_it_all_and_needs_nothing_else(html: str) -> None:
    for text in (
        "Training on this would be unsafe",
        "cases.csv, row 9: the label is blank",
        "a note",
        "100.0 %",
        "veil",
    ):
        assert text in html
    assert "1 leak between the parts" in html
    assert "mel &lt;b&gt;anoma" in html
    assert "mel <b>anoma" not in html
    assert "Images that take no part: 2 (the official &lt;test&gt; part)." in html
    assert not re.search(r'(src|href)="(?!data:)', html)


@needs_browser
def test_the_page_shows_in_a_browser(html: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    with page() as (opened, errors):
        opened.goto((tmp_path / "page.html").as_uri())
        assert opened.title() == "manifest: data check"
        widths = opened.eval_on_selector_all("img", "images => images.map(image => image.naturalWidth)")
        assert len(widths) == 2
        assert min(widths) > 300
        rows = opened.eval_on_selector_all("table:first-of-type tr", "rows => rows.map(row => row.innerText)")
        assert any(row.split()[0] == "nevus" and "8" in row.split() for row in rows)
        overflow = opened.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not overflow
    assert errors == []
