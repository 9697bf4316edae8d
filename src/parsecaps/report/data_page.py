"""The page of `parsecaps data check`: counts, concepts, problems, leaks and pictures, in one file."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import DataSet
from parsecaps.data.check import PARTS, DataCheck
from parsecaps.data.splits import describe_unused
from parsecaps.report.pages import render
from parsecaps.report.pictures import data_uri, png_file

PICTURES_PER_CLASS = 16
_GAP = 4
_TEXT_SIZE = 12
_TEXT_HEIGHT = 18
_PAPER, _INK = 255, 20


def data_page(check: DataCheck, data: DataSet, prepared: PreparedImages) -> str:
    """The whole page as HTML."""
    counts = np.asarray(check.co_occurrence, dtype=float)
    return render(
        "data.html",
        check=check,
        parts=[part for part in PARTS if part != "unused" or check.patients_by_part[part]],
        unused=describe_unused(check.unused),
        most_frequent=max(1.0, float(counts.max(initial=0))),
        sheets=[(name, _sheet(data, prepared, label)) for label, name in enumerate(data.classes)],
    )


def _sheet(data: DataSet, prepared: PreparedImages, label: int) -> str:
    """Pictures of a class from all over the data set, as a PNG within the page; empty where there are none."""
    from PIL import Image

    rows = [i for i in prepared.good if data.cases[i].label == label]
    if not rows:
        return ""
    picked = [rows[i] for i in np.linspace(0, len(rows) - 1, min(PICTURES_PER_CLASS, len(rows))).astype(int)]
    captions = [data.cases[i].patient for i in picked]
    sheet = contact_sheet(np.asarray(prepared.images[picked]), captions, columns=8)
    return data_uri(png_file(Image.fromarray(np.moveaxis(sheet, 0, -1))))


def contact_sheet(
    images: npt.NDArray[np.uint8], captions: Sequence[str] | None = None, *, columns: int = 8
) -> npt.NDArray[np.uint8]:
    """Lay pictures out row by row on white; a caption too long for its picture is cut.

    Shapes:
        - images: (N, C, H, W), grey (C = 1) or RGB (C = 3)
        - output: (3, height, width)

    >>> contact_sheet(np.zeros((5, 1, 32, 32), np.uint8), columns=3).shape
    (3, 76, 112)
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3) or images.dtype != np.uint8 or not len(images):
        raise ValueError(f"images are {images.dtype} {images.shape}; give uint8 (N, 1 or 3, H, W) with N at least 1")
    if columns < 1:
        raise ValueError(f"{columns} columns hold no picture; give at least 1")
    if captions is not None and len(captions) != len(images):
        raise ValueError(f"{len(captions)} captions for {len(images)} images; give one for each")
    n, _, height, width = images.shape
    columns = min(columns, n)
    cell_height = height + _GAP + (_TEXT_HEIGHT if captions is not None else 0)
    cell_width = width + _GAP
    rows = -(-n // columns)
    sheet = np.full((3, rows * cell_height + _GAP, columns * cell_width + _GAP), _PAPER, np.uint8)
    for i in range(n):
        top, left = _GAP + i // columns * cell_height, _GAP + i % columns * cell_width
        sheet[:, top : top + height, left : left + width] = images[i]
        if captions is not None:
            sheet[:, top + height : top + height + _TEXT_HEIGHT, left : left + width] = _text(captions[i], width)
    return sheet


def _text(line: str, width: int) -> npt.NDArray[np.uint8]:
    """(height, width) of one line of dark text on white."""
    from PIL import Image, ImageDraw, ImageFont

    strip = Image.new("L", (width, _TEXT_HEIGHT), _PAPER)
    ImageDraw.Draw(strip).text((1, 1), line, fill=_INK, font=ImageFont.load_default(_TEXT_SIZE))
    return np.asarray(strip)
