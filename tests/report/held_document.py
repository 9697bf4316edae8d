"""The explanation document that a page holds."""

import re
from pathlib import Path

from parsecaps.report.explanation_document import ExplanationDocument


def held_document(page: Path) -> ExplanationDocument:
    """Read and validate it, as the page's own script finds it."""
    found = re.findall(r'<script type="application/json" id="explanation">(.*?)</script>', page.read_text("utf-8"))
    assert len(found) == 1
    return ExplanationDocument.model_validate_json(found[0])
