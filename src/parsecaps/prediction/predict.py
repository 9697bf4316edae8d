"""The one way from files or cases to answers, for evaluation, explanation, the command line and a server alike."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.special import log_softmax, logsumexp
from torch import Generator, Tensor

from parsecaps.data.reader_pool import READERS
from parsecaps.data.reading import in_shares
from parsecaps.metrics.conformal import prediction_sets
from parsecaps.metrics.predictions import Predictions
from parsecaps.model import Model
from parsecaps.prediction.files import ImageFile
from parsecaps.types import Output, ProgressCallback, silent

if TYPE_CHECKING:
    from parsecaps.data.batches import Augmentation
    from parsecaps.data.case_set import CaseSet

NOT_FINITE = "the model gives no finite numbers for this image; its weights are damaged, or not made for such images"


@dataclass(frozen=True, repr=False)
class Prediction:
    """What a model says of one image: its class, the probability of each, and how present each concept is.

    With a risk, `possible` are the classes that cannot be ruled out, and `abstain` is true unless that is one class.
    Where a file could not be read, `error` says why and the rest is empty. `patient` is blank if unknown.
    """

    image: str
    frame: int | None = None
    patient: str = ""
    label: str = ""
    probabilities: dict[str, float] | None = None
    concepts: dict[str, float] | None = None
    possible: list[str] | None = None
    abstain: bool | None = None
    error: str = ""

    def __repr__(self) -> str:
        lines = [f"{self.image}: {self.error or self.label}"]
        if self.abstain:
            lines[0] += f", but abstains: {' or '.join(self.possible or [])} cannot be ruled out"
        lines += [f"  {name} {value:.1%}" for name, value in _falling(self.probabilities)]
        if self.concepts:
            lines += ["  concepts: " + ", ".join(f"{name} {value:.2f}" for name, value in _falling(self.concepts))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


@torch.no_grad()
def answer(model: Model, image: Tensor) -> Output:
    """What the network gives for prepared images (B, channels, size, size), wherever it is."""
    output: Output = model.network.eval()(image.to(model.device))
    return output


def predict_images(model: Model, image: Tensor, names: Sequence[str] | None = None) -> Predictions:
    """What a model says of prepared images (B, channels, size, size), of which no more than a name is known."""
    return of_output(model, answer(model, image), names)


def predict_files(
    model: Model, files: Iterable[ImageFile], *, risk: float | None = None, batch_size: int = 32
) -> Iterator[Prediction]:
    """One answer for each image file, in order, in bounded memory; a file that cannot be read gives its error."""
    source = iter(files)
    with ThreadPoolExecutor(READERS) as threads:  # each waits for a reader, which is a process of its own
        while batch := list(islice(source, batch_size)):
            read = in_shares(threads, partial(read_prepared, model), batch)
            images = [image for image in read if isinstance(image, Tensor)]
            found = iter(answers_of_output(model, answer(model, torch.stack(images)), risk) if images else ())
            for file, image in zip(batch, read, strict=True):
                answered = {"error": image} if isinstance(image, str) else next(found)
                yield Prediction(str(file.path), file.frame, file.patient, **answered)


def predict_cases(
    model: Model,
    cases: "CaseSet",
    *,
    changes: "Augmentation | None" = None,
    views: int = 1,
    batch_size: int = 64,
    progress: ProgressCallback = silent,
) -> Predictions:
    """What a model says of these cases, whose images were prepared as the model says, and the truth.

    Classes and concepts are matched by name; a class that the model does not know is an error. With several `views` the
    probabilities and presences are means over the image and random `changes` of it, the same ones at every call.
    """
    label, names = _labels(model, cases), cases.names
    logits: list[np.ndarray] = [np.zeros((0, len(model.classes)))]
    presence, consistency = [np.zeros((0, len(model.concepts)))], [np.zeros(0)]
    generator = Generator().manual_seed(0)
    for batch in cases.batches(batch_size):
        others = (changes(batch.image, generator) for _ in range(views - 1)) if changes is not None else ()
        start = sum(map(len, logits))
        some = names[start : start + len(batch.image)]
        by_view = [predict_images(model, view, some) for view in (batch.image, *others)]
        each = np.stack([view.logits for view in by_view])
        logits.append(each[0])
        if len(by_view) > 1:
            shares = log_softmax(each, axis=2)  # finite even where a probability rounds to 0
            logits[-1] = np.asarray(logsumexp(shares, axis=0) - np.log(len(each)))  # of the mean probabilities
            named = each.argmax(2)
            consistency.append((named[1:] == named[0]).mean(0))
        if model.concepts:
            presence.append(np.mean([view.presence for view in by_view if view.presence is not None], axis=0))
        progress(sum(map(len, logits)), len(cases))
    known = bool(set(model.concepts) & set(cases.data.concepts)) and len(cases) > 0
    return Predictions(
        logits=np.concatenate(logits),
        label=label,
        patient=cases.patients,
        name=names,
        classes=model.classes,
        presence=np.concatenate(presence) if known else None,
        concepts=cases.concepts_named(model.concepts) if known else None,
        concept_names=model.concepts if known else (),
        consistency=np.concatenate(consistency) if len(consistency) > 1 else None,
    )


def of_output(model: Model, output: Output, names: Sequence[str] | None = None) -> Predictions:
    """The output of a model's network, of which no truth is known; refused where some of it is not finite."""
    count = len(output.logits)
    presence = None if output.presence is None else as_array(output.presence).clip(max=1)  # a length of 1, rounded up
    return Predictions(
        logits=as_array(output.logits),
        label=np.full(count, -1),
        patient=[""] * count,
        name=[str(i) for i in range(count)] if names is None else names,
        classes=model.classes,
        presence=presence,
        concept_names=() if presence is None else model.concepts,
    )


