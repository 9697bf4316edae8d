import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from parsecaps.audit.maps import MapAudit
from parsecaps.report.pages import line_chart
from parsecaps.report.result_pages import audit_page
from parsecaps.types import LineChart
from tests.audit.make_audit import make_audit
from tests.browser import needs_browser, page


def test_methods_stand_side_by_side() -> None:
    audit = make_audit()
    html = audit_page(audit, title="An audit")
    good = audit.maps["concepts"]["good"].localisation
    assert good is not None
    assert f"<b>{good.pointing.value:.3f}</b>" in html  # the best of its column
    poor = audit.maps["concepts"]["poor"].localisation
    assert poor is not None
    assert f"<b>{poor.pointing.value:.3f}</b>" not in html
    assert "str&lt;b&gt;eaks" in html
    assert "str<b>eaks" not in html
    assert "one thing could not be measured" in html
    assert "+5.0 points better" in html
    assert "<td>-0.100<small>-0.200 to -0.050</small></td>" in html  # what the strict tree costs
    assert "<td>0.25<small>0.20 to 0.30</small></td>" in re.sub(r"</?span[^>]*>", "", html)  # what is left when hidden
    assert "<td>75.0 %<small>-15.0 (-35.0 to +5.0)</small></td>" in html  # couplings of another image
    assert "<td>0.750<small>-0.150 (-0.350 to +0.050)</small></td>" in html
    assert html.count('class="chart"') == 2 + 1 + 2 + 2 + 2 + 1  # curves, cuts and sanity; corrections
    assert all("aria-label" in svg for svg in re.findall(r"<svg[^>]*>", html))
    assert not re.search(r'(src|href)="(?!data:)', html)


@pytest.mark.parametrize("case", ["no concepts", "no resamples", "no maps", "nothing measured"])
def test_whatever_is_missing_there_is_a_page(case: str) -> None:
    audit = make_audit(resamples=0 if case == "no resamples" else 30)
    if case == "no concepts":
        audit = replace(audit, concepts=None, maps={"classes": audit.maps["classes"]}, routes={})
    if case == "no maps":
        audit = replace(audit, maps={"classes": {}})
    if case == "nothing measured":
        audit = replace(
            audit,
            maps={"classes": {"good": MapAudit(None, None, None)}},
            couplings={},
            redundancy=[],
            concepts=None,
            strict=None,
        )
    html = audit_page(audit)
    text = re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)
    assert "None" not in text
    assert "nan" not in text.lower()
    assert html.count("</svg>") == html.count("<svg")
    assert list(audit.lines())
    assert all(table.rows for table in audit.tables())


def test_the_numbers_are_ready_for_json() -> None:
    audit = make_audit()
    stored = json.loads(json.dumps(audit.as_dict()))
    assert stored["maps"]["concepts"]["good"]["localisation"]["targets"][0]["pointing"]["n"] == 12
    assert stored["routes"]["concepts"]["gain"]["value"] > 0
    assert stored["couplings"]["uniform"]["differences"]["macro_auroc"]["second"] == 0.5


def test_a_chart_stays_within_its_frame() -> None:
    chart = line_chart(LineChart("t", {"a": [-5, 0.5, 9]}, ["0", "", "2"], below="", beside=""))
    assert chart["lines"][0]["points"] == "46.0,204.0 207.0,108.0 368.0,12.0"
    assert [label for _, label in chart["columns"]] == ["0", "2"]
    assert chart["alt"] == "t: a from -5.00 to 9.00"


@needs_browser
def test_the_page_shows_in_a_browser(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(audit_page(make_audit(), title="An audit"), encoding="utf-8")
    with page() as (opened, errors):
        opened.goto((tmp_path / "page.html").as_uri())
        assert opened.title() == "An audit"
        inside = """charts => charts.every(chart => {
            const box = chart.getBoundingClientRect();
            return box.width > 200 && [...chart.querySelectorAll('polyline, text')].every(each => {
                const part = each.getBoundingClientRect();
                return part.left >= box.left - 1 && part.right <= box.right + 1 &&
                       part.top >= box.top - 1 && part.bottom <= box.bottom + 1;
            });
        })"""
        assert opened.eval_on_selector_all("svg.chart", inside)
        for scheme in ("light", "dark"):
            opened.emulate_media(color_scheme=scheme)
            colours = "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
            ink, back = (sum(map(int, re.findall(r"\d+", each)[:3])) for each in opened.evaluate(colours))
            assert (ink < back) == (scheme == "light")
        for width in (1100, 390):
            opened.set_viewport_size({"width": width, "height": 900})
            assert not opened.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert errors == []
