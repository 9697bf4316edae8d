"""What a model makes of its training cases, kept in its run: the known cases that explanations refer to.

The files hold names, patients and small pictures of training cases. They lie in `known_cases` of the run, outside of
the bundle, which works without them and can be given away.
"""

import io
import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from parsecaps.data.case_set import CaseSet
from parsecaps.explain.strict_tree import STATISTICS_CASES, save_statistics, strict_statistics
from parsecaps.files.untrusted import read_arrays
from parsecaps.files.writing import make_private_folder, refuse_links, write_binary
from parsecaps.metrics.predictions import Predictions
from parsecaps.model import Model
from parsecaps.models.pretrained import weights_digest
from parsecaps.nn.recorder import couplings_of, hooked
from parsecaps.prediction.predict import as_array, predict_cases
from parsecaps.run import Run
from parsecaps.types import Output, ProgressCallback, silent

MEMORY_FILE = "memory.npz"
THUMBNAILS_FILE = "thumbnails.zip"
_AGAIN = "make the memory of the run again"

_PROTOTYPES = 4  # of each concept
_CHUNK = 8192  # cases whose distances are computed at once
SIDE = 96  # pixels; smaller images keep their size
_QUALITY = 82
_LARGEST_PICTURE = 1_000_000  # bytes
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same pictures make the same file


@dataclass(frozen=True, eq=False)
class CaseMemory:
    """N known cases of a model with m concepts: what it said, what is true, and where they lie in concept space.

    `predictions` always has a presence; its concepts are unknown without concept labels. `model` is a digest of the
    weights. `folder` is where the memory was loaded from, with pictures of the cases.

    Shapes:
        - capsules: (N, m, d_c) float16, the concept capsules; d_c is 0 where there are none
        - global_capsule: (N, m) float32, zeros where there is none
        - presence: (N, m) in [0, 1); truth: (N, m), 1, 0 or NaN = unknown; group: (N,) the number of each patient
    """

    predictions: Predictions
    capsules: np.ndarray
    global_capsule: np.ndarray
    model: str
    temperature: float = 1.0
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.predictions)

    @property
    def presence(self) -> np.ndarray:
        assert self.predictions.presence is not None
        return self.predictions.presence

    @property
    def truth(self) -> np.ndarray:
        assert self.predictions.concepts is not None
        return self.predictions.concepts

    @cached_property
    def group(self) -> np.ndarray:
        return self.predictions.groups()

    @cached_property
    def probabilities(self) -> np.ndarray:
        return self.predictions.probabilities(self.temperature)

    @cached_property
    def prototypes(self) -> list[tuple["Prototype", ...]]:
        return [tuple(prototypes(self, j, _PROTOTYPES)) for j in range(self.presence.shape[1])]

    @cached_property
    def prototype_pictures(self) -> dict[int, bytes]:
        return self.pictures([each.case.row for group in self.prototypes for each in group])

    def pictures(self, rows: Sequence[int]) -> dict[int, bytes]:
        """JPEG files of cases, by row; none where they were not kept."""
        if self.folder is None or not (self.folder / THUMBNAILS_FILE).is_file():
            return {}
        return dict(zip(rows, read_thumbnails(self.folder / THUMBNAILS_FILE, rows), strict=True))

    def save(self, folder: str | Path) -> None:
        """Write `memory.npz` into a folder: arrays, and the names as JSON in bytes; nothing needs pickle."""
        path = Path(folder) / MEMORY_FILE
        names = {"name": list(self.predictions.name), "patient": list(self.predictions.patient), "model": self.model}
        with write_binary(path, private=True) as file:
            np.savez_compressed(
                file,
                names=np.frombuffer(json.dumps(names).encode(), dtype=np.uint8),
                logits=self.predictions.logits.astype(np.float32),
                label=self.predictions.label.astype(np.int32),
                presence=self.presence.astype(np.float32),
                concepts=self.truth.astype(np.float16),
                capsules=self.capsules,
                global_capsule=self.global_capsule,
            )

    @classmethod
    def load(cls, folder: str | Path, model: Model) -> "CaseMemory":
        """Read what `save` wrote of this model, which gives the names of classes and concepts."""
        path = Path(folder) / MEMORY_FILE
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing, so no known cases can be shown; {_AGAIN}")
        try:
            arrays = read_arrays(path)
            names = json.loads(arrays.pop("names").tobytes().decode())
            capsules, global_capsule = arrays.pop("capsules"), arrays.pop("global_capsule")
            if capsules.shape[:2] != arrays["presence"].shape or global_capsule.shape != arrays["presence"].shape:
                raise ValueError(f"capsules {capsules.shape} for presences {arrays['presence'].shape}")
            if not (np.isfinite(capsules).all() and np.isfinite(global_capsule).all()):
                raise ValueError("capsules that are not finite")
            predictions = Predictions(
                **arrays,
                name=[str(name) for name in names["name"]],
                patient=[str(patient) for patient in names["patient"]],
                classes=model.classes,
                concept_names=model.concepts,
            )
            digest = str(names["model"])
        except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a memory of this model's cases ({error}); {_AGAIN}") from None
        if digest != weights_digest(model.network):
            raise ValueError(f"{path} is the memory of another model than the one beside it; {_AGAIN}")
        return cls(predictions, capsules, global_capsule, digest, model.calibration.temperature, Path(folder))


