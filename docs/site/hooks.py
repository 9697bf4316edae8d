"""What MkDocs asks for while it builds the site: pages from elsewhere, generated tables, links that lead out of docs.

The pages are written to be read in a checkout as well, so their links are those of the repository. On the site, the
studies are below `studies/`, CONTRIBUTING.md is `develop.md`, and any other file of the repository is a name alone.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from docs.site.reference import GENERATED, source_of  # noqa: E402

PICTURES = {".png", ".jpg", ".svg"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
MARKER = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
SOURCE = re.compile(r"^<!-- source: ([\w.]+) -->$", re.MULTILINE)
DRAWING = re.compile(r"^!\[[^\]]*\]\((assets/\w+\.svg)\)$", re.MULTILINE)


def from_elsewhere() -> dict[str, Path]:
    """The pages and pictures that do not lie in docs: their name on the site, and their file."""
    studies = sorted((ROOT / "studies").glob("*.md"), key=lambda path: (path.name != "README.md", path.name))
    named = {f"studies/{'index' if path.name == 'README.md' else path.stem}.md": path for path in studies}
    pictures = [path for path in (ROOT / "studies").rglob("*") if path.suffix in PICTURES]
    named |= {path.relative_to(ROOT).as_posix(): path for path in pictures}
    return {**named, "develop.md": ROOT / "CONTRIBUTING.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put every study into the navigation, before the last entry."""
    pages: list[Any] = [name for name in from_elsewhere() if name.startswith("studies/") and name.endswith(".md")]
    assert config.nav is not None
    config.nav.insert(-1, {"Studies": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not lie in docs."""
    for name, path in from_elsewhere().items():
        files.append(File.generated(config, name, content=path.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and turn links of the repository into links of the site."""
    markdown = MARKER.sub(lambda found: GENERATED[found[1]](), markdown)
    markdown = SOURCE.sub(lambda found: f"```python\n{source_of(found[1])}\n```", markdown)
    markdown = DRAWING.sub(lambda found: f"<figure>{drawing(found[1])}</figure>", markdown)
    own = from_elsewhere().get(page.file.src_uri, ROOT / "docs" / page.file.src_uri)
    folder = own.parent.relative_to(ROOT).as_posix()
    return outside_code(markdown, lambda text: LINK.sub(lambda found: relink(found, folder, page.file.src_uri), text))


def drawing(name: str) -> str:
    """A drawing as a part of the page, so that it takes the page's colours."""
    return (ROOT / "docs" / name).read_text(encoding="utf-8").replace("\n", " ")


def relink(found: re.Match[str], folder: str, page: str) -> str:
    """A link as the site needs it, or its text alone where it leads to a file that the site does not have."""
    picture, text, target = found.groups()
    path, hash_sign, anchor = target.partition("#")
    if not path or "://" in target or target.startswith("mailto:"):
        return found[0]
    place = posixpath.normpath(posixpath.join(folder, path))
    there = {file.relative_to(ROOT).as_posix(): name for name, file in from_elsewhere().items()}
    if place in there:
        place = there[place]
    elif place.startswith("docs/"):
        place = place.removeprefix("docs/")
    elif (ROOT / place).exists():
        return text
    else:
        return found[0]  # MkDocs says that it leads nowhere
    return f"{picture}[{text}]({posixpath.relpath(place, posixpath.dirname(page) or '.')}{hash_sign}{anchor})"


def outside_code(markdown: str, change: Any) -> str:
    """The text with everything but its fenced blocks changed."""
    parts = re.split(r"(^```.*?^```[ ]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))
