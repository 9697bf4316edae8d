"""A series of explanations: of files, of a data set with its truth, or of the cases that a run never learned from."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from parsecaps.config import ExplainConfig
from parsecaps.data.cases import Case, DataSet
from parsecaps.data.raw_image import RawImage
from parsecaps.data.reading import look_into
from parsecaps.data.sources import SOURCES, open_data
from parsecaps.data.sources.folder import is_image
from parsecaps.explain.explanation import Explanation, Subject, explain, explain_file
from parsecaps.model import Model
from parsecaps.prediction.files import ImageFile, find_files
from parsecaps.types import ProgressCallback, silent

_PLAIN_FOLDERS = ("folder", "unlabelled")  # sources that name files and nothing in them


class Explanations(NamedTuple):
    """What was explained, a line for each image that could not be read, and whether the limit left any out."""

    cases: list[Explanation]
    errors: list[str]
    limited: bool


class _DataCase(NamedTuple):
    data: DataSet
    row: int
    frame: int | None


def explain_series(
    model: Model,
    inputs: Sequence[str | DataSet],
    settings: ExplainConfig,
    *,
    progress: ProgressCallback = silent,
) -> Explanations:
    """Explain images, folders, manifests and data sets; without inputs, the test or validation part of the model's run.

    Of a data set, `settings.limit` cases spread over all of it are taken; of files, the first.
    """
    if settings.risk is not None:
        model.calibration.threshold(settings.risk)
    model.memory, model.strict_cost  # noqa: B018 (read now, so that an error comes before the first image)
    opened = [_open(each) for each in inputs] if inputs else [_unseen(model)]
    limit = settings.limit
    found = list(islice(_found(opened, limit), limit + 1))
    limited = len(found) > limit or any(isinstance(each, DataSet) and len(each) > limit for each in opened)
    cases: list[Explanation] = []
    errors: list[str] = []
    for number, each in enumerate(found[:limit], 1):
        try:
            cases.append(_explain(model, each, settings))
        except (OSError, ValueError) as error:
            errors.append(str(error))
        progress(number, min(len(found), limit))
    if not cases:
        nothing = "there is no image to explain; give at least one, as in parsecaps explain MODEL image.png"
        raise ValueError(errors[0] if errors else nothing)
    return Explanations(cases, errors, limited)


def _open(given: str | DataSet) -> str | DataSet:
    """A data set, where it is one and not images alone."""
    if isinstance(given, DataSet):
        return given
    place = Path(given)
    image = place.is_file() and is_image(place)
    if place.exists() and (image or not any(source.recognise(place) for source in SOURCES.values())):
        return given
    return open_data(given)


def _unseen(model: Model) -> DataSet:
    """The cases of the model's run that it never learned from."""
    run = model.run
    place = model.folder if run is None else run.folder
    give = f"give images or data, as in parsecaps explain {place} image.png"
    if run is None:
        raise ValueError(f"{place} is not the folder of a run, so it has no cases of its own; {give}")
    rows = run.rows("test") or run.rows("val")
    if not rows:
        raise ValueError(f"{place} has neither a test nor a validation part; {give}")
    return run.data.subset(rows)


def _found(opened: Sequence[str | DataSet], limit: int) -> Iterator[ImageFile | _DataCase]:
    for each in opened:
        if isinstance(each, DataSet):
            rows = np.linspace(0, len(each) - 1, min(limit, len(each))).round().astype(int)
            for row in rows.tolist():
                yield from (_DataCase(each, row, frame) for frame in _frames(each, each.cases[row]))
        else:
            yield from find_files([each])


def _frames(data: DataSet, case: Case) -> Sequence[int | None]:
    """The frames of a case; a file in a plain folder of images, such as a DICOM study, may have several."""
    if data.source in _PLAIN_FOLDERS and case.frame is None:
        with suppress(OSError, ValueError):  # what is wrong is said when it is read
            if (frames := look_into(case.image).frames) > 1:
                return range(frames)
    return [case.frame]


def _explain(model: Model, found: ImageFile | _DataCase, settings: ExplainConfig) -> Explanation:
    if isinstance(found, ImageFile):
        if found.error:
            raise ValueError(found.error)
        return explain_file(model, found, settings)
    data, case = found.data, found.data.cases[found.row]
    label = data.classes[case.label] if case.label >= 0 else None
    named = zip(data.concepts, case.concepts, strict=False)
    subject = Subject(
        name=data.name_of(case) if found.frame is None else f"{data.name_of(case)}#{found.frame}",
        truth=label if label in model.classes else None,
        concepts={name: value == 1 for name, value in named if not math.isnan(value)},
    )
    if data.draw is None:
        return explain_file(model, ImageFile(case.image, found.frame), settings, subject)
    raw = RawImage(np.moveaxis(data.draw([found.row])[0], 0, -1), (0.0, 255.0))
    height, width = raw.pixels.shape[:2]
    return explain(model, model.preparation.prepare(raw), settings, replace(subject, shape=(height, width)))