def remember(model: Model, cases: CaseSet, *, batch_size: int = 64, progress: ProgressCallback = silent) -> CaseMemory:
    """Look at these cases, whose images were prepared as the model says."""
    if not len(cases):
        raise ValueError(f"{cases.data.root} has no cases to remember; give at least one")
    noted: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def note(module: nn.Module, inputs: Any, output: Output) -> None:
        if output.presence is None:
            raise ValueError("the model has no concepts, so no concept space to find cases in; train one with concepts")
        place, whole, present = output.concept_capsules, output.global_capsule, output.presence
        capsules = as_array(present.new_zeros(*present.shape, 0) if place is None else place).astype(np.float16)
        global_capsule = as_array(torch.zeros_like(present) if whole is None else whole[:, 0]).astype(np.float32)
        noted.append((capsules, global_capsule, as_array(present.clamp(max=1))))  # a length of 1, rounded up

    with hooked([model.network], note):
        predictions = predict_cases(model, cases, batch_size=batch_size, progress=progress)
    capsules, global_capsule, seen = map(np.concatenate, zip(*noted, strict=True))
    truth = np.full(seen.shape, np.nan) if predictions.concepts is None else predictions.concepts
    predictions = replace(predictions, presence=seen, concepts=truth, concept_names=model.concepts)
    return CaseMemory(predictions, capsules, global_capsule, weights_digest(model.network))


def remember_run(
    run: Run | str | Path,
    *,
    limit: int | None = None,
    device: str = "auto",
    progress: ProgressCallback = silent,
) -> CaseMemory:
    """Remember the training cases of a finished run, or a `limit` of them, with pictures in its `known_cases`.

    A model that routes also gets the batch statistics of its strict tree, from some of these cases, into its bundle.
    """
    run = Run(run.folder if isinstance(run, Run) else run, device=device)
    refuse_links(run.folder)
    cases, model = run.cases("train"), run.model
    if limit is not None:
        cases = cases.spread(limit)
    memory = remember(model, cases, progress=progress)
    make_private_folder(run.known_cases_folder)
    write_thumbnails(run.known_cases_folder / THUMBNAILS_FILE, cases.prepared.images, cases.rows)
    memory.save(run.known_cases_folder)
    if couplings_of(model.network):
        images = (batch.image.to(model.device) for batch in cases.spread(STATISTICS_CASES).batches())
        save_statistics(run.bundle_folder, strict_statistics(model.network, images), memory.model)
    return replace(memory, temperature=model.calibration.temperature)


