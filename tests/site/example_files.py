"""The files that the pages speak of, made small: `python -m tests.site.example_files FOLDER` makes all of them.

`my-images` is a folder per class and `cases.csv` a manifest of the same drawn lesions. `my-run`, `other-run` and the
run in `parsecaps-demo` are trained models (those of `tests/golden`). `study` holds two DICOM slices,
`reports.csv` three reports.
"""

import csv
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from PIL import Image

from parsecaps.data.phantom import CLASSES, CONCEPTS, draw
from tests.export.dicom_studies import slice_of_ct

GOLDEN = Path(__file__).parents[1] / "golden"
IMAGES = 60
SHOWN = (2, 4)  # concepts of the manifest: blue-whitish veil, irregular streaks
REPORTS = (
    ("0000.png", "Irregular streaks, no veil."),
    ("0001.png", "Typical network. Possible blue-white veil."),
    ("0002.png", "Regular globules; streaks are absent."),
)


def my_images(folder: Path) -> None:
    """A folder per class."""
    lesions = draw(range(IMAGES), size=64, seed=5)
    for number in range(IMAGES):
        path = folder / "my-images" / CLASSES[lesions.label[number]] / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(lesions.image[number].transpose(1, 2, 0)).save(path)


def cases(folder: Path) -> None:
    """A manifest of the same images, with their patients and two concepts; a fifth of the concepts are unknown."""
    if not (folder / "my-images").exists():
        my_images(folder)
    lesions = draw(range(IMAGES), size=64, seed=5)
    with (folder / "cases.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["image", "label", "patient", *(f"concept:{CONCEPTS[i]}" for i in SHOWN)])
        for number in range(IMAGES):
            name, patient = CLASSES[lesions.label[number]], f"p{lesions.patient[number]:02}"
            concepts = ["" if number % 5 == 0 else int(lesions.concepts[number, i]) for i in SHOWN]
            table.writerow([f"my-images/{name}/{number:04}.png", name, patient, *concepts])


def reports(folder: Path) -> None:
    """Three reports in a table."""
    with (folder / "reports.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "text"), *REPORTS])


def image(folder: Path) -> None:
    """One drawn lesion."""
    lesion = draw([3], size=64, seed=7).image[0]
    Image.fromarray(lesion.transpose(1, 2, 0)).save(folder / "image.png")


def study(folder: Path) -> None:
    """Two slices of a CT."""
    (folder / "study").mkdir()
    for number in (1, 2):
        slice_of_ct(folder / "study" / f"{number}.dcm", number)


def run(name: str) -> Callable[[Path], None]:
    """A trained model in a run folder."""
    own = {"my-run": "bottleneck", "other-run": "parallel", "parsecaps-demo/run": "bottleneck"}[name]
    return lambda folder: shutil.copytree(GOLDEN / own, folder / name) and None


def demo(folder: Path) -> None:
    """What the demonstration leaves, with a model of the golden runs and one image."""
    run("parsecaps-demo/run")(folder)
    images = folder / "parsecaps-demo" / "images"
    images.mkdir()
    image(images)
    (images / "image.png").rename(images / "melanoma-6.png")


MAKERS: dict[str, Callable[[Path], None]] = {
    "my-images": my_images,
    "cases.csv": cases,
    "reports.csv": reports,
    "image.png": image,
    "study": study,
    "my-run": run("my-run"),
    "other-run": run("other-run"),
    "parsecaps-demo": demo,
}


def make(folder: Path, names: Iterable[str] = MAKERS) -> None:
    """Make the files of these names."""
    for name in names:
        MAKERS[name](folder)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    make(Path(sys.argv[1]))
