"""The pictures of the README and the site: a page of explanations as it looks, and as it is used (needs Chromium).

    parsecaps demo --out parsecaps-demo
    parsecaps serve parsecaps-demo/run --port 8000 &
    python -m studies.readme_pictures parsecaps-demo/index.html --app http://127.0.0.1:8000 --out docs

`explanation.jpg` has the parts of one case beside each other: the diagnosis, the map, the concepts and a parse tree.
`pictures/parse_tree.jpg` is the parse tree of the diagnosis alone.
`app.jpg` is the page of the server with five images, one of them with a corrected concept.
`explanation.webp` is a short animation: choose a case, look at maps, correct a concept, open the parse tree.
"""

import argparse
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

from parsecaps.cli.doctor import find_browser

CASE = "000264"  # a melanoma
DOUBTFUL = "000244"  # one that is less certain: a corrected concept changes the diagnosis
CONCEPT = "irregular dots and globules"
CORRECTED = "atypical pigment network"
SIDE_BY_SIDE = """
main, body { max-width: none !important; }
.case:not(.closed) { display: grid; grid-template-columns: 706px 434px; gap: 12px; width: 1176px; padding: 12px;
  box-sizing: border-box; }
.case > section { margin: 0 !important; }
.case > .trees { grid-column: 2; grid-row: 1 / span 2; }
.case > section:not(.verdict, .two, .trees), .shown-prototypes, .slider, .caption, .levels, .detail { display: none; }
.trees > p, .verdict .name { display: none; }
.case .two { grid-template-columns: 330px minmax(0, 1fr); gap: 14px; }
.target { padding: 1px 5px !important; gap: 8px !important; line-height: 1.3;
  grid-template-columns: auto 40px minmax(0, 1fr) !important; }
.mini { width: 40px !important; height: 40px !important; }
.words .soft { white-space: nowrap; }
.tree svg { max-width: none !important; }
"""
CURSOR = """
() => {
  const cursor = document.createElement("div");
  cursor.id = "cursor";
  cursor.innerHTML = '<svg width="22" height="30" viewBox="0 0 22 30"><path fill="#111" stroke="#fff" ' +
    'stroke-width="1.6" d="M2 2v21l5.5-5 3.6 8.6 3.8-1.6-3.6-8.4H19z"/></svg>';
  cursor.style = "position:fixed;z-index:99;left:0;top:0;pointer-events:none";
  document.body.append(cursor);
}
"""
WIDTH, HEIGHT = 880, 680
EFFORT = 6  # of the encoder of the animation, at most 6


