"""The app, as a person uses it: images in, a diagnosis with its reasons out, corrections, a report, a review."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsecaps.report.case_page import case_page
from parsecaps.report.explanation_document import ExplanationDocument
from tests.axe import needs_axe, serious_faults
from tests.browser import needs_browser, page
from tests.data.image_files import colour, write_dicom
from tests.report.certainty import certainty
from tests.serve.running import MELANOMA, NEVUS, OTHER, TOKEN, Running, running

pytestmark = needs_browser
Opened = tuple[Any, list[str], list[str]]
BUSY = 10.0  # seconds, where tests of others run beside this one; two are promised on a quiet machine


@pytest.fixture(scope="module")
def reviewing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(review=tmp_path_factory.mktemp("app") / "reviews.sqlite", risk=0.2) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Opened]:
    """One tab for all tests, the errors on it, and all that it asked for."""
    with page() as (tab, errors):
        asked: list[str] = []
        tab.on("request", lambda request: asked.append(request.url))
        tab.set_default_timeout(20_000)
        yield tab, errors, asked


@pytest.fixture
def opened(browser: Opened) -> Iterator[Any]:
    tab, errors, asked = browser
    tab.emulate_media(media="screen", color_scheme="light")
    tab.set_viewport_size({"width": 1100, "height": 900})
    asked.clear()
    yield tab
    assert errors == []
    home = re.match(r"http://[^/]+", tab.url)
    assert home is not None
    assert asked
    assert all(url.startswith((home[0], "data:", "blob:")) for url in asked)


def choose(tab: Any, *files: Path) -> Any:
    tab.locator("#files").set_input_files([str(file) for file in files])
    tab.locator(".case:visible .answer").wait_for()
    return tab.locator(".case:visible")


def test_an_image_gets_a_diagnosis_with_its_certainty_and_reasons(opened: Any, server: Running) -> None:
    opened.goto(server.address)
    assert "Not a medical device" in opened.locator("header").inner_text()
    opened.locator("#drop").get_by_text("no image is kept").wait_for()
    begun = time.monotonic()
    case = choose(opened, NEVUS)
    assert time.monotonic() - begun < BUSY
    (said,) = server.results(("nevus.png", NEVUS.read_bytes()))
    answer = case.locator(".answer").inner_text()
    if said["abstain"]:
        assert answer == f"The model abstains: {' or '.join(said['set'])} cannot be ruled out."
    else:
        assert answer == f"{said['class']}: {certainty(said['probabilities'][said['class']])}"
    assert case.locator(".targets input").count() == 8
    assert case.locator(".similar img").count() == 5
    assert case.locator(".stage .picture").is_visible()
    assert case.locator(".review").count() == 0
    assert server.left_files() == []


def test_several_are_a_worklist_sorted_by_uncertainty_and_a_bad_file_is_said(
    opened: Any, server: Running, tmp_path: Path
) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    dicom = write_dicom(tmp_path / "a.dcm", np.stack([colour(40, 40)[:, :, 0]] * 2), frames=2, PatientName="Secret")
    opened.goto(server.address)
    choose(opened, NEVUS, tmp_path / "bad.png", MELANOMA, dicom)
    opened.get_by_text("4 images, the most uncertain first. 1 could not be read").wait_for()
    names = opened.locator(".index .name").all_inner_texts()
    assert sorted(names) == ["a.dcm#0", "a.dcm#1", "melanoma.png", "nevus.png"]
    found = [(each["abstain"], each["probabilities"][each["class"]]) for each in map(_one(server, tmp_path), names)]
    assert found == sorted(found, key=lambda each: (not each[0], each[1]))
    assert opened.locator(".case:visible h2").inner_text() == names[0]  # the most uncertain is open
    assert "bad.png is not an image of a known format" in opened.locator(".notes").inner_text()
    assert "Secret" not in opened.content()


def _one(server: Running, folder: Path) -> Any:
    """What the model says of an image by its name on the page."""
    places = {"nevus.png": NEVUS, "melanoma.png": MELANOMA, "a.dcm": folder / "a.dcm"}

    def result(name: str) -> dict[str, Any]:
        file, _, frame = name.partition("#")
        return server.results((file, places[file].read_bytes()))[int(frame or 0)]

    return result


def test_drop_example_report_and_a_new_start(opened: Any, server: Running, tmp_path: Path) -> None:
    opened.goto(server.address)
    opened.evaluate(
        """bytes => {
            const held = new DataTransfer();
            held.items.add(new File([new Uint8Array(bytes)], "</script><b>dropped.png"));
            document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: held, bubbles: true, cancelable: true}));
        }""",
        list(NEVUS.read_bytes()),
    )
    opened.locator(".case:visible .answer").wait_for()
    opened.get_by_role("button", name="Try an example").click()
    opened.get_by_text("2 images, the most").wait_for()
    opened.locator(".index").get_by_text("example 1").click()
    case = opened.locator(".case:visible")
    assert "Known to be nevus" in case.locator(".verdict").inner_text()  # the first is a nevus
    with opened.expect_download() as waiting:
        opened.get_by_role("button", name="Save the report").click()
    report = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(report)
    text = report.read_text(encoding="utf-8")
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    held = ExplanationDocument.model_validate_json(scripts[0])  # what `parsecaps explain` would hold
    assert {each.name for each in held.cases} == {"</script><b>dropped.png", "example 1"}
    offline = opened.context.browser.new_context(offline=True)
    alone = offline.new_page()
    faults: list[str] = []
    alone.on("pageerror", lambda error: faults.append(str(error)))
    alone.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    alone.goto(report.as_uri())
    assert alone.locator("h1").inner_text().startswith("Report of 2 images")
    assert alone.locator(".index button").count() == 2
    assert alone.locator(".case:visible .reasons table").is_visible()
    offline.close()
    assert faults == []
    opened.get_by_role("button", name="Start anew").click()
    assert opened.locator(".case").count() == 0
    assert not opened.get_by_role("button", name="Save the report").is_visible()


def test_a_pasted_image_is_answered(opened: Any, server: Running) -> None:
    """A picture on the clipboard, as a copy from a viewer puts it there; a text is left alone."""
    opened.goto(server.address)
    paste = """([kind, content]) => {
        const held = new DataTransfer();
        if (kind === "text") held.setData("text/plain", content);
        else held.items.add(new File([new Uint8Array(content)], "image.png", {type: "image/png"}));
        document.body.dispatchEvent(new ClipboardEvent("paste", {clipboardData: held, bubbles: true}));
    }"""
    opened.evaluate(paste, ["text", "nevus"])
    assert opened.locator("#status").inner_text() == ""
    opened.evaluate(paste, ["file", list(NEVUS.read_bytes())])
    case = opened.locator(".case:visible")
    case.locator(".answer").wait_for()
    assert case.locator("h2").inner_text() == "image.png"
    (said,) = server.results(("image.png", NEVUS.read_bytes()))
    shown = case.locator(".answer").inner_text()
    assert all(name in shown for name in (said["set"] if said["abstain"] else [said["class"]]))


def test_a_review_by_mouse_and_by_keyboard(opened: Any, reviewing: Running) -> None:
    held: list[Any] = []
    opened.route("**/api/model", lambda route: held.append(route))  # a plain method will not do
    with opened.expect_request("**/api/model"):
        opened.goto(reviewing.address)
    assert not opened.locator("#drop").get_by_text("no image is kept").is_visible()  # not until the server says so
    _until(lambda: opened.evaluate("1") and held)
    held[0].continue_()
    opened.unroute("**/api/model")
    opened.locator("#drop").get_by_text("Those that you review are kept").wait_for()
    assert not opened.locator("#drop").get_by_text("no image is kept").is_visible()
    choose(opened, NEVUS, MELANOMA)
    opened.get_by_text("2 images, the most").wait_for()
    case = opened.locator(".case:visible")
    name = case.locator("h2").inner_text()
    assert "with the image itself" in case.locator(".review").inner_text()
    case.get_by_label("Your name").fill("Ann")
    right = case.get_by_label("The right class").evaluate("each => each.value")
    case.get_by_label("The right class").select_option(right)
    case.get_by_label("The right class").dispatch_event("change")
    case.get_by_label("Is blue-whitish veil there?").select_option("present")
    case.get_by_label("Comment", exact=True).fill("quite sure")
    case.get_by_role("button", name="Draw a box").click()
    place = case.locator(".marks").bounding_box()
    corners = [(place["x"] + place["width"] * part, place["y"] + place["height"] * part) for part in (0.25, 0.5)]
    opened.mouse.move(*corners[0])
    opened.mouse.down()
    opened.mouse.move(*corners[1], steps=4)
    opened.mouse.up()
    case.get_by_label("Comment on mark 1").fill("here")
    case.get_by_role("button", name="Draw freehand").click()
    opened.mouse.move(*corners[0])
    opened.mouse.down()
    opened.mouse.move(corners[1][0], corners[0][1], steps=3)
    opened.mouse.move(*corners[1], steps=3)
    opened.mouse.up()
    case.get_by_role("button", name="Add a box by keyboard").click()
    case.locator(".move").last.focus()
    opened.keyboard.press("ArrowRight")
    opened.keyboard.press("Shift+ArrowDown")
    case.get_by_role("button", name="Save the review").click()
    case.get_by_text("Saved. You may change it").wait_for()
    assert opened.locator(".index [aria-current=true] .reviewed").is_visible()
    store = reviewing.service.reviews
    assert store is not None
    (found,) = store.reviews()
    assert (found.reviewer, found.verdict, found.label, found.comment) == ("Ann", "disagree", right, "quite sure")
    assert found.concepts == {"blue-whitish veil": True}
    box, line, moved = found.marks
    assert (box.kind, box.comment, line.kind) == ("box", "here", "line")
    assert np.ravel(box.points) == pytest.approx([0.25, 0.25, 0.5, 0.5], abs=0.01)
    assert len(line.points) >= 6
    assert moved.points == [[0.37, 0.35], [0.67, 0.67]]
    kept = store.content(found.image)
    assert kept is not None
    assert kept.content == (NEVUS if name == "nevus.png" else MELANOMA).read_bytes()
    case.get_by_role("button", name="As seen for the rest").click()
    case.locator("input[value=agree]").check()
    case.get_by_role("button", name="Save the review").click()
    _until(lambda: len(store.reviews()) == 2)
    case.get_by_text("Earlier reviews of this image").click()
    items = case.locator(".earlier li")
    items.nth(1).wait_for()
    assert (
        f"Ann disagrees with {found.said['class']}: {right}; blue-whitish veil present, 3 marks"
        in items.nth(0).inner_text()
    )
    assert "quite sure" in items.nth(0).inner_text()
    assert f"Ann agrees: {found.said['class']}" in items.nth(1).inner_text()
    again = store.reviews()[1]
    assert (again.verdict, again.label) == ("agree", again.said["class"])
    assert len(again.concepts) == 7


def _until(holds: Any) -> None:
    end = time.monotonic() + BUSY
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_token_is_asked_for(browser: Opened) -> None:
    tab, errors, _ = browser
    with running(OTHER, token=TOKEN) as guarded:
        tab.goto(guarded.address)
        tab.get_by_label("The token of this server").fill("wrong")
        tab.keyboard.press("Enter")
        tab.get_by_text("That is not the token").wait_for()
        tab.get_by_label("The token of this server").fill(TOKEN)
        tab.keyboard.press("Enter")
        tab.get_by_role("button", name="Try an example").wait_for()
        case = choose(tab, NEVUS)
        assert "beside the concepts, not from them" in case.locator(".beside").inner_text()
    assert all("401" in error for error in errors)  # the browser writes down what was refused
    errors.clear()


def test_the_policy_allows_no_script_of_others(browser: Opened, server: Running) -> None:
    opened, errors, _ = browser
    answer = server.client.get("/")
    assert "'unsafe" not in answer.headers["content-security-policy"]
    assert re.findall(r"<script(?![^>]*src=)", answer.text) == []
    assert server.client.get("/static/app/report.html").headers["content-type"].startswith("text/plain")
    opened.goto(server.address)
    opened.evaluate("document.body.insertAdjacentHTML('beforeend', '<a id=x onclick=window.bad=1 href=#>x</a>')")
    opened.locator("#x").click()
    assert opened.evaluate("window.bad") is None
    assert "script-src" in " ".join(errors)
    errors.clear()


@needs_axe
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 400])
def test_axe_finds_no_serious_fault(opened: Any, reviewing: Running, scheme: str, width: int) -> None:
    opened.emulate_media(color_scheme=scheme)
    opened.set_viewport_size({"width": width, "height": 900})
    opened.goto(reviewing.address)
    assert serious_faults(opened) == []
    choose(opened, NEVUS, MELANOMA)
    opened.get_by_text("2 images, the most").wait_for()
    opened.locator(".case:visible .setting input").first.fill("0.5")
    opened.locator(".case:visible").get_by_role("button", name="Add a box by keyboard").click()
    opened.locator(".case:visible").get_by_text("Earlier reviews of this image").click()
    assert serious_faults(opened) == []
    assert opened.evaluate("document.documentElement.scrollWidth") <= width


@needs_axe
def test_axe_finds_no_serious_fault_on_a_page_of_explanations(browser: Opened, server: Running, tmp_path: Path) -> None:
    tab = browser[0]
    model = server.service.explaining
    cases = [model.explain(path, traversals=1) for path in (NEVUS, MELANOMA)]
    (tmp_path / "page.html").write_text(case_page(cases), encoding="utf-8")
    tab.goto((tmp_path / "page.html").as_uri())
    assert serious_faults(tab) == []
