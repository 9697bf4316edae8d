"""The labelling sheet: what each discovered concept shows, and a place to write its name; a CSV comes back."""

import io
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from parsecaps.discovery.discover import DiscoveredConcept, Maps, effective_concepts
from parsecaps.discovery.naming import LONGEST, SHEET_FILE
from parsecaps.discovery.stability import Stability
from parsecaps.explain.case_memory import CaseMemory
from parsecaps.model import is_unnamed
from parsecaps.report.pages import render
from parsecaps.report.pictures import data_uri, map_png

Pictures = Callable[[Sequence[int]], list[bytes]]  # rows of the memory -> JPEG files

_STRENGTH = 0.8  # of the colour where a map is highest


def naming_page(
    memory: CaseMemory,
    concepts: Sequence[DiscoveredConcept],
    pictures: Pictures,
    *,
    maps: Maps | None = None,
    stability: Stability | None = None,
    notes: Mapping[int, str] | None = None,
    title: str = "Name the concepts",
) -> str:
    """The whole page as HTML.

    With `maps` each picture has its map below it; `stability` says how far models of other seeds find each concept
    again. `notes` are those of a former sheet.
    """
    shown = []
    for concept in concepts:
        rows = [each.case.row for each in concept.prototypes]
        files = pictures(rows)
        heat = None if maps is None else maps(rows, concept.index)
        overlays = (
            [""] * len(rows) if heat is None else [data_uri(_overlay(*pair)) for pair in zip(files, heat, strict=True)]
        )
        images = zip(concept.prototypes, map(data_uri, files), overlays, strict=True)
        shown.append(
            {
                "concept": concept,
                "images": list(images),
                "value": "" if is_unnamed(concept.name) else concept.name,
                "note": (notes or {}).get(concept.index, ""),
            }
        )
    return render(
        "naming.html",
        title=title,
        shown=shown,
        cases=len(memory),
        effective=effective_concepts(memory.presence),
        stability=stability,
        mapped=maps is not None,
        patients=len(np.unique(memory.group)),
        longest=LONGEST,
        sheet={"file": SHEET_FILE, "model": memory.model},
    )


def _overlay(picture: bytes, heat: np.ndarray) -> bytes:
    """A map (size, size) over a JPEG file, in the colours that it has on the page of a case."""
    from PIL import Image

    below = Image.open(io.BytesIO(picture)).convert("RGBA")
    above = Image.open(io.BytesIO(map_png(heat))).convert("RGBA").resize(below.size, Image.Resampling.BICUBIC)
    above.putalpha(above.getchannel("A").point(lambda value: round(_STRENGTH * value)))
    file = io.BytesIO()
    Image.alpha_composite(below, above).convert("RGB").save(file, "JPEG", quality=82)
    return file.getvalue()