def each_image(model: Model, predictions: Predictions, risk: float | None = None) -> list[dict[str, Any]]:
    """Calibrated results per image: the fields of a `Prediction` without the image's name and patient."""
    probabilities = predictions.probabilities(model.calibration.temperature)
    sets = None if risk is None else prediction_sets(probabilities, model.calibration.threshold(risk).probability)
    answers = []
    for i, share in enumerate(probabilities):
        possible = None if sets is None else [model.classes[k] for k in np.flatnonzero(sets[i])]
        presence = () if predictions.presence is None else predictions.presence[i].tolist()
        answers.append(
            {
                "label": model.classes[int(share.argmax())],
                "probabilities": dict(zip(model.classes, share.tolist(), strict=True)),
                "concepts": dict(zip(model.concepts, presence, strict=False)),
                "possible": possible,
                "abstain": None if possible is None else len(possible) != 1,
            }
        )
    return answers


def answers_of_output(model: Model, output: Output, risk: float | None) -> list[dict[str, Any]]:
    """What an output means for each image; an error where some of its numbers are not finite."""
    logits, presence = output.logits, output.presence
    finite = logits.isfinite().all(1) if presence is None else logits.isfinite().all(1) & presence.isfinite().all(1)
    kept = Output(logits[finite], presence=None if presence is None else presence[finite])
    found = iter(each_image(model, of_output(model, kept), risk))
    return [next(found) if good else {"error": NOT_FINITE} for good in finite.tolist()]


def read_prepared(model: Model, file: ImageFile) -> Tensor | str:
    """The prepared image (channels, size, size), or why there is none."""
    if file.error:
        return file.error
    try:
        return model.read(file.path, file.frame)
    except (OSError, ValueError) as error:
        return str(error)


def _labels(model: Model, cases: "CaseSet") -> np.ndarray:
    classes, labels = cases.data.classes, cases.labels
    place = {name: i for i, name in enumerate(model.classes)}
    if unknown := {classes[label] for label in labels if label >= 0} - place.keys():
        known, root = ", ".join(model.classes), cases.data.root
        raise ValueError(f"{root} has the class {min(unknown)!r}, unknown to the model; name it as one of {known}")
    return np.array([-1 if label < 0 else place[classes[label]] for label in labels], dtype=np.int64)


def as_array(tensor: Tensor) -> np.ndarray:
    """The numbers of a tensor, wherever it is, as float64."""
    return np.asarray(tensor.detach().double().cpu().numpy())


def _falling(values: dict[str, float] | None) -> list[tuple[str, float]]:
    return sorted((values or {}).items(), key=lambda item: -item[1])
