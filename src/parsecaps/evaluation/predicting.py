"""A model over the cases of a data set: what it says, beside what is true."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Generator, Tensor

from parsecaps.bundle import Bundle
from parsecaps.data.augment import Augmentation
from parsecaps.data.batches import Batches
from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import DataSet
from parsecaps.data.splits import relative_name
from parsecaps.evaluation.predictions import Predictions
from parsecaps.models.pretrained import PretrainedModel


@torch.no_grad()
def predict_cases(
    bundle: Bundle,
    data: DataSet,
    prepared: PreparedImages,
    rows: Sequence[int],
    *,
    changes: Augmentation | None = None,
    views: int = 1,
    batch_size: int = 64,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Predictions:
    """The outputs of the model for these cases of a data set, whose images were prepared as the bundle says.

    Classes and concepts are matched by name: the data set may list them in another order, lack some, and have concepts
    that the model does not know; a class that the model does not know is an error. With several `views` the
    probabilities and presences are means over the image and random `changes` of it, the same ones at every call.
    """
    label = _labels(bundle, data, rows)
    device = next(bundle.model.parameters()).device
    model = bundle.model.eval()
    logits, presence, steadiness = [], [], []
    generator = Generator().manual_seed(0)
    for batch in Batches(data, prepared, rows, batch_size=batch_size).epoch(0):
        image = batch.image.to(device)
        others = (changes(image, generator) for _ in range(views - 1)) if changes is not None else ()
        said, seen, steady = _mean_answer(model, [image, *others])
        logits.append(said.cpu().numpy())
        if steady is not None:
            steadiness.append(steady.cpu().numpy())
        if seen is not None:
            presence.append(seen.cpu().numpy())
        progress(sum(map(len, logits)), len(rows))
    named = bool(presence) and bool(set(bundle.concepts) & set(data.concepts))
    cases = [data.cases[row] for row in rows]
    return Predictions(
        logits=np.concatenate(logits) if logits else np.zeros((0, len(bundle.classes))),
        label=label,
        patient=[case.patient for case in cases],
        name=[_name(data, row) for row in rows],
        classes=bundle.classes,
        presence=np.concatenate(presence) if named else None,
        concepts=_concepts(bundle, data, rows) if named else None,
        concept_names=bundle.concepts if named else (),
        steadiness=np.concatenate(steadiness) if steadiness else None,
    )


def _mean_answer(model: PretrainedModel, views: Sequence[Tensor]) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The logits of the mean probabilities over the views of a batch (B, K), and the mean presences (B, m).

    The third is the share of the other views that get the answer of the first (B,). The logits of a single view are
    returned as they are.
    """
    outputs = [model(view) for view in views]
    logits, steady = outputs[0].logits.float(), None
    if len(outputs) > 1:
        every = torch.stack([output.logits.float().softmax(1) for output in outputs])  # (views, B, K)
        answer = every.argmax(-1)
        logits, steady = every.mean(0).log(), (answer[1:] == answer[0]).float().mean(0)
    if outputs[0].presence is None:
        return logits, None, steady
    presence = torch.stack([output.presence.float() for output in outputs]).mean(0)
    return logits, presence.clamp(max=1), steady  # a length of 1, rounded up


def _labels(bundle: Bundle, data: DataSet, rows: Sequence[int]) -> np.ndarray:
    place = {name: i for i, name in enumerate(bundle.classes)}
    unknown = {data.classes[data.cases[row].label] for row in rows if data.cases[row].label >= 0} - place.keys()
    if unknown:
        known = ", ".join(bundle.classes)
        raise ValueError(f"{data.root} has the class {min(unknown)!r}, which the model does not know; it knows {known}")
    labels = (data.cases[row].label for row in rows)
    return np.array([-1 if label < 0 else place[data.classes[label]] for label in labels], dtype=np.int64)


def _concepts(bundle: Bundle, data: DataSet, rows: Sequence[int]) -> np.ndarray:
    place = {name: i for i, name in enumerate(data.concepts)}
    truth = np.full((len(rows), len(bundle.concepts)), np.nan)
    for j, name in enumerate(bundle.concepts):
        if name in place:
            truth[:, j] = [data.cases[row].concepts[place[name]] for row in rows]
    return truth


def _name(data: DataSet, row: int) -> str:
    case = data.cases[row]
    name = relative_name(data, case)
    return name if case.frame is None else f"{name}#{case.frame}"
