"""A model with all that a prediction needs: its weights, how images are prepared for it, and the names of its outputs.

The folder has `config.json` and `model.safetensors` (`models.pretrained`), `bundle.json`, `calibration.json` where
validation patients calibrated it, and fingerprints of the images it learned from (`data.leaks`). Training, prediction
and serving read the preparation from there and nowhere else, so they cannot drift apart.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import prepare_image
from parsecaps.files.untrusted import checked, read_document
from parsecaps.files.writing import write_atomically
from parsecaps.models import PretrainedModel, load_model
from parsecaps.prediction.calibration import Calibration
from parsecaps.prediction.hub import fetch_model, is_hub_name, parse_hub_name

BUNDLE_FILE = "bundle.json"
FILES_PATTERN = r"(config|bundle|calibration)\.json|(model|fingerprints)\.safetensors|README\.md"  # whole names
_UNNAMED = "unnamed "
_AGAIN = "save the model again"


@dataclass(frozen=True)
class _Stored:
    """What `bundle.json` holds."""

    preparation: dict[str, Any]
    classes: list[str]
    concepts: list[str]


@dataclass(frozen=True)
class Bundle:
    """A model, its preparation, the names of its classes and concepts in the order of its outputs, and its calibration.

    `folder` is where it was loaded from, None for one that was not saved.
    """

    model: PretrainedModel
    preparation: Preparation
    classes: tuple[str, ...]
    concepts: tuple[str, ...]
    calibration: Calibration = field(default_factory=Calibration)
    folder: Path | None = None

    def __post_init__(self) -> None:
        model, preparation = self.model, self.preparation
        for what, names, wanted in (
            ("classes", self.classes, model.num_classes),
            ("concepts", self.concepts, model.num_concepts),
        ):
            if len(names) != wanted:
                raise ValueError(f"{len(names)} names for {wanted} {what}; give one for each")
            if len(set(names)) != len(names):
                twice = Counter(names).most_common(1)[0][0]
                raise ValueError(f"two of the {what} are called {twice!r}; give each its own name")
        if (preparation.size, preparation.channels) != (model.image_size, model.in_channels):
            given = f"{preparation.channels} x {preparation.size} px"
            wanted_size = f"{model.in_channels} x {model.image_size} px"
            raise ValueError(f"images of {given} do not fit a model of {wanted_size}; prepare them as {wanted_size}")

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def read(self, path: str | Path, frame: int | None = None) -> Tensor:
        """An image file as the model was trained on: (channels, size, size) in [0, 1]."""
        return prepare_image(path, frame, self.preparation.prepare)

    def save(self, folder: str | Path) -> None:
        """Write everything into `folder`, which is made if it is not there."""
        folder = Path(folder)
        self.model.save_pretrained(folder)
        stored = {
            "preparation": self.preparation.to_dict(),
            "classes": list(self.classes),
            "concepts": list(self.concepts),
        }
        with write_atomically(folder / BUNDLE_FILE) as file:
            file.write(json.dumps(stored, indent=2) + "\n")
        if self.calibration.quantiles is not None:
            self.calibration.save(folder)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> "Bundle":
        """Read what `save` wrote, the run around it, or a model on the hub (`hf://owner/name@revision`), onto a device.

        No code from the folder is run.
        """
        folder, place = find_bundle(folder), find_device(device)
        path = folder / BUNDLE_FILE
        stored = checked(_Stored, read_document(path, _AGAIN), path, _AGAIN)
        model = load_model(folder).to(place)
        try:
            preparation, calibration = Preparation.from_dict(stored.preparation), Calibration.load(folder)
            return cls(model, preparation, tuple(stored.classes), tuple(stored.concepts), calibration, folder)
        except ValueError as error:
            raise ValueError(str(error) if str(folder) in str(error) else f"{path}: {error}; {_AGAIN}") from None


def find_device(wanted: str) -> torch.device:
    """Where a model is to run: `cpu`, `cuda`, or with `auto` a GPU where there is one.

    >>> find_device("cpu")
    device(type='cpu')
    """
    if wanted not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device is {wanted!r}; choose auto, cpu or cuda")
    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise ValueError("device is 'cuda', but PyTorch finds no GPU here; choose auto or cpu")
    return torch.device("cuda" if there and wanted != "cpu" else "cpu")


def use_gpu(number: int) -> None:
    """Take this of the machine's GPUs, counted around from 0, for what runs on `cuda`; nothing where there is none."""
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())


def unnamed_concepts(count: int) -> tuple[str, ...]:
    """What concepts are called before anybody has named them.

    >>> unnamed_concepts(2)
    ('unnamed 1', 'unnamed 2')
    """
    return tuple(f"{_UNNAMED}{i + 1}" for i in range(count))


def concept_names(data: DataSet, model: PretrainedModel) -> tuple[str, ...]:
    """What the concepts of a model that was trained on a data set are called."""
    return (data.concepts or unnamed_concepts(model.num_concepts))[: model.num_concepts]


def is_unnamed(name: str) -> bool:
    """Whether a concept still waits for its name."""
    return name.startswith(_UNNAMED) and name.removeprefix(_UNNAMED).isdecimal()


def find_bundle(folder: str | Path) -> Path:
    """The folder of the model: itself, that of the run it is the folder of, or the copy of one on the hub (`hf://`)."""
    if is_hub_name(folder):
        fetched = fetch_model(folder)
        if not (fetched / BUNDLE_FILE).is_file():
            name = parse_hub_name(folder)
            raise FileNotFoundError(f"{name} has no {BUNDLE_FILE}; give a model of parsecaps export --to hub")
        return fetched
    folder = Path(folder)
    for place in (folder, folder / "bundle"):
        if (place / BUNDLE_FILE).is_file():
            return place
    if folds := sorted(str(path.parent.parent) for path in folder.glob(f"fold-*/bundle/{BUNDLE_FILE}")):
        raise ValueError(f"{folder} is a cross-validation of {len(folds)} models; give one of {', '.join(folds)}")
    raise FileNotFoundError(f"{folder} has no {BUNDLE_FILE}, nor has {folder / 'bundle'}; give a run or a saved model")
