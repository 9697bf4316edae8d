"""The sources of data: one file each, listed here in the order in which they are tried.

A source and the format of its files need nothing of `data.reading`, which imports them.
"""

from pathlib import Path

from parsecaps.data import phantom
from parsecaps.data.cases import DataSet, Source
from parsecaps.data.sources import (
    affnist,
    affnist_like,
    cemri,
    derm7pt,
    folder,
    manifest,
    mnist,
    ph2,
    unlabelled,
    wbcatt,
)

__all__ = ["SOURCES", "Source", "open_data"]

_LISTED = (
    phantom.SOURCE,
    cemri.SOURCE,
    wbcatt.SOURCE,
    mnist.SOURCE,
    affnist.SOURCE,
    affnist_like.SOURCE,
    ph2.PH2D7,
    ph2.SOURCE,
    derm7pt.SOURCE,
    manifest.SOURCE,
    folder.SOURCE,
    unlabelled.SOURCE,
)
SOURCES: dict[str, Source] = {source.name: source for source in _LISTED}


def open_data(path: str | Path, source: str | None = None) -> DataSet:
    """List the cases of a data set.

    The source is the one named, or the one written before the path as `name:path`, or the first whose layout is there.
    """
    text = str(path)
    name, colon, rest = text.partition(":")
    named = name in SOURCES and (bool(colon) or not SOURCES[name].needs_path)
    if source is None and named and not Path(text).exists():
        source, text = name, rest
    if source is not None:
        if source not in SOURCES:
            raise ValueError(f"source {source!r} is not known; choose one of {', '.join(SOURCES)}")
        return SOURCES[source].read(text)
    location = Path(text)
    if not location.exists():
        raise FileNotFoundError(
            f"{location} is not there; give a folder, a table, or one of {', '.join(SOURCES)} as NAME:PATH"
        )
    for known in SOURCES.values():
        if known.recognise(location):
            return known.read(text)
    own = " and for ".join(known.layout for known in (folder.SOURCE, manifest.SOURCE))
    raise ValueError(
        f"{location} fits no source; looked for {own}, and for the published sets of parsecaps data sources"
    )
