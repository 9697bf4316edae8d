"""What a reader can do with a case: read how certain it is, correct concepts by their bars, open a tree by levels."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsecaps.explain.explanation import Explanation
from parsecaps.report.case_page import script_text
from parsecaps.report.explanation_document import explanation_document
from tests.browser import needs_browser
from tests.explain.make_explained import make_folder
from tests.explain.rival_models import make
from tests.report.certainty import certainty
from tests.report.empty_view import EMPTY, MOUNT
from tests.report.make_cases import smooth_image

pytestmark = needs_browser


def show(tab: Any, *cases: Explanation) -> Any:
    tab.evaluate(MOUNT, ["one", script_text(explanation_document(cases, pictures=True)), {}])
    return tab.locator(".case:visible")


@pytest.mark.parametrize("highest", [0.34, 0.497, 0.5, 0.65, 0.66, 0.894, 0.9, 0.97, 0.995])
def test_certainty_in_words_and_numbers(tab: Any, told: list[Explanation], highest: float) -> None:
    names = list(told[0].probabilities)
    rest = (1 - highest) / (len(names) - 1)
    chances = {name: highest if name == told[0].diagnosis else rest for name in names}
    case = show(tab, replace(told[0], probabilities=chances))
    assert case.locator(".answer").inner_text() == f"{told[0].diagnosis}: {certainty(highest)}"


def test_a_bar_corrects_a_concept_and_the_diagnosis_follows(tab: Any, told: list[Explanation]) -> None:
    reasons = told[0].reasons
    assert reasons is not None
    reasoning, case = reasons.reasoning, show(tab, told[0])
    presence = reasons.presence.copy()
    j = int(np.ptp(reasoning.weight, axis=0).argmax())
    bar = case.get_by_label(f"Presence of {reasoning.concepts[j]}")
    assert float(bar.input_value()) == pytest.approx(presence[j], abs=0.0051)
    assert not case.locator(".corrected").is_visible()
    seen = set()
    for key, value in (("Home", 0.0), ("End", 1.0)):
        bar.focus()
        tab.keyboard.press(key)
        presence[j] = value
        wanted = reasoning.probabilities(presence)
        found = json.loads(case.locator(".what-if").get_attribute("data-probabilities"))
        assert found == pytest.approx(wanted.tolist(), abs=1e-12)
        best = int(wanted.argmax())
        said = f"{reasoning.classes[best]}, {certainty(wanted[best])}."
        assert case.locator(".corrected").inner_text() == f"With your corrections: {said}"
        assert case.locator(".what-if").inner_text() == f"With these settings: {said}"
        assert case.get_by_label(f"Set {reasoning.concepts[j]} to").input_value() == "by bar"
        seen.add(tuple(found))
    assert len(seen) == 2
    case.get_by_label(f"Set {reasoning.concepts[j]} to").select_option("absent")  # a word takes the place of a number
    wanted = reasoning.probabilities(reasoning.change(reasons.presence, {reasoning.concepts[j]: False}))
    found = json.loads(case.locator(".what-if").get_attribute("data-probabilities"))
    assert found == pytest.approx(wanted.tolist(), abs=1e-12)
    case.locator(".reset").click()
    assert not case.locator(".corrected").is_visible()
    assert float(bar.input_value()) == pytest.approx(reasons.presence[j], abs=0.0051)


@pytest.mark.parametrize("name", ["logit", "activation", "vectors"])
def test_other_bottlenecks_follow_a_corrected_concept_too(tab: Any, name: str) -> None:
    """Those whose weights are of the image alone: each case has its own."""
    model = make(name)
    cases = [model.explain(smooth_image(i), name=f"{i}.png") for i in range(2)]
    document = explanation_document(cases, pictures=True)
    assert (document.model.reasoning is None) == (name == "vectors")
    assert all((case.reasoning is None) == (name != "vectors") for case in document.cases)
    for told in reversed(cases):
        reasons = told.reasons
        assert reasons is not None
        tab.set_content(EMPTY)
        reasoning, case = reasons.reasoning, show(tab, told)
        j = int(np.ptp(reasoning.weight, axis=0).argmax())

        def found(case: Any = case) -> list[float]:
            chances: list[float] = json.loads(case.locator(".what-if").get_attribute("data-probabilities"))
            return chances

        for word, there in (("present", True), ("absent", False)):
            case.get_by_label(f"Set {reasoning.concepts[j]} to").select_option(word)
            wanted = reasoning.probabilities(reasoning.change(reasons.presence, {reasoning.concepts[j]: there}))
            assert found() == pytest.approx(wanted.tolist(), abs=1e-9)
        case.get_by_label(f"Presence of {reasoning.concepts[j]}").focus()
        tab.keyboard.press("End")  # where a logit would not be finite
        wanted = reasoning.probabilities(np.where(np.arange(7) == j, 1.0, reasons.presence))
        assert found() == pytest.approx(wanted.tolist(), abs=1e-9)
        case.locator(".reset").click()
        assert found() == pytest.approx(list(told.probabilities.values()), abs=1e-4)


def test_a_parallel_head_says_why_not(tab: Any, tmp_path: Path) -> None:
    case = show(tab, make_folder(tmp_path, "parallel").explain(smooth_image(0), name="a.png"))
    assert "computes the diagnosis beside the concepts, not from them" in case.locator(".beside").inner_text()
    assert case.locator(".reasons table, .setting").count() == 0


def test_a_tree_is_open_and_closes_level_by_level(tab: Any, told: list[Explanation]) -> None:
    tree, case = told[0].trees[0], show(tab, told[0])
    figure = case.locator(".tree[data-key='diagnosis']")
    levels = sorted({node.level for node in tree.nodes}, reverse=True)
    assert len(levels) > 2

    def shown() -> int:
        return int(figure.locator("circle[role=button]:visible").count())

    def room() -> float:
        """Between the image and the lowest node that is shown."""
        lowest = figure.locator("circle[role=button]:visible").last.bounding_box()
        return float(figure.locator("rect.frame").bounding_box()["y"] - lowest["y"] - lowest["height"] / 2)

    counts = [sum(node.level >= level for node in tree.nodes) for level in levels]
    assert max(Counter(node.level for node in tree.nodes).values()) <= 12
    assert shown() == counts[-1]
    usual = room()
    for count in counts[-2::-1]:
        figure.get_by_text("Close a level").click()
        assert shown() == count
        assert room() == pytest.approx(usual, abs=2)
    assert figure.get_by_text("Close a level").is_disabled()
    for count in counts[1:]:
        figure.get_by_text("Open the next level").click()
        assert shown() == count
    assert figure.get_by_text("Open the next level").is_disabled()
    assert figure.locator(".levels [role=status]").inner_text().startswith(f"{len(levels)} of {len(levels)} levels")
    figure.locator("circle.leaf").first.focus()
    tab.keyboard.press("Enter")
    assert case.locator(".box").is_visible()
    figure.get_by_text("Close a level").click()
    assert shown() == counts[-2]
    assert not case.locator(".box").is_visible()  # the node that it was of is gone
    figure.get_by_text("Open all").click()
    assert shown() == counts[-1]
    figure.get_by_text("Close a level").click()
    tab.emulate_media(media="print")
    assert shown() == counts[-1]
    tab.emulate_media(media="screen")
