"""The view of a case in a browser: what it draws, and that it can be drawn again."""

import base64
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Error

from parsecaps.explain.explanation import Explanation
from parsecaps.report import draw_tree
from parsecaps.report.case_page import case_page, script_text
from parsecaps.report.explanation_document import explanation_document
from tests.browser import needs_browser
from tests.report.empty_view import MOUNT

pytestmark = needs_browser
SVG = "{http://www.w3.org/2000/svg}"


def mount(tab: Any, cases: list[Explanation], place: str = "one", **options: int) -> None:
    tab.evaluate(MOUNT, [place, script_text(explanation_document(cases, pictures=True)), options])


def test_a_tree_has_its_parts_where_python_draws_them(tab: Any, told: list[Explanation]) -> None:
    mount(tab, told)
    for number, case in enumerate(told, 1):
        for tree in case.trees:
            wanted = ElementTree.fromstring(draw_tree(tree))
            key = "diagnosis" if tree.about == "classes" else f"concept-{tree.index}"
            figure = tab.locator(f".case[data-number='{number}'] .tree[data-key='{key}']")
            found = ElementTree.fromstring(
                figure.locator("svg").evaluate("svg => new XMLSerializer().serializeToString(svg)")
            )
            assert found.get("viewBox") == wanted.get("viewBox")
            for kind, names in (("circle", "cx cy r"), ("rect", "x y width height"), ("path", "d stroke-width")):
                numbers = [
                    [
                        [float(part) for name in names.split() for part in re.findall(r"-?[\d.]+", each.get(name, ""))]
                        for each in drawing.iter(f"{SVG}{kind}")
                    ]
                    for drawing in (found, wanted)
                ]
                assert len(numbers[0]) == len(numbers[1]) > 0
                for one, other in zip(*numbers, strict=True):
                    assert one == pytest.approx(other, abs=0.051)  # written to a tenth
            for kind in ("text", "title", "desc"):
                said = [[each.text for each in drawing.iter(f"{SVG}{kind}")] for drawing in (found, wanted)]
                assert said[0] == said[1]


def test_a_map_has_the_colours_of_its_levels(tab: Any, told: list[Explanation]) -> None:
    mount(tab, told[:1])
    place = explanation_document(told[:1], pictures=True).cases[0].class_map
    level = np.frombuffer(base64.b64decode(place.levels), np.uint8).astype(float) / 255
    pixels = tab.locator(".stage .map").evaluate(
        "canvas => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]"
    )
    found = np.array(pixels).reshape(-1, 4)
    assert found[:, 3] == pytest.approx(255 * np.sqrt(level), abs=0.51)
    strong = level > 0.25  # a canvas keeps colours times opacity, in bytes
    wanted = np.array([0, 210, 255]) + np.array([255, 30, -215]) * level[strong, None]
    assert strong.sum() > 3
    assert found[strong, :3] == pytest.approx(wanted, abs=2)
    assert found[level.argmax()].tolist() == [255, 240, 40, 255]
    assert (found[level == 0, 3] == 0).all()


def test_a_reader_learns_how_well_contributions_add_up_and_what_a_map_leaves_out(
    tab: Any, told: list[Explanation]
) -> None:
    mount(tab, [replace(told[0], residual=0.0084)])
    assert "within 0.8 %" in tab.locator(".case .trees").inner_text()
    targets = tab.locator(".case .targets input")
    assert targets.count() > 1
    for number in range(targets.count()):  # the diagnosis, and concepts that are seen or not
        targets.nth(number).check()
        said = tab.locator(".case .look .caption").inner_text()
        assert "not what speaks against it" in said or "Nothing in the image" in said
    mount(tab, [replace(told[0], residual=None)])
    assert "within" not in tab.locator(".case .trees").inner_text()


