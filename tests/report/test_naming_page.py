import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parsecaps.data.preparation import Preparation
from parsecaps.discovery.discover import Discovery, discover_concepts, effective_concepts
from parsecaps.discovery.naming import name_concepts, naming_page
from parsecaps.discovery.stability import Stability
from parsecaps.explain.case_memory import CaseMemory, jpeg
from parsecaps.model import Model
from parsecaps.models import ParseCaps
from parsecaps.models.pretrained import weights_digest
from tests.browser import needs_browser, page
from tests.explain.make import make_memory, make_reasoning

CONCEPTS = ("unnamed 1", "<b>ring</b>", "unnamed 3")
STABILITY = Stability({}, 0.44, 0.1, [0.81, 0.5, 0.0], [0.12, 0.1, 0.0], [0.64, 0.2, 0.0])


@pytest.fixture
def model(tmp_path: Path) -> Model:
    own = Model(ParseCaps.from_preset("tiny", num_classes=3), Preparation(size=32), ("a", "b", "c"), CONCEPTS)
    own.save(tmp_path / "bundle")
    return own


@pytest.fixture
def memory(model: Model) -> CaseMemory:
    presence = np.random.default_rng(0).random((30, 3))
    presence[:, 2] = 0.5
    label = np.where(np.arange(30) < 4, -1, np.arange(30) % 3)
    return replace(make_memory(presence, label=label, names=CONCEPTS), model=weights_digest(model.network))


def pictures(rows: object) -> list[bytes]:
    return [jpeg(np.full((1, 32, 32), 8 * row, np.uint8)) for row in rows]  # type: ignore[attr-defined]


def html(memory: CaseMemory) -> str:
    def left(rows: object, concept: int) -> np.ndarray:
        heat = np.zeros((len(rows), 32, 32))  # type: ignore[arg-type]
        heat[:, :, :8] = 1
        return heat

    concepts = discover_concepts(memory, count=4, maps=left, masks=lambda rows: left(rows, 0))
    found = Discovery(Path("run"), memory, concepts, effective_concepts(memory.presence), left, stability=STABILITY)
    return naming_page(found, pictures, {1: "8 < 9"})


def test_the_sheet_has_all_there_is_to_see_and_needs_nothing_else(memory: CaseMemory) -> None:
    text = html(memory)
    assert text.count("<figure>") == 12
    assert text.count('src="data:image/jpeg;base64,') == 24
    assert "100 % of its maps lies inside the masks, which cover 25 %" in text
    again = "Models of other seeds find it again with a correlation of 0.81 (by chance 0.12; by what it says of the"
    assert f"cover 25 % of the images. {again} class alone 0.64)." in text
    assert text.count(">8 &lt; 9</textarea>") == 1
    assert text.count("It hardly varies") == 1
    assert "&lt;b&gt;ring&lt;/b&gt;" in text
    assert "<b>ring" not in text
    assert not re.search(r'(src|href)="(?!data:)', text)


@needs_browser
def test_from_the_page_to_the_bundle(model: Model, memory: CaseMemory, tmp_path: Path) -> None:
    (tmp_path / "sheet.html").write_text(html(memory), encoding="utf-8")
    with page() as (opened, errors):
        opened.context.set_offline(True)
        opened.goto((tmp_path / "sheet.html").as_uri())
        assert opened.locator("#said").inner_text() == "1 of 3 named"
        name, note = opened.get_by_label("Name", exact=True), opened.get_by_label("Note", exact=True)
        assert name.nth(1).input_value() == "<b>ring</b>"
        name.nth(0).focus()
        opened.keyboard.type('a "bright", Rand; Ödem')  # by keyboard alone: name, note, next name
        opened.keyboard.press("Tab")
        opened.keyboard.type("8 of 9")
        opened.keyboard.press("Tab")
        opened.keyboard.press("Tab")
        opened.keyboard.press("Tab")
        opened.keyboard.type("<B>Ring</B>")
        assert opened.locator("#said").inner_text() == "Concepts 2 and 3 have the same name."
        assert opened.get_by_role("button").is_disabled()
        name.nth(2).fill("")
        note.nth(2).fill("nothing,\nreally")
        with opened.expect_download() as waiting:
            opened.get_by_role("button").press("Enter")
        waiting.value.save_as(tmp_path / waiting.value.suggested_filename)
        for scheme in ("light", "dark"):
            opened.emulate_media(color_scheme=scheme)
            colours = opened.evaluate("['color', 'backgroundColor'].map(k => getComputedStyle(document.body)[k])")
            assert (sum(map(int, re.findall(r"\d+", colours[0]))) < 300) == (scheme == "light")
        for width in (1100, 390):
            opened.set_viewport_size({"width": width, "height": 900})
            assert not opened.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        opened.emulate_media(media="print", color_scheme="dark")
        assert not opened.get_by_role("button").is_visible()
        assert opened.evaluate("getComputedStyle(document.body).color") == "rgb(28, 36, 48)"
    assert errors == []
    changed = name_concepts(tmp_path, tmp_path / "concept-names.csv")
    assert [(each.name, each.note) for each in changed] == [('a "bright", Rand; Ödem', "8 of 9")]
    assert Model.load(tmp_path / "bundle").concepts == ('a "bright", Rand; Ödem', "<b>ring</b>", "unnamed 3")
    assert "nothing, really" in (tmp_path / "concept-names.csv").read_text(encoding="utf-8")
    assert not (tmp_path / "bundle" / "concept-names.csv").exists()  # a note may be about a patient


@needs_browser
def test_a_page_computes_the_same_diagnosis() -> None:
    random = np.random.default_rng(0)
    reasoning = make_reasoning(random.normal(size=(3, 5)), random.normal(size=3), temperature=1.3)
    presence = random.random(5)
    code = """([head, presence]) => {
        const logits = head.weight.map((row, k) => row.reduce((sum, w, j) => sum + w * presence[j], head.bias[k]));
        const powers = logits.map(logit => Math.exp(logit / head.temperature));
        return powers.map(power => power / powers.reduce((a, b) => a + b));
    }"""
    with page() as (opened, errors):
        computed = opened.evaluate(code, [reasoning.as_dict(), presence.tolist()])
    assert computed == pytest.approx(reasoning.probabilities(presence).tolist(), abs=1e-12)
    assert errors == []
