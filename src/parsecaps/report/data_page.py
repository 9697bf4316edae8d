"""The page of `parsecaps data check`: counts, concepts, problems, leaks and pictures, in one file."""

import numpy as np

from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import DataSet
from parsecaps.data.check import PARTS, DataCheck
from parsecaps.data.contact_sheet import contact_sheet
from parsecaps.report.pages import render
from parsecaps.report.pictures import data_uri, png_file

PICTURES_PER_CLASS = 16


def data_page(check: DataCheck, data: DataSet, prepared: PreparedImages) -> str:
    """The whole page as HTML."""
    shares = np.asarray(check.together, dtype=float)
    return render(
        "data.html",
        check=check,
        parts=[part for part in PARTS if part != "unused" or check.patients_by_part[part]],
        most_together=max(1.0, float(shares.max(initial=0))),
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
    return data_uri(png_file(Image.fromarray(np.moveaxis(np.asarray(sheet), 0, -1))))
