"""axe-core, which finds what keeps people with disabilities from using a page; tests skip where it is not installed."""

from pathlib import Path
from typing import Any

import pytest

_SCRIPT = Path(__file__).parents[1] / "page" / "node_modules" / "axe-core" / "axe.min.js"

needs_axe = pytest.mark.skipif(not _SCRIPT.is_file(), reason="page/node_modules is missing: run npm ci in page")


def serious_faults(tab: Any) -> list[str]:
    """What axe calls serious or critical, each with the first element it is about.

    The script is run by the browser's debugger, so that the page's own policy on scripts stays as it is.
    """
    tab.evaluate(_SCRIPT.read_text(encoding="utf-8"))
    found = tab.evaluate("axe.run({resultTypes: ['violations']}).then(({violations}) => violations)")
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary']}" for each in serious]
