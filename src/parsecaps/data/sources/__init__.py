"""The sources of data: one file each, listed here in the order in which they are tried."""

from pathlib import Path

from parsecaps.data.cases import DataSet
from parsecaps.data.sources import (
    affnist,
    affnist_like,
    cemri,
    derm7pt,
    folder,
    manifest,
    mnist,
    ph2,
    ph2d7,
    phantom,
    wbcatt,
)
from parsecaps.data.sources.source import Source

__all__ = ["SOURCES", "Source", "open_data"]

_MODULES = (phantom, cemri, wbcatt, mnist, affnist, affnist_like, ph2d7, ph2, derm7pt, manifest, folder)
SOURCES: dict[str, Source] = {module.SOURCE.name: module.SOURCE for module in _MODULES}


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
    place = Path(text)
    if not place.exists():
        raise FileNotFoundError(
            f"{place} is not there; give a folder, a table, or one of {', '.join(SOURCES)} as NAME:PATH"
        )
    for known in SOURCES.values():
        if known.recognise(place):
            return known.read(text)
    own = " and for ".join(known.layout for known in (folder.SOURCE, manifest.SOURCE))
    raise ValueError(f"{place} fits no source; looked for {own}, and for the published sets of parsecaps data sources")
