"""A series of explanations: of files, of a data set with its truth, or of the cases that a run never learned from."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parsecaps.config import ExplainConfig
from parsecaps.data.cases import Case, DataSet
from parsecaps.data.raw_image import RawImage
from parsecaps.data.reading import look_into, read_image
from parsecaps.data.sources import SOURCES, open_data
from parsecaps.data.sources.folder import is_image
from parsecaps.explain.explainer import Explainer
from parsecaps.explain.explanation import Explanation
from parsecaps.prediction.files import ImageFile, find_files
from parsecaps.run import Run
from parsecaps.types import ProgressCallback, silent

_PLAIN_FOLDERS = ("folder", "unlabelled")  # sources that name files and nothing in them


class Explanations(NamedTuple):
    """What was explained, a line for each image that could not be read, and whether the limit left any out."""

    cases: list[Explanation]
    errors: list[str]
    limited: bool


class _DataCase(NamedTuple):
    """A case of a data set, or a frame of its file."""

    data: DataSet
    row: int
    frame: int | None


def explain_series(
    explainer: Explainer,
    inputs: Sequence[str | DataSet],
    settings: ExplainConfig,
    *,
    run: Path | None = None,
    progress: ProgressCallback = silent,
) -> Explanations:
    """Explain images, folders, manifests and data sets.

    Of a data set, `settings.limit` cases spread over all of it are taken, with what is known of them; of files, the
    first ones. Without inputs, the test part of the `run` is explained (validation without one).
    """
    opened = [_open(each) for each in inputs] if inputs else [_unseen(run)]
    limit = settings.limit
    found = list(islice(_found(opened, limit), limit + 1))
    limited = len(found) > limit or any(isinstance(each, DataSet) and len(each) > limit for each in opened)
    cases: list[Explanation] = []
    errors: list[str] = []
    for number, each in enumerate(found[:limit], 1):
        try:
            cases.append(_explain(explainer, each, settings))
        except (OSError, ValueError) as error:
            errors.append(str(error))
        progress(number, min(len(found), limit))
    if not cases:
        raise ValueError(
            errors[0]
            if errors
            else "there is no image to explain; give at least one, as in parsecaps explain MODEL image.png"
        )
    return Explanations(cases, errors, limited)


def _open(given: str | DataSet) -> str | DataSet:
    """A data set, where it is one and not images alone."""
    if isinstance(given, DataSet):
        return given
    place = Path(given)
    if (place.is_file() and is_image(place)) or (
        place.exists() and not any(known.recognise(place) for known in SOURCES.values())
    ):
        return given
    return open_data(given)


def _unseen(path: Path | None) -> DataSet:
    """The cases of a run that it never learned from."""
    give = f"give images or data, as in parsecaps explain {path} image.png"
    if path is None or not Run(path).is_there:
        raise ValueError(f"{path} is not the folder of a run, so it has no cases of its own; {give}")
    run = Run(path)
    rows = run.rows("test") or run.rows("val")
    if not rows:
        raise ValueError(f"{path} has neither a test nor a validation part; {give}")
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


def _explain(explainer: Explainer, found: ImageFile | _DataCase, settings: ExplainConfig) -> Explanation:
    wanted: dict[str, Any] = {
        "method": settings.method,
        "num_trees": settings.trees,
        "strict": settings.strict,
        "traversals": settings.traversals,
    }
    if isinstance(found, ImageFile):
        if found.error:
            raise ValueError(found.error)
        return explainer.explain_file(found.path, found.frame, **wanted)
    data, case = found.data, found.data.cases[found.row]
    raw = _read(data, found.row, case, found.frame)
    label = data.classes[case.label] if case.label >= 0 else None
    height, width = raw.pixels.shape[:2]
    return explainer.explain(
        explainer.bundle.preparation.prepare(raw),
        name=data.name_of(case) if found.frame is None else f"{data.name_of(case)}#{found.frame}",
        **wanted,
        truth=label if label in explainer.bundle.classes else None,
        concept_truth={
            name: value == 1 for name, value in zip(data.concepts, case.concepts, strict=False) if not math.isnan(value)
        },
        original_shape=(height, width),
        source=None if data.draw is not None else ImageFile(case.image, found.frame),
    )


def _read(data: DataSet, row: int, case: Case, frame: int | None) -> RawImage:
    if data.draw is None:
        return read_image(case.image, frame)
    return RawImage(np.moveaxis(data.draw([row])[0], 0, -1), (0.0, 255.0))
