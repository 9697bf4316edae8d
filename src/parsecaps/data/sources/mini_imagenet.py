"""mini-ImageNet (Vinyals et al. 2016, in the tables of Ravi and Larochelle 2017): photographs of 100 classes."""

from pathlib import Path

from parsecaps.data.cases import Case, DataSet
from parsecaps.data.spreadsheets import CaseList, read_table
from parsecaps.files.writing import Listing

_TABLES = ("train.csv", "val.csv", "test.csv")
_COLUMNS = ("filename", "label")


def recognise(path: Path) -> bool:
    """Whether the images and a table with the columns of mini-ImageNet are there."""
    table = path / _TABLES[0]
    if not (table.is_file() and (path / "images").is_dir()):
        return False
    with table.open(encoding="utf-8-sig", errors="replace") as file:
        return set(_COLUMNS) <= {name.strip() for name in file.readline().split(",")}


def read(path: str) -> DataSet:
    """List the images of all tables there; they part classes and not images, so they are no parts to train and test."""
    root = Path(path)
    tables = [file for name in _TABLES if (file := root / name).is_file()]
    if not tables:
        raise FileNotFoundError(f"{root} has none of {', '.join(_TABLES)}; give the folder with the tables and images")
    rows, problems, listing = [], [], Listing()
    cases: list[Case] = []
    for file in tables:
        table = read_table(file, required=_COLUMNS, others=True)
        rows += [(file, row) for row in table.rows]
        problems += table.problems
    classes = tuple(sorted({row.cells["label"].strip() for _, row in rows}))
    index = {name: label for label, name in enumerate(classes)}
    found = {file: CaseList(file) for file in tables}
    for file, row in rows:
        name = row.cells["filename"].strip()
        image = listing.find(root / "images" / name) if name else None
        if image is None:
            found[file].refuse(row.number, f"image images/{name or '(blank)'} is missing; put it there")
        else:
            found[file].add(Case(image, index[row.cells["label"].strip()], name, row=row.number))
    for each in found.values():
        cases += each.cases
        problems += each.problems
    notes = ["the tables of mini-ImageNet have different classes: images are parted anew, each as its own patient"]
    return DataSet("mini-imagenet", root, classes, (), cases, problems, notes)
