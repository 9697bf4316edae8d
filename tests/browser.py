"""A real browser for tests of pages: Debian's Chromium, driven by Playwright; without it such tests are skipped."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from parsecaps.cli.doctor import find_browser

CHROMIUM = find_browser()
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found: install Debian's package chromium")


@contextmanager
def page(width: int = 1100, height: int = 900) -> Iterator[tuple[Any, list[str]]]:
    """An empty page and the list of errors that scripts and requests cause on it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        opened = browser.new_page(viewport={"width": width, "height": height})
        errors: list[str] = []
        opened.on("pageerror", lambda error: errors.append(str(error)))
        opened.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        opened.on("requestfailed", lambda request: errors.append(request.url))
        yield opened, errors
        browser.close()