class KnownCase(NamedTuple):
    """A case of the memory by its `row`, with its true `label` (None: not known) and the diagnosis."""

    row: int
    name: str
    patient: str
    label: str | None
    diagnosis: str
    probability: float


class Prototype(NamedTuple):
    """A case that excites a concept, how much, and whether the concept is there in truth (None: not known)."""

    case: KnownCase
    presence: float
    truth: bool | None


class SimilarCase(NamedTuple):
    """A case and its distance from the image in concept space: 0 is the same, 2 the most there can be."""

    case: KnownCase
    distance: float


def prototypes(memory: CaseMemory, concept: int, count: int = 9) -> list[Prototype]:
    """The cases in which a concept is most present, the strongest first, one per patient; of equals the earlier."""
    presence, truth = memory.presence[:, concept], memory.truth[:, concept]
    return [
        Prototype(known_case(memory, row), float(presence[row]), None if np.isnan(truth[row]) else bool(truth[row]))
        for row in first_of_patients(memory, -presence, count)
    ]


def similar(memory: CaseMemory, capsules: np.ndarray, count: int = 5) -> list[SimilarCase]:
    """The cases nearest to an image in concept space, the nearest first, one per patient.

    The distance is the root mean square, over the concepts, of the distances between their capsules.

    Shapes:
        - capsules: (m, d_c), the image's concept capsules
    """
    square = np.empty(len(memory), dtype=np.float32)
    for start in range(0, len(memory), _CHUNK):
        apart = memory.capsules[start : start + _CHUNK] - capsules.astype(np.float32)
        square[start : start + _CHUNK] = np.einsum("nmd,nmd->n", apart, apart)
    distance = np.sqrt(square / np.float32(len(capsules)))
    return [
        SimilarCase(known_case(memory, row), float(distance[row])) for row in first_of_patients(memory, distance, count)
    ]


def first_of_patients(memory: CaseMemory, score: np.ndarray, count: int) -> list[int]:
    """The rows with the lowest scores (N,), in order, the best of each patient only; fewer where patients are few."""
    order = np.argsort(score, kind="stable")
    _, first = np.unique(memory.group[order], return_index=True)
    return [int(row) for row in order[np.sort(first)[:count]]]


def known_case(memory: CaseMemory, row: int) -> KnownCase:
    """What is known of a case."""
    predictions, chances = memory.predictions, memory.probabilities[row]
    label, best = int(predictions.label[row]), int(chances.argmax())
    truth = None if label < 0 else predictions.classes[label]
    return KnownCase(
        row, predictions.name[row], predictions.patient[row], truth, predictions.classes[best], float(chances[best])
    )


def write_thumbnails(path: str | Path, images: np.ndarray, rows: Sequence[int]) -> None:
    """Write a ZIP of JPEG files, `0.jpg` for the first of the rows and so on.

    Shapes:
        - images: (N, 1 or 3, size, size) uint8, as a cache maps them; only one is in memory at a time
    """
    with write_binary(path, private=True) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for place, row in enumerate(rows):
            archive.writestr(zipfile.ZipInfo(f"{place}.jpg", _LONG_AGO), jpeg(np.asarray(images[row])))


def read_thumbnails(path: str | Path, places: Sequence[int]) -> list[bytes]:
    """The JPEG files at these places, in this order."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path} is missing; {_AGAIN}")
    try:
        with zipfile.ZipFile(path) as archive:
            members = [archive.getinfo(f"{place}.jpg") for place in places]
            if any(each.file_size > _LARGEST_PICTURE for each in members):
                raise ValueError("one is far too large")
            return [archive.read(each) for each in members]
    except (KeyError, NotImplementedError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} does not hold the pictures ({error}); {_AGAIN}") from None


def jpeg(image: np.ndarray) -> bytes:
    """An image (1 or 3, H, W) uint8 as a JPEG file of at most 96 pixels."""
    from PIL import Image

    picture = Image.fromarray(image[0] if len(image) == 1 else np.moveaxis(image, 0, -1))
    picture.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()
