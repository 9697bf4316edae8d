import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from parsecaps.data.preparation import Preparation
from parsecaps.explain.explanation import Explanation
from parsecaps.explain.strict_tree import Strictness
from parsecaps.explain.traversal import TraversalStrip
from parsecaps.model import Model
from parsecaps.models import ParseCaps
from parsecaps.report.case_page import case_page
from parsecaps.report.explanation_document import ExplanationDocument
from tests.audit.make_audit import make_cost
from tests.browser import needs_browser, page
from tests.messages import refused
from tests.report.certainty import certainty
from tests.report.make_cases import NAMES

PIXELS = "canvas => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]"


@pytest.fixture(scope="module")
def opened(told: list[Explanation], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, list[str]]]:
    path = tmp_path_factory.mktemp("page") / "cases.html"
    path.write_text(case_page(told, title="Three cases", errors=["d.png is no image"]), encoding="utf-8")
    with page() as (tab, errors):
        tab.context.set_offline(True)
        tab.goto(path.as_uri())
        yield tab, errors


@pytest.fixture
def tab(opened: tuple[Any, list[str]]) -> Iterator[Any]:
    opened[0].emulate_media(media="screen", color_scheme="light")
    opened[0].set_viewport_size({"width": 1100, "height": 900})
    opened[0].reload()
    yield opened[0]
    assert opened[1] == []


