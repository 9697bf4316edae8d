"""The sources of data: one file each, listed here in the order in which they are tried.

A source is imported when it is first asked for: a reader needs the formats of a few alone. It needs nothing of
`data.reading`, which imports it.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from parsecaps.data.cases import DataSet, Source, join
from parsecaps.files.writing import plain_name

if TYPE_CHECKING:
    from parsecaps.config import DataSection

__all__ = ["SOURCES", "Source", "absolute", "open_all", "open_data", "set_names"]

_PLAIN = ("manifest", "cases", "images", "data")  # file names that say less than the folder they are in
_PLACES = {  # by the name of a source: the module in `parsecaps.data` that it stands in, and what it is called there
    "phantom": ("phantom", "SOURCE"),
    "cemri": ("sources.cemri", "SOURCE"),
    "wbcatt": ("sources.wbcatt", "SOURCE"),
    "mnist": ("sources.mnist", "SOURCE"),
    "affnist": ("sources.affnist", "SOURCE"),
    "affnist-like": ("sources.affnist", "LIKE"),
    "ph2d7": ("sources.ph2", "PH2D7"),
    "ph2": ("sources.ph2", "SOURCE"),
    "derm7pt": ("sources.derm7pt", "SOURCE"),
    "manifest": ("sources.manifest", "SOURCE"),
    "folder": ("sources.folder", "SOURCE"),
    "unlabelled": ("sources.folder", "UNLABELLED"),
}


class _Sources(Mapping[str, Source]):
    """The sources by name."""

    def __getitem__(self, name: str) -> Source:
        module, attribute = _PLACES[name]
        source: Source = getattr(import_module(f"parsecaps.data.{module}"), attribute)
        return source

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


SOURCES: Mapping[str, Source] = _Sources()


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
    own = " and for ".join(SOURCES[known].layout for known in ("folder", "manifest"))
    raise ValueError(
        f"{location} fits no source; looked for {own}, and for the published sets of parsecaps data sources"
    )


def open_all(section: "DataSection") -> DataSet:
    """The data set that the settings name; where they name others to learn from as well, all of them as one."""
    given, wanted = len(section.licences), 1 + len(section.also)
    if given not in (0, wanted):
        raise ValueError(f"{given} licences for {wanted} data sets; give one for each, in their order")
    first = open_data(section.path, section.source)
    if not section.also:
        return first
    paths = [section.path, *section.also]
    return join(set_names(paths), [first, *(open_data(path) for path in section.also)])


def set_names(paths: Sequence[str]) -> list[str]:
    """A short name for each data set, by its path; numbered where two would be called the same.

    >>> set_names(["data/isic/manifest.csv", "data/bus", "other/bus", "phantom:n=200,size=64"])
    ['isic', 'bus', 'bus-2', 'phantom']
    """
    names: list[str] = []
    for path in paths:
        place = Path(path.partition(",")[0])
        name = place.stem if place.suffix else place.name
        if name.lower() in _PLAIN and place.parent.name:
            name = place.parent.name
        name = plain_name(name.partition(":")[0]) or "data"
        numbered = (f"{name}-{number}" for number in count(2))
        names.append(name if name not in names else next(each for each in numbered if each not in names))
    return names


def absolute(path: str) -> str:
    """The data set's name such that it can be found from another folder too.

    >>> absolute("phantom:n=200")
    'phantom:n=200'
    """
    if Path(path).exists():
        return str(Path(path).resolve())
    source, colon, place = path.partition(":")
    return f"{source}:{Path(place).resolve()}" if colon and place and Path(place).exists() else path
