"""The labelling sheet: what each discovered concept shows, and a place to write its name; a CSV comes back."""

import io
from collections.abc import Callable, Sequence

import numpy as np

from parsecaps.explain.case_memory import CaseMemory
from parsecaps.explain.discovery import DiscoveredConcept, Maps
from parsecaps.explain.naming import LONGEST, SHEET_FILE
from parsecaps.explain.thumbnails import jpeg_uri
from parsecaps.report.pages import render

Pictures = Callable[[Sequence[int]], list[bytes]]  # rows of the memory -> JPEG files

_HEAT = np.array([255, 70, 0], dtype=np.float32)
_STRENGTH = 0.65  # of the colour where a map is highest


def naming_page(
    memory: CaseMemory,
    concepts: Sequence[DiscoveredConcept],
    pictures: Pictures,
    *,
    maps: Maps | None = None,
    found_again: Sequence[float] | None = None,
    title: str = "Name the concepts",
) -> str:
    """The whole page as HTML.

    With `maps` each picture has its map beside it; `found_again` is the correlation of each concept with its partner in
    models of other seeds (`Stability.by_concept`).
    """
    shown = []
    for concept in concepts:
        rows = [each.case.row for each in concept.prototypes]
        files = pictures(rows)
        heat = None if maps is None else maps(rows, concept.index)
        overlays = (
            [""] * len(rows) if heat is None else [jpeg_uri(_overlay(*pair)) for pair in zip(files, heat, strict=True)]
        )
        images = zip(concept.prototypes, map(jpeg_uri, files), overlays, strict=True)
        again = None if found_again is None else found_again[concept.index]
        named = not concept.name.startswith("unnamed ")
        shown.append(
            {"concept": concept, "images": list(images), "again": again, "value": concept.name if named else ""}
        )
    return render(
        "naming.html",
        title=title,
        shown=shown,
        cases=len(memory),
        patients=len(np.unique(memory.group)),
        longest=LONGEST,
        sheet={"file": SHEET_FILE, "model": memory.model},
    )


def _overlay(picture: bytes, heat: np.ndarray) -> bytes:
    """A map (size, size) in colour over a JPEG file, strongest where it is highest."""
    from PIL import Image

    below = Image.open(io.BytesIO(picture)).convert("RGB")
    scaled = np.clip(heat / max(float(heat.max()), 1e-12), 0, 1).astype(np.float32)
    share = Image.fromarray(scaled).resize(below.size, Image.Resampling.BILINEAR)
    alpha = _STRENGTH * np.asarray(share)[..., None]
    mixed = np.asarray(below, dtype=np.float32) * (1 - alpha) + _HEAT * alpha
    file = io.BytesIO()
    Image.fromarray(mixed.round().astype(np.uint8)).save(file, "JPEG", quality=82)
    return file.getvalue()
