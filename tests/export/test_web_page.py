"""The page of `parsecaps export --to web` in a browser: it says what Python says, and asks nobody."""

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import decode_image
from parsecaps.explain.attribution_path import AttributionPath
from parsecaps.export import export_model
from parsecaps.export.onnx import PANELS
from parsecaps.model import Model, load
from parsecaps.models import PlainCNN
from parsecaps.report.case_page import case_page
from parsecaps.report.explanation_document import CasePart, ExplanationDocument, PlaceMap, explanation_document
from tests.axe import needs_axe, serious_faults
from tests.browser import needs_browser, page
from tests.explain.rival_models import make
from tests.export.picture_files import write_pictures
from tests.export.shown_numbers import intervene, shown_numbers
from tests.serve.running import running

pytestmark = needs_browser
GOLDEN = Path(__file__).parents[1] / "golden"
LARGEST = 12_000_000  # bytes
PREPARATIONS = (
    Preparation(64),
    Preparation(64, 3, centre=0.7),
    Preparation(31, 1, "crop", centre=0.9),
    Preparation(64, 3, "stretch"),
    Preparation(48, 1, "pad", "percentile"),
    Preparation(64, 3, "crop", "percentile", 0.7),
)
PREPARE = """async ([file, preparations]) => {
    const blob = new Blob([Uint8Array.from(atob(file), each => each.charCodeAt(0))]);
    const prepared = preparations.map(each => parsecaps.prepare(blob, each));
    return (await Promise.all(prepared)).map(each => btoa(String.fromCharCode(...each.levels)));
}"""


class Opened(NamedTuple):
    """An exported page in a browser; `requests` are what the browser asked for, `errors` what went wrong."""

    tab: Any
    file: Path
    model: Model
    requests: list[str]
    errors: list[str]

    def explain(self, *files: Path) -> list[CasePart]:
        """Give files to the page as a visitor does; the cases that it then has, by its own account."""
        there = self.tab.locator("article").count()
        self.tab.set_input_files("#chooser", files)
        self.tab.locator("article").nth(there + len(files) - 1).wait_for(state="attached")
        return self.document().cases[there:]

    def document(self) -> ExplanationDocument:
        return ExplanationDocument.model_validate(self.tab.evaluate("() => parsecaps.explanation()"))


@contextmanager
def open_export(browser: Any, model: Path, file: Path) -> Iterator[Opened]:
    """Export a model and open the page from its file, offline; in the end it must have asked for nothing else."""
    export_model(model, "web", file)
    tab = browser.new_page()
    requests, errors = watch(tab)
    tab.context.set_offline(True)
    tab.goto(file.as_uri())
    yield Opened(tab, file, load(model), requests, errors)
    tab.close()
    assert requests == [file.as_uri()]
    assert errors == []


def watch(tab: Any) -> tuple[list[str], list[str]]:
    """The lists that a tab's requests and errors will go into."""
    requests: list[str] = []
    errors: list[str] = []
    tab.on("request", lambda request: requests.append(request.url))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    return requests, errors


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with page() as (tab, _):
        yield tab.context.browser


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    with open_export(browser, GOLDEN / "bottleneck", tmp_path_factory.mktemp("web") / "page.html") as found:
        yield found


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {each.name: each for each in write_pictures(tmp_path_factory.mktemp("pictures"))}


def test_images_are_prepared_as_in_python_byte_for_byte(opened: Opened, pictures: dict[str, Path]) -> None:
    for name, path in pictures.items():
        raw = decode_image(path, None)
        file = base64.b64encode(path.read_bytes()).decode()
        found = opened.tab.evaluate(PREPARE, [file, [each.to_dict() for each in PREPARATIONS]])
        for preparation, levels in zip(PREPARATIONS, found, strict=True):
            wanted = preparation.levels(raw).numpy()
            assert base64.b64decode(levels) == wanted.tobytes(), f"{name} by {preparation}"


