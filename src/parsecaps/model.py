"""A loaded model: its network, how images are prepared for it, the names of its outputs, and its calibration.

The folder has `config.json` and `model.safetensors` (`models.pretrained`), `bundle.json`, `calibration.json` where
validation patients calibrated it, and fingerprints of the images it learned from (`data.leaks`).
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from parsecaps.config import ExplainConfig, load_settings
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import prepare_image
from parsecaps.files.hub_download import fetch_model, is_hub_name, parse_hub_name
from parsecaps.files.untrusted import checked, read_document
from parsecaps.files.writing import write_text
from parsecaps.metrics.calibration import Calibration
from parsecaps.models import PretrainedModel, load_model
from parsecaps.types import Output

if TYPE_CHECKING:
    from parsecaps.explain.case_memory import CaseMemory
    from parsecaps.explain.explanation import Explanation
    from parsecaps.explain.intervention import ConceptReasoning
    from parsecaps.explain.strict_tree import StrictCost
    from parsecaps.prediction.predict import Prediction
    from parsecaps.run import Run

BUNDLE_FILE = "bundle.json"
FILES_PATTERN = r"(config|bundle|calibration)\.json|(model|fingerprints)\.safetensors|README\.md"  # whole names
_UNNAMED = "unnamed "
_AGAIN = "save the model again"


@dataclass(frozen=True)
class _Stored:
    preparation: dict[str, Any]
    classes: list[str]
    concepts: list[str]


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A network, its preparation, the names of its classes and concepts in the order of its outputs, its calibration.

    `folder` is where it was loaded from. Other files in it, and in the run around it, are read when first needed.
    """

    network: PretrainedModel
    preparation: Preparation
    classes: tuple[str, ...]
    concepts: tuple[str, ...]
    calibration: Calibration = field(default_factory=Calibration)
    folder: Path | None = None

    def __post_init__(self) -> None:
        network, preparation = self.network, self.preparation
        counts = {"classes": network.num_classes, "concepts": network.num_concepts}
        for what, names in (("classes", self.classes), ("concepts", self.concepts)):
            if len(names) != counts[what]:
                raise ValueError(f"{len(names)} names for {counts[what]} {what}; give one for each")
            if len(set(names)) != len(names):
                twice = Counter(names).most_common(1)[0][0]
                raise ValueError(f"two of the {what} are called {twice!r}; give each its own name")
        if (preparation.size, preparation.channels) != (network.image_size, network.in_channels):
            fits = f"{network.in_channels} x {network.image_size}"
            given = f"{preparation.channels} x {preparation.size}"
            raise ValueError(f"images of {given} px do not fit a model of {fits} px; prepare them as {fits} px")

    def __repr__(self) -> str:
        kind, side = type(self.network).__name__, self.preparation.size
        place = "" if self.folder is None else f" of {self.folder}"
        concepts = f"; concepts: {', '.join(self.concepts)}" if self.concepts else ""
        return f"{kind}{place}, {side} px; classes: {', '.join(self.classes)}{concepts}"

    @classmethod
    def load(cls, place: "Run | str | Path", device: str = "auto") -> "Model":
        """The model of a run or its folder, of a saved model's folder, or on the hub (`hf://owner/name@revision`).

        Without a revision, the newest. `device` is auto (a GPU where there is one), cpu or cuda. No code of it is run.
        """
        folder, found = find_model_folder(place), find_device(device)
        path = folder / BUNDLE_FILE
        stored = checked(_Stored, read_document(path, _AGAIN), path, _AGAIN)
        network = load_model(folder).to(found)
        try:
            preparation, calibration = Preparation.from_dict(stored.preparation), Calibration.load(folder)
            return cls(network, preparation, tuple(stored.classes), tuple(stored.concepts), calibration, folder)
        except ValueError as error:
            raise ValueError(str(error) if str(folder) in str(error) else f"{path}: {error}; {_AGAIN}") from None

    def save(self, folder: str | Path) -> None:
        """Write everything into `folder`, which is made if it is not there."""
        folder = Path(folder)
        self.network.save_pretrained(folder)
        stored = _Stored(self.preparation.to_dict(), list(self.classes), list(self.concepts))
        write_text(folder / BUNDLE_FILE, json.dumps(asdict(stored), indent=2) + "\n")
        if self.calibration.quantiles is not None:
            self.calibration.save(folder)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.network.parameters()).device

    def read(self, path: str | Path, frame: int | None = None) -> Tensor:
        """An image file as the network was trained on: (channels, size, size) in [0, 1]."""
        return prepare_image(path, frame, self.preparation.prepare)

    def predict(self, image: str | Path, *, frame: int | None = None, risk: float | None = None) -> "Prediction":
        """What the model says of an image file, the same as `parsecaps predict` writes."""
        from parsecaps.prediction.files import ImageFile
        from parsecaps.prediction.predict import predict_files

        (prediction,) = predict_files(self, [ImageFile(Path(image), frame)], risk=risk)
        if prediction.error:
            raise ValueError(prediction.error)
        return prediction

    def explain(
        self,
        image: Tensor | str | Path,
        settings: ExplainConfig | None = None,
        *,
        frame: int | None = None,
        name: str | None = None,
        **changes: Any,
    ) -> "Explanation":
        """Explain an image file or a prepared image (channels, size, size); `changes` are settings, such as `risk`."""
        from parsecaps.explain.explanation import Subject, explain, explain_file
        from parsecaps.prediction.files import ImageFile

        chosen = load_settings(ExplainConfig, base=settings, values=changes)
        if isinstance(image, Tensor):
            return explain(self, image, chosen, Subject(name or "image"))
        file = ImageFile(Path(image), frame)
        return explain_file(self, file, chosen, Subject(name or file.name))

    @cached_property
    def run(self) -> "Run | None":
        """The run around the folder; None for a model that was given away or saved on its own."""
        from parsecaps.run import Run

        return None if self.folder is None else Run.around(self.folder)

    @cached_property
    def memory(self) -> "CaseMemory | None":
        """What is known of the training cases, where they were remembered; a memory of another model is refused."""
        from parsecaps.explain.case_memory import MEMORY_FILE, CaseMemory

        if self.run is None or not (self.run.known_cases_folder / MEMORY_FILE).is_file():
            return None
        return CaseMemory.load(self.run.known_cases_folder, self)

    @cached_property
    def statistics(self) -> Mapping[str, Tensor] | None:
        """The batch statistics of the strict tree, where the folder has them."""
        from parsecaps.explain.strict_tree import load_statistics

        return None if self.folder is None else load_statistics(self.folder, self.network)

    @cached_property
    def strict_cost(self) -> "StrictCost | None":
        """What the strict tree costs, where an audit measured it."""
        from parsecaps.explain.strict_tree import load_cost

        return None if self.folder is None else load_cost(self.folder, self, self.statistics is not None)

    @cached_property
    def reasoning(self) -> "ConceptReasoning | None":
        """How the concepts add up to the diagnosis in all images, of a model that decides by them alone."""
        found = self.network.reasoning()
        return None if found is None or found.by_image else self.reasoning_of(None)

    @cached_property
    def reasoning_by_image(self) -> "ConceptReasoning | None":
        """That of a network whose weights differ from image to image, for no image: what all of them share."""
        found = self.network.reasoning()
        if found is None or not found.by_image:
            return None
        classes, concepts = len(self.classes), len(self.concepts)
        shapes = {"logits": (0, classes), "presence": (0, concepts), "concept_weights": (0, classes, concepts)}
        return self.reasoning_of(Output(**{name: torch.zeros(shape) for name, shape in shapes.items()}))

    def reasoning_of(self, output: Output | None) -> "ConceptReasoning":
        """How the concepts add up to the diagnosis in the images of an output."""
        from parsecaps.explain.intervention import concept_reasoning

        return concept_reasoning(self, self.memory, temperature=self.calibration.temperature, output=output)


