"""affNIST in its original MATLAB files: MNIST digits under small affine changes, 40 x 40."""

from pathlib import Path

import numpy as np

from parsecaps.data.cases import Case, DataSet, Problem, Split
from parsecaps.data.sources.source import Source

CLASSES = tuple(map(str, range(10)))
PIXELS = 40 * 40
_PARTS: dict[str, Split] = {
    "training": "train",
    "training_and_validation": "train",
    "validation": "val",
    "test": "test",
}
_MAGIC = b"MATLAB 5.0"  # CE-MRI's files say 7.3


def recognise(path: Path) -> bool:
    """Whether the path is a MATLAB 5 file or a folder of them."""
    files = _files(path)
    if not files:
        return False
    with files[0].open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read(path: str) -> DataSet:
    """List the digits of a file, or of the files of a folder, each a frame of its file."""
    root = Path(path)
    files = _files(root)
    if not files:
        raise FileNotFoundError(
            f"{root} is no .mat file and holds none; give a file or the folder with 1.mat, 2.mat, ..."
        )
    cases, problems = [], []
    for file in files:
        try:
            labels = _labels(file)
        except ValueError as error:
            problems.append(Problem(str(file), None, str(error)))
            continue
        split = _split(file)
        cases += [
            Case(file, label, f"{split or 'digit'}-{index}", frame=index, split=split)
            for index, label in enumerate(labels)
        ]
    note = "digits of the same number in several files are changed versions of one MNIST digit and count as one patient"
    return DataSet("affnist", root, CLASSES, (), cases, problems, [note], look_alikes=True)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".mat" else []
    files = [file for file in path.glob("*.mat") if file.is_file()]
    return sorted(files, key=lambda file: (len(file.stem), file.stem))  # 2.mat before 10.mat


def _split(file: Path) -> Split | None:
    """The part of MNIST that the digits come from, told by the original names of the files and folders."""
    names = (file.stem, file.parent.name.removesuffix("_batches"))
    return next((_PARTS[name] for name in names if name in _PARTS), None)


def _labels(path: Path) -> list[int]:
    from scipy.io import loadmat  # optional

    try:
        data = loadmat(path, variable_names=["affNISTdata"])["affNISTdata"][0, 0]
        labels, image = np.asarray(data["label_int"]).ravel(), data["image"]
    except Exception:  # the parser fails in many ways on a file that is not its own
        raise ValueError("the file has no affNISTdata with image and label_int; download it again") from None
    if image.shape != (PIXELS, len(labels)):
        raise ValueError(f"image is {image.shape} for {len(labels)} labels, not ({PIXELS}, {len(labels)}); download it")
    if not np.isin(labels, range(10)).all():
        raise ValueError("label_int is not 0 to 9 everywhere; download it again")
    return [int(label) for label in labels]


SOURCE = Source(
    name="affnist",
    summary="affNIST digits, original MATLAB files",
    layout="a .mat file with affNISTdata, or a folder of them such as test_batches",
    recognise=recognise,
    read=read,
)
