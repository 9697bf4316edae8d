"""The parts of a training run, made from a configuration without `auto` and a data set."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from parsecaps.config import Config
from parsecaps.data.augment import Augmentation
from parsecaps.data.batches import Batches
from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import DataSet, Split
from parsecaps.data.cache import prepared_masks
from parsecaps.data.preparation import Preparation
from parsecaps.data.splits import Division, rows_of
from parsecaps.models import MODELS, ParseCaps, PretrainedModel
from parsecaps.training.mask_guide import MaskGuide
from parsecaps.training.measure_guide import MeasureGuide
from parsecaps.training.objective import Objective
from parsecaps.training.processes import Processes
from parsecaps.training.schedule import Schedule
from studies.tumour_measures import prepared_measures

_CHUNK = 256  # images counted at a time
_LEAST_STD = 1 / 255  # of images that are all alike


@dataclass(frozen=True)
class Material:
    """What to train on: a data set, its prepared images, and who trains, chooses and tests."""

    data: DataSet
    prepared: PreparedImages
    division: Division

    def rows(self, part: Split) -> list[int]:
        return rows_of(self.division, part)


def build_preparation(config: Config) -> Preparation:
    """How images are prepared: the settings of the section, with the model's size."""
    size, channels = config.model.image_size, config.preparation.channels
    assert size != "auto"
    assert channels != "auto"
    how = config.preparation
    return Preparation(size, channels, how.square, how.scaling, how.centre)


def build_model(config: Config, material: Material) -> PretrainedModel:
    """The network with new weights, and the mean and standard deviation of the training pixels in it."""
    section = config.model
    model = MODELS[section.kind].from_preset(
        section.preset,
        **{
            "num_classes": len(material.data.classes),
            "num_concepts": section.num_concepts,
            "in_channels": config.preparation.channels,
            "image_size": section.image_size,
            "head": section.head,
            **section.settings,
        },
    )
    model.standardise.use(*pixel_statistics(material.prepared.images, material.rows("train")))
    return model


def build_objective(config: Config, material: Material, model: PretrainedModel) -> Objective:
    """The losses with their weights, and those of the classes where they are to be balanced."""
    training = config.training
    weights = rare = guide = measure_guide = None
    if training.mask_weight:
        assert isinstance(model, ParseCaps)
        guide = MaskGuide(model)
    if training.measure_weight:
        assert isinstance(model, ParseCaps)
        measure_guide = MeasureGuide(model)
    if training.class_balance == "weights":
        weights = class_weights([material.data.cases[i].label for i in material.rows("train")], model.num_classes)
    if training.concept_balance and material.data.concepts and model.num_concepts:
        truth = [material.data.cases[i].concepts for i in material.rows("train")]
        rare = concept_weights(np.array(truth), training.concept_balance)
    return Objective(
        num_concepts=model.num_concepts,
        concept_dim=model.config["concept_dim"] if model.has_capsules else None,
        presentation_weight=training.presentation_weight,
        triplet_weight=training.triplet_weight,
        reconstruction_weight=training.reconstruction_weight,
        diversity_weight=training.diversity_weight,
        class_weights=weights,
        concept_weights=rare,
        label_smoothing=training.label_smoothing,
        mask_weight=training.mask_weight,
        consistency_weight=training.consistency_weight,
        guide=guide,
        measure_weight=training.measure_weight,
        measure_guide=measure_guide,
    )


def build_schedule(config: Config) -> Schedule:
    """How fast to learn."""
    training = config.training
    assert training.epochs != "auto"
    assert training.batch_size != "auto"
    return Schedule(
        epochs=training.epochs,
        batch_size=training.batch_size,
        optimizer=training.optimizer,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        warm_up_epochs=training.warm_up_epochs,
        max_grad_norm=training.max_grad_norm,
    )


def build_batches(config: Config, material: Material, part: Split, processes: Processes) -> Batches | None:
    """The batches of a part for this process, shuffled and augmented where they are for training; None without any."""
    rows = material.rows(part)
    if not rows:
        return None
    training, chosen = config.training, config.augmentation
    assert training.batch_size != "auto"
    trains = part == "train"
    weights = None
    if trains and training.class_balance == "sampling":
        labels = [material.data.cases[i].label for i in rows]
        each = [*class_weights(labels, len(material.data.classes)), 1.0]  # the last for -1, unknown
        weights = [each[label] for label in labels]
    masks = measures = None
    if trains and (training.mask_weight or training.measure_weight):
        masks = prepared_masks(material.data, build_preparation(config), rows)
        masks[[material.data.cases[row].mask is None for row in rows]] = np.nan
    if masks is not None and training.measure_weight:
        measures = prepared_measures(material.prepared.images[rows], masks)
    return Batches(
        material.data,
        material.prepared,
        rows,
        batch_size=training.batch_size,
        seed=training.seed,
        shuffle=trains,
        weights=weights,
        augmentation=Augmentation(**chosen.model_dump()) if trains and chosen is not None else None,
        masks=masks if training.mask_weight else None,
        measures=measures,
        views=2 if trains and training.consistency_weight else 1,
        mixup=training.mixup if trains else 0.0,
        process=processes.rank,
        processes=processes.count,
    )


def class_weights(labels: Sequence[int], num_classes: int) -> list[float]:
    """A weight per class, such that all classes weigh the same together and a labelled case 1 on average.

    >>> class_weights([0, 0, 0, 1, -1], 2)
    [0.6666666666666666, 2.0]
    """
    counts = np.bincount([label for label in labels if label >= 0], minlength=num_classes)
    there = np.count_nonzero(counts)
    return [float(counts.sum() / (there * count)) if count else 0.0 for count in counts]


def concept_weights(concepts: np.ndarray, balance: float) -> list[list[float]]:
    """The weights of each concept's absence and presence (2, m), with a mean of 1 over its known labels (N, m).

    With a balance of 1 both weigh the same together, with 0 each label does; a concept that is known on one side only
    weighs 1 there.

    >>> concept_weights(np.array([[1.0], [0.0], [0.0], [0.0], [np.nan]]), 1.0)
    [[0.6666666666666666], [2.0]]
    """
    counts = np.stack([(concepts < 0.5).sum(0), (concepts >= 0.5).sum(0)]).astype(float)  # (2, m), NaN in neither
    share = counts / counts.sum(0).clip(min=1)
    raised = np.where(share > 0, share, 1.0) ** -balance
    listed: list[list[float]] = (raised / np.where(counts.any(0), (share * raised).sum(0), 1.0)).tolist()
    return listed


def pixel_statistics(images: np.ndarray, rows: Sequence[int]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel of images (N, C, H, W) uint8 on the scale of [0, 1], exactly."""
    counts = np.zeros((images.shape[1], 256), dtype=np.int64)
    for start in range(0, len(rows), _CHUNK):
        block = images[rows[start : start + _CHUNK]]
        for channel in range(images.shape[1]):
            counts[channel] += np.bincount(block[:, channel].ravel(), minlength=256)
    levels = np.arange(256) / 255
    mean = counts @ levels / counts.sum(1)
    variance = counts @ levels**2 / counts.sum(1) - mean**2
    return mean.tolist(), np.sqrt(variance.clip(min=_LEAST_STD**2)).tolist()