def load(model: "Run | str | Path", device: str = "auto") -> Model:
    """The model of a run or its folder, of a saved model's folder, or on the Hugging Face hub: see `Model.load`."""
    return Model.load(model, device)


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


def concept_names(data: DataSet, network: PretrainedModel) -> tuple[str, ...]:
    """What the concepts of a network that was trained on a data set are called."""
    unnamed = tuple(f"{_UNNAMED}{i + 1}" for i in range(network.num_concepts))
    return (data.concepts or unnamed)[: network.num_concepts]


def is_unnamed(name: str) -> bool:
    """Whether a concept still waits for its name."""
    return name.startswith(_UNNAMED) and name.removeprefix(_UNNAMED).isdecimal()


def find_model_folder(place: "Run | str | Path") -> Path:
    """The folder of a model: itself, that of the run it is the folder of, or the copy of one on the hub (`hf://`)."""
    folder = Path(place)
    if is_hub_name(folder):
        fetched = fetch_model(folder)
        if not (fetched / BUNDLE_FILE).is_file():
            name = parse_hub_name(folder)
            raise FileNotFoundError(f"{name} has no {BUNDLE_FILE}; give a model of parsecaps export --to hub")
        return fetched
    for found in (folder, folder / "bundle"):
        if (found / BUNDLE_FILE).is_file():
            return found
    if folds := sorted(str(path.parent.parent) for path in folder.glob(f"fold-*/bundle/{BUNDLE_FILE}")):
        raise ValueError(f"{folder} is a cross-validation of {len(folds)} models; give one of {', '.join(folds)}")
    raise FileNotFoundError(f"{folder} has no {BUNDLE_FILE}, nor has {folder / 'bundle'}; give a run or a saved model")
