"""Anyone's images in a folder per class, optionally below folders train, val and test; or in one folder, unlabelled."""

import os
from contextlib import suppress
from pathlib import Path

from parsecaps.data.cases import EXTENSIONS, SPLIT_WORDS, Case, DataSet, Problem, Split
from parsecaps.data.spreadsheets import wrong_spelling

_JUNK = {"thumbs.db", "desktop.ini", "__macosx"}  # and whatever begins with a point


def recognise(path: Path) -> bool:
    """Whether a folder in it, or in a folder named as a split, has an image directly in it."""
    for folder in entries(path)[0] if path.is_dir() else ():
        inner, files = entries(folder)
        files += [file for child in inner if _split(folder) for file in entries(child)[1]]
        if any(map(is_image, files)):
            return True
    return False


def read(path: str) -> DataSet:
    """List the images; the name of the folder is the class."""
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder; give one with a folder per class")
    folders, files = entries(root)
    problems = [_stray(file) for file in files]
    classes: list[tuple[Path, Split | None]] = [(folder, None) for folder in folders]
    if any(_split(folder) and entries(folder)[0] for folder in folders):
        reason = "the folder lies beside train, val or test; move or remove it"
        problems += [Problem(str(folder), None, reason) for folder in folders if _split(folder) is None]
        below = [(entries(folder), split) for folder in folders if (split := _split(folder))]
        classes = [(child, split) for (inner, _), split in below for child in inner]
        problems += [_stray(file) for (_, files), _ in below for file in files]
    misspelt = wrong_spelling([folder.name for folder, _ in classes])
    listed = []
    for folder, split in classes:
        if folder.name in misspelt:
            problems.append(Problem(str(folder), None, f"class {misspelt[folder.name]}"))
            continue
        inner, files = entries(folder)
        within = "a folder inside the folder of a class is not read; move its images up"
        problems += [Problem(str(child), None, within) for child in inner]
        images = [file for file in files if is_image(file)]
        problems += [_stray(file) for file in files if not is_image(file)]
        if not images:
            problems.append(Problem(str(folder), None, "the folder has no images; put some there or remove it"))
        listed += [(file, folder.name, split) for file in images]
    if not classes:
        raise ValueError(f"{root} has no folders; give one with a folder per class")
    names = tuple(sorted({name for _, name, _ in listed}))
    index = {name: label for label, name in enumerate(names)}
    cases = [Case(file, index[name], file.relative_to(root).as_posix(), split=split) for file, name, split in listed]
    notes = ["a folder does not say whose images they are: each counts as its own patient; a manifest can say it"]
    return DataSet("folder", root, names, (), cases, problems, notes)


def is_image(file: Path) -> bool:
    """Whether a file is an image by its extension, or by the mark of a DICOM file where it has none of ours."""
    if file.name.casefold().endswith(EXTENSIONS):
        return True
    with suppress(OSError), file.open("rb") as opened:
        return opened.read(132)[128:] == b"DICM"
    return False


def entries(folder: Path) -> tuple[list[Path], list[Path]]:
    """Folders and files in a folder, by name, without what operating systems leave behind."""
    with os.scandir(folder) as entries:
        kept = [e for e in entries if not e.name.startswith(".") and e.name.casefold() not in _JUNK]
    kept.sort(key=lambda entry: entry.name)
    folders = [folder / entry.name for entry in kept if entry.is_dir()]
    return folders, [folder / entry.name for entry in kept if not entry.is_dir()]


def _split(folder: Path) -> Split | None:
    return SPLIT_WORDS.get(folder.name.casefold())


def _stray(file: Path) -> Problem:
    what = "the image is in no folder of a class" if is_image(file) else "the file is not an image"
    return Problem(str(file), None, f"{what}; move or remove it")


def recognise_unlabelled(path: Path) -> bool:
    """Whether a folder has images directly in it, and no folders."""
    folders, files = entries(path) if path.is_dir() else ([], [])
    return not folders and any(map(is_image, files))


def read_unlabelled(path: str) -> DataSet:
    """List the images; none has a class or a concept."""
    root = Path(path)
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder; give one with images in it")
    cases = [Case(file, -1, file.name) for file in entries(root)[1] if is_image(file)]
    if not cases:
        raise ValueError(f"{root} has no images directly in it; give a folder that has")
    return DataSet("unlabelled", root, (), (), cases)
