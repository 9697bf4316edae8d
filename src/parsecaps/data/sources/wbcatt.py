"""WBCAtt: white blood cells with eleven attributes, each value of which is a concept."""

from pathlib import Path

from parsecaps.data.cases import SPLITS, Case, DataSet, Problem
from parsecaps.data.spreadsheets import CaseList, read_table
from parsecaps.files.writing import Listing

CLASSES = ("Basophil", "Eosinophil", "Lymphocyte", "Monocyte", "Neutrophil")
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "cell_size": ("big", "small"),
    "cell_shape": ("round", "irregular"),
    "nucleus_shape": (
        *("unsegmented-band", "unsegmented-round", "unsegmented-indented"),
        *("segmented-multilobed", "segmented-bilobed", "irregular"),
    ),
    "nuclear_cytoplasmic_ratio": ("low", "high"),
    "chromatin_density": ("densely", "loosely"),
    "cytoplasm_vacuole": ("yes", "no"),
    "cytoplasm_texture": ("clear", "frosted"),
    "cytoplasm_colour": ("light blue", "blue", "purple blue"),
    "granule_type": ("small", "round", "coarse", "nil"),
    "granule_colour": ("pink", "purple", "red", "nil"),
    "granularity": ("yes", "no"),
}
CONCEPTS = tuple(f"{attribute}={value}" for attribute, values in ATTRIBUTES.items() for value in values)


def recognise(path: Path) -> bool:
    """Whether one of the official tables is there."""
    return any(_table(path, split).is_file() for split in SPLITS)


def read(path: str) -> DataSet:
    """List the rows of the official tables, each its own split."""
    root = Path(path)
    if not recognise(root):
        raise FileNotFoundError(f"{root} has no pbc_attr_v1_train.csv, _val.csv or _test.csv; give their folder")
    listing = Listing()
    seen: dict[Path, str] = {}
    cases: list[Case] = []
    problems: list[Problem] = []
    notes = ["the images do not say whose blood it is: each image counts as its own patient"]
    for split in SPLITS:
        file = _table(root, split)
        if not file.is_file():
            notes.append(f"{file.name} is not here: there are no {split} cases")
            continue
        table = read_table(file, required=("label", *ATTRIBUTES, "path"), others=True)
        found = CaseList(file, table.problems)
        for row in table.rows:
            cells = {column: cell.strip() for column, cell in row.cells.items()}
            wrong = [
                f"{column} is {cells[column]!r}; known are {', '.join(known)}"
                for column, known in (("label", CLASSES), *ATTRIBUTES.items())
                if cells[column] not in known
            ]
            written = cells["path"]
            image = listing.find(root / written) if written else None
            if image is None:
                wrong.append(f"image {written or '(blank)'} is missing; put it below {root} or remove the row")
            elif image in seen and seen[image] != file.name:
                wrong.append(f"image {written} is also in {seen[image]}; remove one of the rows")
            found.refuse(row.number, *wrong)
            if wrong or image is None:
                continue
            seen[image] = file.name
            concepts = tuple(float(cells[name] == value) for name, values in ATTRIBUTES.items() for value in values)
            label = CLASSES.index(cells["label"])
            found.add(Case(image, label, written, concepts=concepts, split=split, row=row.number))
        cases += found.cases
        problems += found.problems
    return DataSet("wbcatt", root, CLASSES, CONCEPTS, cases, problems, notes)


def _table(root: Path, split: str) -> Path:
    return root / f"pbc_attr_v1_{split}.csv"
