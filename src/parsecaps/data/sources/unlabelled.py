"""Images that nobody labelled, in one folder, to learn from beside others (`parsecaps pretrain`)."""

from pathlib import Path

from parsecaps.data.cases import Case, DataSet, Source
from parsecaps.data.sources.folder import entries, is_image


def recognise(path: Path) -> bool:
    """Whether a folder has images directly in it, and no folders."""
    if not path.is_dir():
        return False
    folders, files = entries(path)
    return not folders and any(map(is_image, files))


def read(path: str) -> DataSet:
    """List the images; none has a class or a concept."""
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder; give one with images in it")
    cases = [Case(file, -1, file.name) for file in entries(root)[1] if is_image(file)]
    if not cases:
        raise ValueError(f"{root} has no images directly in it; give a folder that has")
    return DataSet("unlabelled", root, (), (), cases)


SOURCE = Source(
    name="unlabelled",
    summary="images that nobody labelled, to learn from beside others",
    layout="a folder with images directly in it",
    recognise=recognise,
    read=read,
)