def test_the_page_needs_nothing_but_itself_and_runs_nobodys_code(told: list[Explanation]) -> None:
    text = case_page(told, title="</title><script>", errors=["<u>d</u>", "</script><!--"])
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "<i>a" not in text
    assert "<u>d" not in text
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    held = ExplanationDocument.model_validate_json(scripts[0])
    assert [each.name for each in held.cases] == NAMES
    assert held.errors == ["<u>d</u>", "</script><!--"]
    digest = base64.b64encode(hashlib.sha256(scripts[1].encode()).digest()).decode()
    policy = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]+)">', text)
    assert html.unescape(policy[0]).split("; ") == [
        "default-src 'none'",
        "img-src data:",
        "style-src 'unsafe-inline'",
        f"script-src 'sha256-{digest}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    with refused(ValueError):
        case_page([])


@needs_browser
def test_what_a_case_is_called_is_text_and_every_picture_has_words(tab: Any) -> None:
    assert tab.locator(".case i, .notes u").count() == 0
    assert tab.locator("h2.name").all_text_contents() == NAMES
    ids = tab.evaluate("[...document.querySelectorAll('[id]')].map(each => each.id)")
    assert len(ids) == len(set(ids)) > 3
    assert tab.locator("img:not([alt])").count() == 0
    assert tab.locator("canvas:not([aria-label]):not([aria-hidden])").count() == 0
    for reference in ("aria-labelledby", "aria-controls"):
        named = tab.evaluate(
            "name => [...document.querySelectorAll(`[${name}]`)].flatMap(each => each.getAttribute(name).split(' '))",
            reference,
        )
        assert set(named) <= set(ids)


def test_a_hundred_cases_of_224_pixels_stay_below_20_megabytes(told: list[Explanation]) -> None:
    """Each case adds the same, so two pages tell what a hundred take; noise is the hardest picture to compress."""
    torch.manual_seed(0)
    network = ParseCaps.from_preset("medical", num_classes=3, num_concepts=7, in_channels=3).eval()
    names = tuple(f"concept {j}" for j in range(7))
    model = Model(network, Preparation(size=224, channels=3), ("a", "b", "c"), names)
    one = model.explain(torch.rand(3, 224, 224))
    shared = told[0]
    one = replace(one, similar=shared.similar, pictures={row: bytes(4000) for row in shared.pictures})
    small, large = (len(case_page([one] * count).encode()) for count in (1, 3))
    assert small + 99 * (large - small) / 2 < 20e6


@needs_browser
def test_choosing_a_concept_changes_the_overlay_the_tree_and_the_prototypes(tab: Any, told: list[Explanation]) -> None:
    case = tab.locator(".case[data-number='1']")
    overlay = case.locator(".stage .map")
    before = overlay.evaluate(PIXELS)
    most = max(told[0].concepts, key=lambda each: each.presence)
    case.locator(".targets input").nth(0).focus()
    tab.keyboard.press("ArrowDown")
    assert overlay.evaluate(PIXELS) != before
    assert overlay.evaluate(PIXELS) == case.locator(".target:has(input:checked) .map").evaluate(PIXELS)
    assert case.locator(".caption").inner_text().startswith(f"Map: {most.name}.")
    assert case.locator(".tree:visible").count() == 1
    assert case.locator(".tree:visible").get_attribute("data-key") == f"concept-{told[0].concepts.index(most)}"
    assert case.locator(".shown-prototypes img").count() == len(most.prototypes)
    tab.keyboard.press("ArrowDown")  # the second concept has no tree
    assert case.locator(".tree:visible").count() == 0
    assert case.locator(".no-tree").is_visible()
    assert overlay.evaluate("each => each.width") == 32


@needs_browser
def test_the_slider_fades_the_map(tab: Any) -> None:
    slider, overlay = (
        tab.locator(".case[data-number='1'] .slider input"),
        tab.locator(".case[data-number='1'] .stage .map"),
    )
    assert overlay.evaluate("each => getComputedStyle(each).opacity") == "0.8"
    slider.focus()
    tab.keyboard.press("Home")
    assert overlay.evaluate("each => getComputedStyle(each).opacity") == "0"
    tab.keyboard.press("End")
    assert overlay.evaluate("each => getComputedStyle(each).opacity") == "1"


@needs_browser
@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_node_opens_its_region_by_keyboard(tab: Any, told: list[Explanation], key: str) -> None:
    tree = told[0].trees[0]
    nodes = tab.locator(".case[data-number='1'] .tree:visible circle[role=button]")
    assert nodes.count() == len(tree.nodes) > 2
    nodes.nth(2).focus()
    tab.keyboard.press(key)
    top, left, bottom, right = tree.nodes[2].region
    style = tab.locator(".case[data-number='1'] .box").evaluate(
        "b => [b.style.top, b.style.left, b.style.height, b.style.width]"
    )
    wanted = [top, left, bottom - top, right - left]
    assert [float(each.rstrip("%")) for each in style] == pytest.approx([100 * each / 32 for each in wanted], abs=1e-3)
    assert tab.locator(".case[data-number='1'] .box").is_visible()
    detail = tab.locator(".case[data-number='1'] .detail:visible").inner_text()
    assert detail.startswith(tree.nodes[2].name)
    assert f"rests on rows {top} to {bottom}, columns {left} to {right}" in detail
    assert nodes.nth(2).get_attribute("aria-pressed") == "true"
    tab.keyboard.press(key)
    assert not tab.locator(".case[data-number='1'] .box").is_visible()


@needs_browser
def test_interventions_give_the_numbers_of_python(tab: Any, told: list[Explanation]) -> None:
    reasons = told[0].reasons
    assert reasons is not None
    case = tab.locator(".case[data-number='1']")

    def shown() -> list[float]:
        found: list[float] = json.loads(case.locator(".what-if").get_attribute("data-probabilities"))
        return found

    seen = reasons.reasoning.probabilities(reasons.presence)
    assert shown() == pytest.approx(seen.tolist(), abs=1e-12)
    changes = {reasons.reasoning.concepts[1]: True, reasons.reasoning.concepts[4]: False}
    for name, there in changes.items():
        case.get_by_label(f"Set {name} to").select_option("present" if there else "absent")
    presence = reasons.reasoning.change(reasons.presence, changes)
    after = reasons.reasoning.probabilities(presence)
    assert shown() == pytest.approx(after.tolist(), abs=1e-12)
    assert abs(after - seen).max() > 1e-3
    best = int(after.argmax())
    assert case.locator(".what-if").inner_text() == (
        f"With these settings: {reasons.reasoning.classes[best]}, {certainty(after[best])}."
    )
    cells = case.locator(f"[data-class='{best}']").all_inner_texts()
    *added, total, chance = cells
    numbers = [float(text.replace("\u2212", "-")) for text in added]
    assert float(total.replace("\u2212", "-")) == pytest.approx(sum(numbers), abs=0.005 * len(numbers) + 0.005)
    assert chance == f"{100 * after[best]:.1f} %"
    case.locator(".reset").click()
    assert shown() == pytest.approx(seen.tolist(), abs=1e-12)
    assert case.locator(".flip").inner_text() == reasons.sentence()


@needs_browser
def test_one_value_of_an_attribute_excludes_the_others(
    opened: tuple[Any, list[str]], told: list[Explanation], tmp_path: Path
) -> None:
    reasons = told[0].reasons
    assert reasons is not None
    names = ("size=big", "size=small", "size=tiny", *reasons.reasoning.concepts[3:])
    grouped = replace(reasons.reasoning, concepts=names, group=reasons.reasoning.group.clip(min=2))
    concepts = tuple(replace(each, name=name) for each, name in zip(told[0].concepts, names, strict=True))
    case = replace(told[0], concepts=concepts, reasons=replace(reasons, reasoning=grouped))
    (tmp_path / "one.html").write_text(case_page([case]), encoding="utf-8")
    tab, errors = opened
    there = tab.url
    tab.goto((tmp_path / "one.html").as_uri())
    tab.get_by_label("Set size=big to").select_option("present")
    tab.get_by_label("Set size=small to").select_option("present")
    assert tab.get_by_label("Set size=big to").input_value() == ""
    found = json.loads(tab.locator(".what-if").get_attribute("data-probabilities"))
    wanted = grouped.probabilities(grouped.change(reasons.presence, {"size=small": True}))
    assert found == pytest.approx(wanted.tolist(), abs=1e-12)
    assert tab.locator(".index").count() == 0
    assert errors == []
    tab.goto(there)


@needs_browser
def test_the_index_filters_and_opens(tab: Any, told: list[Explanation]) -> None:
    visible = tab.locator(".case:visible")
    assert (visible.count(), visible.get_attribute("data-number")) == (1, "1")
    tab.get_by_label("Truth").select_option("wrong")
    assert tab.locator(".count").inner_text() == "1 of 3 cases"
    assert visible.get_attribute("data-number") == "2"
    edge = "each => getComputedStyle(each).borderLeftColor"
    edges = [tab.locator(f".case[data-number='{number}'] .verdict").evaluate(edge) for number in (1, 2, 3)]
    assert len(set(edges)) == 3  # right, wrong and abstaining look different
    tab.get_by_label("Truth").select_option("")
    tab.get_by_label("only where it abstains").check()
    assert visible.get_attribute("data-number") == "3"
    assert "abstains" in visible.locator(".answer").inner_text()
    tab.get_by_label("only where it abstains").uncheck()
    tab.locator(".filters").get_by_label("Diagnosis").select_option(told[1].diagnosis)
    assert tab.locator(".count").inner_text() == "2 of 3 cases"
    tab.locator(".filters").get_by_label("Diagnosis").select_option("")
    tab.locator("[data-case='2']").focus()
    tab.keyboard.press("Enter")
    assert visible.get_attribute("data-number") == "2"
    tab.get_by_text("Next case").click()
    assert visible.get_attribute("data-number") == "3"
    tab.get_by_text("Next case").click()
    assert visible.get_attribute("data-number") == "1"


@needs_browser
def test_a_phone_need_not_scroll_sideways(tab: Any) -> None:
    tab.set_viewport_size({"width": 400, "height": 800})
    for number in (1, 2, 3):
        tab.locator(f"[data-case='{number}']").click()
        assert tab.evaluate("document.documentElement.scrollWidth") <= 400


@needs_browser
def test_strictness_is_said_and_traversals_unfold_and_print(
    opened: tuple[Any, list[str]], told: list[Explanation], tmp_path: Path
) -> None:
    strict = Strictness("<b>other</b>", 0.7, ("veil",), True, make_cost())
    strips = (TraversalStrip("first & last", 0.25, (0.0, 0.5), torch.stack([told[0].image] * 3)),)
    case = replace(told[0], strict=strict, traversals=strips)
    (tmp_path / "strict.html").write_text(case_page([case]), encoding="utf-8")
    tab, errors = opened
    there = tab.url
    tab.goto((tmp_path / "strict.html").as_uri())
    said = tab.locator(".verdict .strict").inner_text()
    assert said.startswith("Strict tree: each capsule keeps the one parent")
    assert "The ordinary network says otherwise: <b>other</b> (70.0%), and also sees veil" in said
    assert "Measured on 12 cases, the strict network has accuracy 80.0% instead of 90.0%" in said
    assert "-20.0% to -5.0%" in said
    picture = tab.locator(".strips img")
    assert not picture.is_visible()
    tab.locator(".unfold").focus()
    tab.keyboard.press("Enter")
    assert picture.is_visible()
    assert tab.locator(".unfold").get_attribute("aria-expanded") == "true"
    assert picture.get_attribute("alt") == strips[0].sentence()
    assert tab.locator(".values span").all_inner_texts() == ["as it is", "0.00", "0.50"]
    tab.locator(".unfold").click()
    assert not picture.is_visible()
    tab.emulate_media(media="print")
    assert picture.is_visible()
    tab.emulate_media(media="screen")
    assert errors == []
    tab.goto(there)


@needs_browser
def test_dark_and_light_differ(tab: Any) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(colour)
    tab.emulate_media(color_scheme="dark")
    assert sum(map(int, re.findall(r"\d+", tab.evaluate(colour)))) < 150 < sum(map(int, re.findall(r"\d+", light)))


@needs_browser
def test_on_paper_everything_is_there_and_no_control(tab: Any, told: list[Explanation]) -> None:
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.locator(".case:visible").count() == 3
    assert tab.locator(".tree:visible").count() == sum(len(each.trees) for each in told)
    assert tab.locator(".mini:visible").count() == 3 * 8
    assert tab.locator(".all-prototypes:visible img").count() == 7 * len(told[0].concepts[0].prototypes)
    for control in ("input", "select", "button", ".box"):
        assert tab.locator(f"{control}:visible").count() == 0
    dark = "sum => getComputedStyle(document.querySelector('.pt text')).fill"
    assert tab.evaluate(dark) == "rgb(26, 26, 26)"
    assert tab.locator(".case[data-number='1'] .reasons [data-chance] [data-class]").first.inner_text().endswith("%")
