"""The parts of a training run, built from its settings and its data, and the processes that train together."""

import atexit
import gc
import logging
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from torch import Tensor, nn

from parsecaps.config import Auto, Config, Precision
from parsecaps.data.batches import Augmentation, Batches
from parsecaps.data.case_set import lesion_masks
from parsecaps.data.cases import Split
from parsecaps.files.writing import close_to_others
from parsecaps.models import PretrainedModel, find_model
from parsecaps.run import Run, preparation_of
from parsecaps.system.extras import is_installed
from parsecaps.system.processes import Processes
from parsecaps.training.objective import Objective
from parsecaps.training.plan import Plan
from parsecaps.training.terms import Loss, Need, TermContext
from parsecaps.types import Batch, Output

_CHUNK = 256  # images counted at a time
_LEAST_STD = 1 / 255  # of images that are all alike


class TrainingStep(nn.Module):
    """A model, or another `network`, with its objective: a batch in, logits (B, num_classes) and losses out."""

    def __init__(self, model: PretrainedModel, objective: Objective, *, compiled: bool = False) -> None:
        super().__init__()
        self.model, self.objective = model, objective
        self.reconstruct = "picture" in objective.needs
        self._network = [torch.compile(model) if compiled else model]  # in a list: not a second owner of the weights

    def forward(self, batch: Batch, network: Callable[..., Output] | None = None) -> tuple[Tensor, dict[str, Loss]]:
        output = (network or self._network[0])(batch.image, reconstruct=self.reconstruct)
        return output.logits, self.objective(output, batch)


def build_model(plan: Plan) -> PretrainedModel:
    """The network with new weights, and the mean and standard deviation of the training pixels in it."""
    model = build_network(plan.config, len(plan.data.classes))
    model.standardise.use(*pixel_statistics(plan.prepared.images, plan.cases("train").rows))
    cases = plan.cases("train")
    model.start(torch.from_numpy(cases.labels), torch.from_numpy(cases.concepts))
    return model


def build_network(config: Config, num_classes: int) -> PretrainedModel:
    """The network of a configuration without `auto`, with new weights."""
    section = config.model
    kind = find_model(section.kind)
    settings = {
        "num_classes": num_classes,
        "num_concepts": section.num_concepts,
        "in_channels": config.preparation.channels,
        "image_size": section.image_size,
        **({"head": section.head} if "head" in kind.settings() else {}),
        **section.settings,
    }
    return kind.from_preset(section.preset, **settings)


def build_step(plan: Plan, model: PretrainedModel) -> TrainingStep:
    """A model with its objective, and balancing weights of classes and concepts if wanted."""
    training, cases = plan.config.training, plan.cases("train")
    weights = rare = None
    if training.class_balance == "weights":
        weights = class_weights(cases.labels.tolist(), model.num_classes)
    if training.concept_balance and plan.data.concepts and model.num_concepts:
        rare = concept_weights(cases.concepts, training.concept_balance)
    sets = plan.data.class_sets if plan.data.members else None
    undescribed = bool(np.isnan(cases.concepts).all(1).any())
    named = plan.data.concepts[: model.num_concepts]
    objective = Objective.build(TermContext(training, model, weights, rare, sets, undescribed, named))
    return TrainingStep(model, objective, compiled=training.compile)


def build_batches(plan: Plan, part: Split, processes: Processes, needs: Collection[Need] = ()) -> Batches | None:
    """The batches of a part for this process, with what losses need; shuffled and augmented for training."""
    cases, training, chosen = plan.cases(part), plan.config.training, plan.config.augmentation
    if not len(cases):
        return None
    assert training.batch_size != "auto"
    trains = part == "train"
    weights = None
    if trains and training.class_balance == "sampling":
        labels = cases.labels.tolist()
        each = [*class_weights(labels, len(plan.data.classes)), 1.0]  # the last for -1, unknown
        weights = [each[label] for label in labels]
    return Batches(
        cases,
        batch_size=training.batch_size,
        seed=training.seed,
        shuffle=trains,
        weights=weights,
        augmentation=Augmentation(**chosen.model_dump()) if trains and chosen is not None else None,
        views=2 if trains and "views" in needs else 1,
        mixup=float(training.mixup) if trains else 0.0,
        masks=lesion_masks(plan.data, preparation_of(plan.config), cases.rows) if "masks" in needs else None,
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
    """Weights of absence and presence (2, m), with mean 1 over known labels (N, m), equal in total at a balance of 1.

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


@contextmanager
def join_processes(
    run: Run,
    processes: Processes,
    device: torch.device,
    *,
    precision: Precision | Auto,
    first_step: int,
    idle_parameters: bool,
) -> Iterator[Fabric]:
    """Fabric with TensorBoard logs from `first_step` on; `idle_parameters`: an unused decoder gets no gradient."""
    ddp = "ddp_find_unused_parameters_true" if idle_parameters else "ddp"
    loggers = []
    if is_installed("tensorboard"):
        loggers = [TensorBoardLogger(run.folder, name=run.log_folder.name, version="", purge_step=first_step)]
    with _quiet():
        fabric = Fabric(
            accelerator=device.type,
            devices=processes.here,
            num_nodes=processes.machines,
            strategy=ddp if processes.count > 1 else "auto",
            precision="bf16-mixed" if precision == "bf16" else "32-true",
            loggers=[*loggers],
        )
        _launch(fabric)
        if fabric.is_global_zero and loggers:
            loggers[0].experiment.flush()  # which makes the file
            close_to_others(run.log_folder)
        yield fabric


def _launch(fabric: Fabric) -> None:
    """Join the processes, and undo the number of threads that Fabric sets."""
    threads, wanted = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    fabric.launch()
    atexit.unregister(_end_group)
    atexit.register(_end_group)
    torch.set_num_threads(threads)
    if wanted is None:
        os.environ.pop("OMP_NUM_THREADS", None)


def _end_group() -> None:
    """Shut down the process group before Python exits: a thread that still frees a tensor then would abort."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        gc.collect()  # what is left of a wrapped model holds the group
        torch.distributed.destroy_process_group()


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("lightning_fabric")
    level = logger.level
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning_fabric\.")
        warnings.filterwarnings("ignore", category=FutureWarning)  # of torch, about how Fabric uses it
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")  # and are copied
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)