def test_more_cases_can_come_while_one_is_looked_at(tab: Any, told: list[Explanation]) -> None:
    mount(tab, told[:1])
    assert tab.locator(".index, .steps").count() == 0
    first = tab.locator(".case").first
    first.locator(".targets input").nth(2).check()
    first.locator(".slider input").fill("30")
    concept = told[0].concepts[1].name
    first.get_by_label(f"Set {concept} to").select_option("present")
    first.evaluate("each => { each.dataset.mine = 'yes'; }")
    mount(tab, told[:2])
    assert first.get_attribute("data-mine") == "yes"  # the same element, as it was left
    assert first.is_visible()
    assert tab.locator(".case:visible").count() == 1
    assert first.locator(".targets input").nth(2).is_checked()
    assert first.locator(".slider input").input_value() == "30"
    assert first.get_by_label(f"Set {concept} to").input_value() == "present"
    assert tab.locator(".index button").count() == 2
    tab.get_by_label("Truth").select_option("wrong")
    tab.get_by_label("Truth").focus()
    mount(tab, told)
    assert tab.get_by_label("Truth").input_value() == "wrong"
    assert tab.evaluate("document.activeElement.tagName") == "SELECT"
    assert tab.locator(".case:visible").get_attribute("data-number") == "2"
    assert tab.locator(".count").inner_text() == "1 of 3 cases"
    mount(tab, told, open=2)  # one that the filter would hide
    assert tab.locator(".case:visible").get_attribute("data-number") == "3"
    assert tab.locator(".count").inner_text() == "3 of 3 cases"
    mount(tab, told[1:])
    assert tab.locator(".case h2").all_text_contents() == [told[1].name, told[2].name]
    assert tab.locator(".case:visible h2").text_content() == told[2].name
    assert tab.locator("[aria-current=true] .name").text_content() == told[2].name
    mount(tab, told[:1])
    assert tab.locator(".case:visible").count() == 1
    assert tab.locator(".index, .steps").count() == 0


def test_two_views_on_one_page_do_not_meet(tab: Any, told: list[Explanation]) -> None:
    mount(tab, told[:2], "one")
    mount(tab, told, "two")
    one, two = tab.locator("#one"), tab.locator("#two")
    two.locator(".case:visible .targets input").nth(3).check()
    assert one.locator(".case:visible .targets input").nth(0).is_checked()
    two.get_by_text("Next case").click()
    assert one.locator(".case:visible").get_attribute("data-number") == "1"
    assert two.locator(".case:visible").get_attribute("data-number") == "2"
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(ids) == len(set(ids))


def test_what_a_document_says_is_never_run_or_fetched(tab: Any, told: list[Explanation]) -> None:
    plain = explanation_document(told[:1], title="<img src=x onerror=alert(1)>", pictures=True).to_dict()
    case = plain["cases"][0]
    bad = "<img src=x onerror='window.bad = 1'>"
    case.update(name=bad, diagnosis=bad, probabilities={bad: 0.9}, notes=[bad], picture="http://127.0.0.1:9/a.png")
    plain["model"]["classes"] = [bad]
    for known in case["similar"]:
        known.update(label=bad, picture="javascript:window.bad = 1")
    case["trees"][0]["name"] = bad
    case["reasons"] = None
    tab.evaluate(MOUNT, ["one", json.dumps(plain), {}])
    assert tab.locator("h2.name").text_content() == bad
    assert tab.locator("h1").text_content() == plain["title"]
    assert tab.locator(".stage .picture, .similar img, .notes img, .tree image").count() == 0
    assert tab.locator(".similar .nothing").count() == len(case["similar"])
    assert tab.evaluate("window.bad") is None


def test_another_version_is_refused_and_no_case_is_no_error(tab: Any, told: list[Explanation]) -> None:
    plain = explanation_document(told, errors=["d.png is no image"]).to_dict()
    with pytest.raises(Error, match="has version 2, not 4"):
        tab.evaluate(MOUNT, ["one", json.dumps({**plain, "version": 2}), {}])
    tab.evaluate(MOUNT, ["one", json.dumps({**plain, "cases": []}), {}])
    assert tab.locator(".case").count() == 0
    assert tab.locator(".notes").inner_text().endswith("d.png is no image")
    tab.evaluate(MOUNT, ["one", json.dumps(plain), {}])  # without pictures
    assert tab.locator(".case:visible .stage .map").is_visible()
    assert tab.locator(".case img").count() == 0


def test_the_page_may_load_nothing_and_says_that_it_needs_scripts(
    opened: tuple[Any, list[str]], told: list[Explanation], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("policy") / "page.html"
    path.write_text(case_page(told), encoding="utf-8")
    tab, errors = opened
    tab.goto(path.as_uri())
    assert errors == []
    assert tab.locator(".case:visible").count() == 1
    tab.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.bad = 1";
        document.body.append(script);
        const image = document.createElement("img");
        image.src = "http://127.0.0.1:9/a.png";
        document.body.append(image);
    }""")
    refused = tab.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')")
    assert (tab.evaluate("window.bad"), refused) == (None, "refused")
    said = " ".join(errors)
    for directive in ("script-src", "img-src", "default-src"):
        assert directive in said
    errors.clear()
    context = tab.context.browser.new_context(java_script_enabled=False)
    without = context.new_page()
    without.goto(path.as_uri())
    assert "draws its cases with JavaScript, which is switched off" in without.locator("body").inner_text()
    context.close()
