"""The documentation builds as a site without a warning and without a network, and its links lead somewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from parsecaps.config import Config, EvaluateConfig, ExplainConfig, PredictConfig, known_keys
from tests.browser import needs_browser, page
from tests.site.blocks import DOCS, PAGES, ROOT

LONGEST_PARAGRAPH = 100  # words
OTHERS = {"results.md"}  # its length has a limit of its own
SOURCES = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}


class Parts(HTMLParser):
    """The links, the anchors and the loaded files of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in SOURCES and SOURCES[tag] in values and values.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(values[SOURCES[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built as `make docs` builds it, by a Python that has no network to ask."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed; run pip install 'parsecaps[docs]'")
    folder = tmp_path_factory.mktemp("site")
    without = {name: "http://127.0.0.1:9" for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")}
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, **without, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def parts(site: Path) -> dict[Path, Parts]:
    """What each page of the site has."""
    found = {}
    for path in sorted(site.rglob("*.html")):
        found[path] = Parts()
        found[path].feed(path.read_text(encoding="utf-8"))
    return found


def test_links_and_anchors_lead_somewhere(site: Path, parts: dict[Path, Parts]) -> None:
    wrong = []
    for path, own in parts.items():
        for link in own.links:
            target = urlsplit(link)
            if target.scheme or target.netloc or path.name == "404.html":
                continue
            file = (path.parent / unquote(target.path)).resolve() if target.path else path
            anchors = parts[file].anchors if file in parts else set()
            if not file.is_file() or (target.fragment and target.fragment not in {*anchors, "__skip"}):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert not wrong, "\n".join(wrong)


def test_nothing_is_loaded_from_elsewhere(site: Path, parts: dict[Path, Parts]) -> None:
    for path, own in parts.items():
        assert not [each for each in own.loaded if re.match(r"(https?:)?//", each)], path
        styles = "".join(re.findall(r"<style.*?</style>", path.read_text(encoding="utf-8"), re.DOTALL))
        assert not re.search(r"url\(['\"]?https?:|@import", styles), path
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text(encoding="utf-8")), style


def test_the_reference_has_everything(site: Path) -> None:
    settings = (site / "settings.html").read_text(encoding="utf-8")
    wanted = [key for key in known_keys(Config) if "." in key]
    wanted += [key for kind in (EvaluateConfig, PredictConfig, ExplainConfig) for key in known_keys(kind)]
    assert not [key for key in wanted if f"<code>{key}</code>" not in settings]
    commands = (site / "commands.html").read_text(encoding="utf-8")
    for name in ("demo", "train", "explain", "data check", "data split", "serve", "doctor"):
        assert f"parsecaps {name}</h3>" in re.sub(r"<a class=\"headerlink\".*?</a>", "", commands), name
    assert "cross_validate" in (site / "api.html").read_text(encoding="utf-8")
    assert "entmax" in (site / "how_it_works.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [*Config.model_fields, EvaluateConfig, PredictConfig, ExplainConfig])
def test_every_setting_says_what_it_is(kind: object) -> None:
    section = type(getattr(Config(), kind)) if isinstance(kind, str) else kind
    assert not [name for name, field in section.model_fields.items() if not field.description]


@needs_browser
@pytest.mark.filterwarnings("default")
def test_the_pages_open_from_a_disk_and_can_be_searched(site: Path) -> None:
    with page() as (opened, errors):
        asked: list[str] = []
        opened.on("request", lambda request: asked.append(request.url))
        opened.goto((site / "how_it_works.html").as_uri())
        assert opened.locator("svg.network").first.bounding_box()["width"] > 400
        opened.goto((site / "index.html").as_uri())
        opened.locator("input.md-search__input").click()
        opened.keyboard.type("conformal")
        opened.locator(".md-search-result__item").first.wait_for(timeout=20_000)
        assert not [url for url in asked if url.startswith("http")]
        assert not errors


def paragraphs(text: str) -> list[str]:
    """The paragraphs and the points of lists, without tables and code."""
    text = re.sub(r"^```.*?^```[ ]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    pieces = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text)
    return [piece for piece in pieces if not piece.lstrip().startswith(("|", "#", "<"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_no_paragraph_is_long(path: Path) -> None:
    if path.name not in OTHERS:
        long = [each for each in paragraphs(path.read_text(encoding="utf-8")) if len(each.split()) > LONGEST_PARAGRAPH]
        assert not long, "\n\n".join(long)


def test_links_of_the_files_in_a_checkout_lead_somewhere() -> None:
    wrong = []
    for path in [*PAGES, *ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md")]:
        text = re.sub(r"^```.*?^```[ ]*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^()\s]+)\)", text):
            file = target.partition("#")[0]
            if file and "://" not in file and not (path.parent / file).exists():
                wrong.append(f"{path.relative_to(ROOT)}: {target}")
    assert not wrong, "\n".join(wrong)


def test_pages_that_the_code_names_are_there() -> None:
    named = set()
    for folder in ("src", "tests", "studies", "benchmarks", "deploy"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".yaml", ".html", "") and path.is_file():
                found = re.findall(r"\b((?:docs|studies)/\w+\.md)", path.read_text(encoding="utf-8", errors="ignore"))
                named |= {(name, str(path.relative_to(ROOT))) for name in found}
    wrong = [f"{path} names {name}" for name, path in sorted(named) if not (ROOT / name).is_file()]
    assert not [each for each in wrong if "docs/README.md" not in each], "\n".join(wrong)


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert not [path.name for path in DOCS if f" {path.name}\n" not in navigation]


def test_every_study_begins_with_a_summary() -> None:
    for path in sorted((ROOT / "studies").glob("*.md")):
        if path.name != "README.md":
            head = path.read_text(encoding="utf-8").partition("\n## ")[0]
            assert len([line for line in head.splitlines()[1:] if line.strip()]) >= 8, path
