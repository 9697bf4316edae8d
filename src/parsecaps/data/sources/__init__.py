"""The sources of data: one file each, listed here in the order in which they are tried.

A source is imported when it is first used. It must not import `data.reading`, which imports some of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsecaps.data.cases import DataSet, join
from parsecaps.files.writing import plain_name

if TYPE_CHECKING:
    from parsecaps.config import DataSection

__all__ = ["SOURCES", "Source", "absolute", "open_all", "open_data", "set_names"]

_PLAIN = ("manifest", "cases", "images", "data")  # file names that say less than the folder they are in


@dataclass(frozen=True)
class Source:
    """A layout of data. Its `module` of `parsecaps.data` has functions `recognise` and `read`, with this `ending`.

    `layout` says which files it looks for; a source that is chosen `by_name` alone recognises nothing. One that draws
    its images needs no path. `licence` is that of a published set.
    """

    name: str
    summary: str
    layout: str
    module: str = ""
    ending: str = ""
    by_name: bool = False
    needs_path: bool = True
    licence: str = ""

    def recognise(self, path: Path) -> bool:
        """Whether the layout is there; looks at names only."""
        return not self.by_name and bool(self._find("recognise")(path))

    def read(self, path: str) -> DataSet:
        """List the cases below a path, or of what stands after `name:`."""
        data: DataSet = self._find("read")(path)
        return data

    def _find(self, function: str) -> Any:
        module = self.module or f"sources.{self.name}"
        return getattr(import_module(f"parsecaps.data.{module}"), function + self.ending)


_LISTED = (
    Source(
        "phantom",
        "drawn skin lesions with seven known concepts: phantom, or phantom:n=2000,size=64,seed=0",
        "the word phantom",
        module="phantom",
        by_name=True,
        needs_path=False,
    ),
    Source(
        "cemri",
        "CE-MRI brain tumours (figshare 1512427)",
        "a folder with 1.mat, 2.mat, ... and cvind.mat",
        licence="CC BY 4.0",
    ),
    Source(
        "wbcatt",
        "WBCAtt white blood cells with eleven attributes",
        "a folder with pbc_attr_v1_{train,val,test}.csv and PBC_dataset_normal_DIB",
        licence="labels MIT, images CC BY 4.0",
    ),
    Source(
        "mnist",
        "MNIST digits",
        "a folder with train-images-idx3-ubyte.gz, t10k-images-idx3-ubyte.gz and their labels",
        licence="CC BY-SA 3.0",
    ),
    Source(
        "affnist",
        "affNIST digits, original MATLAB files",
        "a .mat file with affNISTdata, or a folder of them such as test_batches",
    ),
    Source(
        "affnist-like",
        "MNIST on a canvas: training digits as they are, test digits under affine changes like affNIST's",
        "affnist-like:PATH_TO_MNIST",
        module="sources.affnist",
        ending="_like",
        by_name=True,
    ),
    Source(
        "ph2d7",
        "PH2 and Derm7pt together",
        "a folder that holds PH2 and Derm7pt, or ph2d7:PATH_TO_PH2,PATH_TO_DERM7PT",
        module="sources.ph2",
        ending="_both",
    ),
    Source(
        "ph2",
        "PH2 dermoscopy: nevus against melanoma, seven concepts, lesion masks",
        "a folder with PH2_dataset.xlsx or PH2_dataset.txt and 'PH2 Dataset images'",
    ),
    Source(
        "derm7pt",
        "Derm7pt dermoscopy: nevus against melanoma, seven concepts, official splits",
        "a folder with meta/meta.csv, meta/{train,valid,test}_indexes.csv and images",
    ),
    Source(
        "derm7pt-clinical",
        "the clinical photographs of Derm7pt, with the concepts of the dermoscopic images",
        "derm7pt-clinical:PATH_TO_DERM7PT",
        module="sources.derm7pt",
        ending="_clinical",
        by_name=True,
    ),
    Source(
        "mini-imagenet",
        "mini-ImageNet: photographs of 100 classes, to find concepts without labels",
        "a folder with images, train.csv, val.csv and test.csv with the columns filename and label",
        module="sources.mini_imagenet",
    ),
    Source(
        "manifest",
        "anyone's images, a CSV table",
        "a .csv file with the columns image and label, or a folder with such a manifest.csv",
    ),
    Source(
        "folder",
        "anyone's images, a folder per class",
        "a folder per class with images in it, or such folders below train, val and test",
    ),
    Source(
        "unlabelled",
        "images that nobody labelled, to learn from beside others",
        "a folder with images directly in it",
        module="sources.folder",
        ending="_unlabelled",
    ),
)
SOURCES: dict[str, Source] = {source.name: source for source in _LISTED}


def open_data(path: str | Path, source: str | None = None) -> DataSet:
    """List the cases of a data set: from the source named, also as `name:path`, or the first whose layout fits."""
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
        names = ", ".join(SOURCES)
        raise FileNotFoundError(f"{location} is not there; give a folder, a table, or one of {names} as NAME:PATH")
    for known in SOURCES.values():
        if known.recognise(location):
            return known.read(text)
    own = " and for ".join(SOURCES[known].layout for known in ("folder", "manifest"))
    raise ValueError(f"{location} fits no source; looked for {own}, and for those of parsecaps data sources")


def open_all(section: "DataSection") -> DataSet:
    """The data set that the settings name, joined with others to learn from."""
    given, wanted = len(section.licences), 1 + len(section.also)
    if given not in (0, wanted):
        raise ValueError(f"{given} licences for {wanted} data sets; give one for each, in their order")
    first = open_data(section.path, section.source)
    if not section.also:
        return first
    paths = [section.path, *section.also]
    return join(set_names(paths), [first, *(open_data(path) for path in section.also)])


def set_names(paths: Sequence[str]) -> list[str]:
    """A short name for each data set, by its path; numbered where two have the same.

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
