"""A series of explanations: of files, of a data set with its truth, or of the cases that a run never learned from."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from parsecaps.config import ExplainConfig
from parsecaps.data.cases import Case, DataSet
from parsecaps.data.raw_image import RawImage
from parsecaps.data.reading import read_image
from parsecaps.data.sources import SOURCES, open_data
from parsecaps.data.splits import relative_name
from parsecaps.explain.explainer import Explainer
from parsecaps.explain.explanation import Explanation
from parsecaps.prediction.files import find_files
from parsecaps.run import Run

Outcome = Explanation | str  # or why there is none, in one line


def explain_series(
    explainer: Explainer,
    inputs: Sequence[str],
    settings: ExplainConfig,
    *,
    run: Path | None = None,
    limit: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[list[Explanation], list[str]]:
    """Explain images, folders, manifests and data sets; and one line for each image that cannot be read.

    Of a data set, `limit` cases spread over all of it are taken, with what is known of them; of files, the first ones.
    Without inputs, the test part of the `run` is explained (validation without one).
    """
    found: list[Explanation] = []
    errors: list[str] = []
    for number, outcome in enumerate(islice(_outcomes(explainer, inputs, settings, run, limit), limit), 1):
        if isinstance(outcome, Explanation):
            found.append(outcome)
        else:
            errors.append(outcome)
        progress(number)
    if not found:
        raise ValueError(errors[0] if errors else f"{', '.join(inputs)}: there is no image; give at least one")
    return found, errors


def _outcomes(
    explainer: Explainer, inputs: Sequence[str], settings: ExplainConfig, run: Path | None, limit: int | None
) -> Iterator[Outcome]:
    if not inputs:
        data = _unseen(run)
        yield from _cases(explainer, data, settings, limit)
    for text in inputs:
        if (opened := _open(text)) is not None:
            yield from _cases(explainer, opened, settings, limit)
            continue
        for file in find_files([text]):
            if file.error:
                yield file.error
                continue
            try:
                yield explainer.explain_file(file.path, file.frame, **_wanted(settings))
            except (OSError, ValueError) as error:
                yield str(error)


def _wanted(settings: ExplainConfig) -> dict[str, Any]:
    """The settings as arguments of an explainer."""
    return {
        "method": settings.method,
        "num_trees": settings.trees,
        "strict": settings.strict,
        "traversals": settings.traversals,
    }


def _open(text: str) -> DataSet | None:
    """A data set, where it is one and not images alone."""
    place = Path(text)
    if place.exists() and not any(known.recognise(place) for known in SOURCES.values()):
        return None
    return open_data(text)


def _unseen(path: Path | None) -> DataSet:
    """The cases of a run that it never learned from."""
    if path is None or not Run(path).is_there:
        raise ValueError(f"{path} is not the folder of a run, so it has no cases of its own; give images or data")
    run = Run(path)
    rows = run.rows("test") or run.rows("val")
    if not rows:
        raise ValueError(f"{path} has neither a test nor a validation part; give images or data")
    return run.data.subset(rows)


def _cases(explainer: Explainer, data: DataSet, settings: ExplainConfig, limit: int | None) -> Iterator[Outcome]:
    count = len(data) if limit is None else min(limit, len(data))
    for row in np.linspace(0, len(data) - 1, count).round().astype(int).tolist():
        case = data.cases[row]
        label = data.classes[case.label] if case.label >= 0 else None
        concepts = zip(data.concepts, case.concepts, strict=False)
        try:
            raw = _read(data, row, case)
            height, width = raw.pixels.shape[:2]
            yield explainer.explain(
                explainer.bundle.preparation.prepare(raw),
                name=relative_name(data, case) if case.frame is None else f"{relative_name(data, case)}#{case.frame}",
                **_wanted(settings),
                truth=label if label in explainer.bundle.classes else None,
                concept_truth={name: value == 1 for name, value in concepts if not math.isnan(value)},
                original_shape=(height, width),
            )
        except (OSError, ValueError) as error:
            yield str(error)


def _read(data: DataSet, row: int, case: Case) -> RawImage:
    if data.draw is None:
        return read_image(case.image, case.frame)
    return RawImage(np.moveaxis(data.draw([row])[0], 0, -1), (0.0, 255.0))
