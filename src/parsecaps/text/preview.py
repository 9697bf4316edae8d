"""Findings in the terminal: the text with its evidence coloured, and the concepts it gave."""

import math
from typing import TYPE_CHECKING

from parsecaps.text.finding import Findings

if TYPE_CHECKING:
    from rich.text import Text

_STYLES = {1.0: "bold green", 0.0: "bold red"}
_UNKNOWN_STYLE = "bold yellow"


def highlight(text: str, findings: Findings) -> "Text":
    r"""The text with what it asserts in green, what it denies in red and what stays open in yellow, then the concepts.

    >>> from parsecaps.text.finding import Finding
    >>> no_veil = Findings({"veil": 0.0}, (Finding("veil", 0.0, 0, 7, "No veil", "negated"),))
    >>> highlight("No veil.", no_veil).plain
    'No veil.\n  absent: veil'
    """
    from rich.text import Text

    shown = Text(text)
    for finding in sorted(findings.evidence, key=lambda finding: finding.start - finding.end):  # the longest first
        if finding.reason != "another kind is stated":
            shown.stylize(_STYLES.get(finding.value, _UNKNOWN_STYLE), finding.start, finding.end)
    named = {name for name in findings.values if any(finding.concept == name for finding in findings.evidence)}
    for label, style, names in (
        ("present", _STYLES[1.0], [name for name, value in findings.values.items() if value == 1]),
        ("absent", _STYLES[0.0], [name for name, value in findings.values.items() if value == 0]),
        (
            "unknown",
            _UNKNOWN_STYLE,
            [name for name, value in findings.values.items() if math.isnan(value) and name in named],
        ),
    ):
        if names:
            shown.append(f"\n  {label}: ", style).append(", ".join(names))
    return shown