def test_the_page_says_what_python_says(
    opened: Opened, pictures: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # on the path of the exported graph, which has more points and is not refined
    monkeypatch.setattr(AttributionPath.__init__, "__defaults__", (PANELS, 0, None))
    files = [*sorted((GOLDEN / "images").iterdir())]
    files += [pictures[name] for name in ("colour.png", "opacity.png", "turned-6.jpg", "grey-16.png", "black.png")]
    said = [opened.model.explain(file) for file in files]
    wanted = explanation_document(said, pictures=True).cases
    for found, python in zip(opened.explain(*files), wanted, strict=True):
        assert_same(found, python)
    notes = opened.document().cases[0].notes
    assert any("pictures of patients" in note for note in notes)


def assert_same(found: CasePart, python: CasePart) -> None:
    assert (found.name, found.size, found.method) == (Path(python.name).name, python.size, python.method)
    assert found.diagnosis == python.diagnosis
    assert found.probabilities == pytest.approx(python.probabilities, abs=1e-4)
    assert [each.name for each in found.concepts] == [each.name for each in python.concepts]
    assert [each.presence for each in found.concepts] == pytest.approx([e.presence for e in python.concepts], abs=1e-4)
    assert [each.seen for each in found.concepts] == [each.seen for each in python.concepts]
    assert_same_map(found.class_map, python.class_map)
    for one, other in zip(found.concepts, python.concepts, strict=True):
        assert_same_map(one.map, other.map)
    assert [(each.about, each.name) for each in found.trees] == [(each.about, each.name) for each in python.trees]
    for tree, python_tree in zip(found.trees, python.trees, strict=True):
        if abs(python_tree.value - python_tree.neutral) < 1e-6:  # an empty image: there is nothing to share out
            continue
        assert tree.share == pytest.approx(python_tree.share, abs=1e-4)
        assert (tree.value, tree.neutral) == pytest.approx((python_tree.value, python_tree.neutral), abs=1e-4)
        for node, twin in zip(tree.nodes, python_tree.nodes, strict=True):
            assert node.share == pytest.approx(twin.share, abs=1e-4)
            assert node.activity == pytest.approx(twin.activity, abs=1e-4)
            exact = ("id", "parent", "level", "name", "row", "column", "place", "region", "original")
            assert [getattr(node, name) for name in exact] == [getattr(twin, name) for name in exact]
            strong = (len(twin.capsules) + 1) // 2  # the last have shares of 1e-8, in an order that rounding decides
            assert node.capsules[:strong] == twin.capsules[:strong]
    assert (found.reasons is None) == (python.reasons is None)
    if found.reasons is not None and python.reasons is not None:
        assert found.reasons.sentence == python.reasons.sentence
        assert np.allclose(found.reasons.contributions, python.reasons.contributions, atol=1e-4)


def assert_same_map(found: PlaceMap | None, python: PlaceMap | None) -> None:
    """To a level of 255 after both were rounded, and 1e-3 of the maximum before."""
    assert found is not None
    assert python is not None
    assert found.side == python.side
    assert found.max == pytest.approx(python.max, rel=1e-3, abs=1e-7)
    levels = [np.frombuffer(base64.b64decode(each.levels), np.uint8).astype(int) for each in (found, python)]
    assert np.abs(levels[0] - levels[1]).max() <= 1


@pytest.mark.parametrize("kind", ["explained", "served"])
def test_other_pages_show_the_same_numbers(opened: Opened, browser: Any, tmp_path: Path, kind: str) -> None:
    image = GOLDEN / "images" / "nevus.png"
    opened.explain(image)
    concepts = opened.model.concepts
    settings = {concepts[0]: "absent", concepts[2]: "present"}
    here, changed = shown_numbers(opened.tab), intervene(opened.tab, settings)
    other = browser.new_page()
    if kind == "served":
        with running() as server:
            other.goto(server.address)
            other.locator("#files").set_input_files(str(image))
            other.locator(".case .answer").wait_for()
            there, changed_there = shown_numbers(other), intervene(other, settings)
    else:
        static = tmp_path / "explained.html"
        static.write_text(case_page([opened.model.explain(image)]), encoding="utf-8")
        other.goto(static.as_uri())
        there, changed_there = shown_numbers(other), intervene(other, settings)
    other.close()
    assert here["diagnosis"] == there["diagnosis"]
    assert here["sentence"] == there["sentence"]
    assert here["probabilities"] == pytest.approx(there["probabilities"], abs=0.1001)  # in percent, to a tenth
    assert here["presence"] == pytest.approx(there["presence"], abs=0.01001)
    assert len(here["presence"]) == len(concepts)
    assert changed == pytest.approx(changed_there, abs=1e-4)


def test_the_file_is_small_and_may_connect_to_nothing(opened: Opened) -> None:
    text = opened.file.read_text(encoding="utf-8")
    assert opened.file.stat().st_size <= LARGEST
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src &#39;none&#39;" in policy
    assert "connect-src &#39;none&#39;" in policy
    refused = opened.tab.evaluate("() => fetch('https://example.org').then(() => 'sent', error => String(error))")
    assert "Failed to fetch" in refused
    assert all("Content Security Policy" in error for error in opened.errors)
    opened.errors.clear()
    assert "Not a medical device" in opened.tab.inner_text("main > p")
    assert "no image leaves it" in opened.tab.inner_text("main > p")


def test_what_cannot_be_read_is_refused_in_a_sentence(opened: Opened, tmp_path: Path) -> None:
    files = {
        "scan.dcm": (bytes(128) + b"DICM", "is a DICOM; this page reads PNG, JPEG and BMP"),
        "page.tif": (b"II*\0....", "is a TIFF; this page reads"),
        "brain.nii.gz": (b"\x1f\x8b....", "is a gzip file; this page reads"),
        "empty.png": (b"", "is empty"),
        "notes.txt": (b"hello", "is not an image of a known format"),
        "half.png": ((GOLDEN / "images" / "nevus.png").read_bytes()[:500], "is a damaged PNG"),
        "half.jpg": (b"\xff\xd8\xff\xe0\0\x10", "is a damaged JPEG"),
    }
    for name, (content, _) in files.items():
        (tmp_path / name).write_bytes(content)
    Image.new("CMYK", (8, 8)).save(tmp_path / "print.jpg")
    files["print.jpg"] = (b"", "four colours (CMYK)")
    there = opened.tab.locator("article").count()
    good = tmp_path / "good.png"
    Image.new("L", (8, 8), 90).save(good)
    opened.tab.set_input_files("#chooser", [*(tmp_path / name for name in files), good])
    opened.tab.locator("article").nth(there).wait_for(state="attached")  # the good one among them
    lines = opened.tab.locator("#problems li").all_inner_texts()
    assert len(lines) == len(files)
    for line, (name, (_, words)) in zip(lines, files.items(), strict=True):
        assert line.startswith(f"{name} ")
        assert words in line
    assert opened.document().errors == lines
    assert opened.tab.inner_text("#status") == "Ready."


def test_all_images_can_be_removed_and_the_keyboard_reaches_the_chooser(opened: Opened) -> None:
    opened.explain(GOLDEN / "images" / "nevus.png")
    opened.tab.click("#clear")
    assert opened.document().cases == []
    assert opened.tab.locator("article").count() == 0
    opened.tab.keyboard.press("Tab")
    assert opened.tab.evaluate("() => document.activeElement.id") != "chooser"
    opened.tab.keyboard.press("Shift+Tab")
    assert opened.tab.evaluate("() => document.activeElement.id") == "chooser"


def test_on_a_phone_nothing_is_cut_off(opened: Opened) -> None:
    opened.tab.set_viewport_size({"width": 390, "height": 800})
    opened.explain(GOLDEN / "images" / "nevus.png")
    assert opened.tab.evaluate("() => document.documentElement.scrollWidth") == 390
    opened.tab.set_viewport_size({"width": 1100, "height": 900})


@needs_axe
def test_axe_finds_no_serious_fault(opened: Opened) -> None:
    assert serious_faults(opened.tab) == []
    opened.explain(GOLDEN / "images" / "nevus.png", GOLDEN / "images" / "melanoma.png")
    assert serious_faults(opened.tab) == []


def test_a_model_without_routes_and_concepts_says_what_it_cannot_give(browser: Any, tmp_path: Path) -> None:
    model = PlainCNN.from_preset("tiny", num_classes=2, num_concepts=0)
    Model(model.eval(), Preparation(32), ("benign </script>", "malignant"), ()).save(tmp_path / "model")
    with open_export(browser, tmp_path / "model", tmp_path / "page.html") as without:
        image = GOLDEN / "images" / "nevus.png"
        (found,) = without.explain(image)
        python = without.model.explain(image)
        assert found.diagnosis == python.diagnosis
        assert found.probabilities == pytest.approx(python.probabilities, abs=1e-4)
        assert (found.method, found.class_map, found.trees, found.concepts) == (None, None, [], [])
        notes = without.tab.inner_text(".notes")
        assert "no routes to follow" in notes
        assert "trained without concepts" in notes
        assert "not calibrated" in notes
        assert without.tab.locator("input[type=range]").count() == 0


@pytest.mark.parametrize("name", ["logit", "vectors"])
def test_concepts_of_other_bottlenecks_can_be_corrected(browser: Any, tmp_path: Path, name: str) -> None:
    """Also where the network itself gives the weights of the concepts in an image."""
    make(name).save(tmp_path / "model")
    with open_export(browser, tmp_path / "model", tmp_path / "page.html") as other:
        image = GOLDEN / "images" / "nevus.png"
        (found,) = other.explain(image)
        python = other.model.explain(image).reasons
        assert python is not None
        reasoning = python.reasoning
        own = found.reasoning
        assert (own is not None) == (name == "vectors")
        if own is not None:
            np.testing.assert_allclose(own.weight, reasoning.weight, atol=1e-4)
            np.testing.assert_allclose(own.bias, reasoning.bias, atol=1e-4)
        assert found.reasons is not None
        np.testing.assert_allclose(found.reasons.contributions, python.contributions, atol=1e-3)
        assert found.reasons.sentence == python.sentence()
        changes = {reasoning.concepts[0]: True, reasoning.concepts[2]: False}
        wanted = reasoning.probabilities(reasoning.change(python.presence, changes))
        chances = intervene(other.tab, {each: "present" if to else "absent" for each, to in changes.items()})
        assert chances == pytest.approx(wanted.tolist(), abs=1e-3)