@contextmanager
def browser(width: int, height: int, scale: float) -> Iterator[Any]:
    """An empty page of a size, in Chromium."""
    from playwright.sync_api import sync_playwright

    chromium = find_browser()
    if chromium is None:
        raise SystemExit("no Chromium found; install it, as by apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield opened.new_page(viewport={"width": width, "height": height}, device_scale_factor=scale)
        opened.close()


def picture(page: Path, out: Path, case_name: str = CASE, concept: str = CONCEPT) -> None:
    """Write the parts of one case beside each other."""
    with browser(1240, 900, 1.5) as tab:
        tab.goto(page.resolve().as_uri())
        tab.locator(".index button", has_text=case_name).click()
        case = tab.locator(".case:not(.closed)")
        tab.add_style_tag(content=SIDE_BY_SIDE)
        case.locator(".target", has=tab.get_by_text(concept, exact=True)).locator("input").check()
        case.locator(".levels button:has-text('Open all')").evaluate_all("all => all.forEach(b => b.click())")
        case.locator(".slider input").evaluate("e => { e.value = 100; e.dispatchEvent(new Event('input')); }")
        tab.mouse.move(0, 0)
        shown = Image.open(io.BytesIO(case.screenshot()))
    shown.convert("RGB").save(out, quality=88, optimize=True)


def parse_tree(page: Path, out: Path, case_name: str = CASE) -> None:
    """Write the tree of the diagnosis, with every level open."""
    with browser(900, 900, 1.2) as tab:
        tab.goto(page.resolve().as_uri())
        tab.locator(".index button", has_text=case_name).click()
        tree = tab.locator(".case:not(.closed) .tree:not(.closed)")
        tree.get_by_role("button", name="Open all").evaluate("e => e.click()")
        shown = Image.open(io.BytesIO(tree.locator("svg").screenshot()))
    shown.convert("RGB").save(out, quality=88, optimize=True)


def app(address: str, images: Path, out: Path, concept: str = CORRECTED) -> None:
    """Write the page of a server that has been given images, a concept of the first of them corrected."""
    with browser(980, 900, 1) as tab:
        tab.goto(address)
        tab.locator("#files").set_input_files(sorted(map(str, images.glob("melanoma-*.png")))[:5])
        tab.get_by_text("5 images, the most").wait_for()
        case = tab.locator(".case:visible")
        case.locator(".reasons").get_by_label(f"Presence of {concept}", exact=True).evaluate(
            "e => { e.value = 0; e.dispatchEvent(new Event('input', { bubbles: true })); }"
        )
        end = case.locator(".reasons").bounding_box()
        height = round(end["y"] + end["height"] + 12)
        tab.set_viewport_size({"width": 980, "height": height})
        tab.wait_for_timeout(500)
        shown = Image.open(io.BytesIO(tab.screenshot()))
    shown.convert("RGB").save(out, quality=80, optimize=True)


class Film:
    """Frames of a page with a cursor drawn into it, and how long each is shown, in milliseconds."""

    def __init__(self, tab: Any) -> None:
        self.tab, self.at = tab, (WIDTH * 0.6, HEIGHT * 0.75)
        self.frames: list[Image.Image] = []
        self.durations: list[int] = []
        tab.evaluate(CURSOR)

    def shoot(self, duration: int) -> None:
        """Take a frame, or show the last one longer where nothing has changed."""
        x, y = self.at
        self.tab.evaluate(
            "([x, y]) => { document.getElementById('cursor').style.transform = `translate(${x}px, ${y}px)`; }", [x, y]
        )
        frame = Image.open(io.BytesIO(self.tab.screenshot())).convert("RGB")
        if self.frames and frame.tobytes() == self.frames[-1].tobytes():
            self.durations[-1] += duration
            return
        self.frames.append(frame)
        self.durations.append(duration)

    def move(self, place: Any, *, across: float = 0.5, steps: int = 4) -> None:
        """Lead the cursor to an element."""
        box = place.bounding_box()
        goal = (box["x"] + across * box["width"], box["y"] + 0.5 * box["height"])
        start = self.at
        for step in range(1, steps + 1):
            share = step / steps
            share = share * share * (3 - 2 * share)
            self.at = tuple(a + share * (b - a) for a, b in zip(start, goal, strict=True))
            self.tab.mouse.move(*self.at)
            self.shoot(60)

    def click(self, place: Any, hold: int) -> None:
        """Lead the cursor there, click, and wait."""
        self.move(place)
        self.shoot(200)
        self.tab.mouse.click(*self.at)
        self.shoot(hold)

    def scroll_to(self, place: Any, *, room: int = 12, steps: int = 3) -> None:
        """Scroll until an element is at the top."""
        top = place.bounding_box()["y"] - room
        for _ in range(steps):
            self.tab.evaluate("by => window.scrollBy({ top: by, behavior: 'instant' })", top / steps)
            self.shoot(70)

    def save(self, out: Path) -> None:
        """Write the animation."""
        first, *others = self.frames
        first.save(out, save_all=True, append_images=others, duration=self.durations, loop=0, quality=56, method=EFFORT)


def animation(page: Path, out: Path, case_name: str = DOUBTFUL) -> None:
    """Write a film of a page being used; its model must decide by the concepts alone."""
    with browser(WIDTH, HEIGHT, 1) as tab:
        tab.goto(page.resolve().as_uri())
        tab.add_style_tag(content=".tree svg { max-width: 480px !important; }")  # the whole tree is in the frame
        film = Film(tab)
        tab.locator(".index").evaluate("e => e.closest('nav').scrollIntoView()")
        film.shoot(700)
        film.click(tab.locator(".index button", has_text=case_name), 900)
        case = tab.locator(".case:not(.closed)")
        film.scroll_to(case.locator(".two"))
        seen = case.locator(".target:not(.unseen)")
        for number in reversed(range(1, min(3, seen.count()))):  # the most present one last: it has a tree
            film.click(seen.nth(number), 900)
        reasons = case.locator(".reasons")
        film.scroll_to(reasons)
        name = seen.nth(1).locator(".words > span").first.inner_text()
        slider = reasons.get_by_label(f"Presence of {name}", exact=True)
        film.move(slider, across=float(slider.input_value()))
        film.shoot(400)
        start = float(slider.input_value())
        for step in range(1, 6):
            value = start * (1 - step / 5)
            slider.evaluate(
                "(e, value) => { e.value = value; e.dispatchEvent(new Event('input', { bubbles: true })); }", value
            )
            film.move(slider, across=0.04 + 0.92 * value, steps=1)
        film.shoot(1400)
        tree = case.locator(".tree:not(.closed)")
        tree.get_by_role("button", name="Close a level").evaluate("e => { while (!e.disabled) e.click(); }")
        film.scroll_to(tree)
        for _ in range(3):
            film.click(tree.get_by_role("button", name="Open the next level"), 250)
        film.click(tree.locator("circle[role=button]:visible").last, 1600)
    film.save(out)


def main() -> None:
    """Make all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", type=Path, help="index.html of parsecaps demo")
    parser.add_argument("--app", metavar="ADDRESS", help="a server of the same model: make app.jpg, too")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="the folder to write to")
    arguments = parser.parse_args()
    makers = ((picture, "explanation.jpg"), (parse_tree, "pictures/parse_tree.jpg"), (animation, "explanation.webp"))
    for make, name in makers:
        (arguments.out / name).parent.mkdir(parents=True, exist_ok=True)
        make(arguments.page, arguments.out / name)
        print(f"{arguments.out / name}: {(arguments.out / name).stat().st_size:,} bytes")
    if arguments.app:
        app(arguments.app, arguments.page.parent / "images", arguments.out / "app.jpg")


if __name__ == "__main__":
    main()
