"""What `parsecaps bench routes` trains on: CE-MRI, MNIST, or the synthetic parts; each with its preset and schedule."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from parsecaps.training.schedule import Schedule

from parsecaps.data.augment import Augmentation
from parsecaps.data.sources.mnist import read_mnist
from studies import parts
from studies.short_training import Split

NUM_PARTS_TRAIN, NUM_PARTS_TEST = 4000, 1000


@dataclass(frozen=True)
class RouteTask:
    """A split with the model's preset and the schedule that suit it, and what to know when reading its result."""

    name: str
    split: Split
    classes: tuple[str, ...]
    preset: str
    schedule: Schedule
    augmentation: Augmentation | None = None
    remark: str = ""


def read_task(
    folder: str | Path | None = None, *, epochs: int | None = None, image_size: int | None = None
) -> RouteTask:
    """The task of a folder, known by its files; without a folder, the synthetic parts. `epochs` changes its schedule.

    `image_size` is for a model that was trained at another size; only CE-MRI can follow it.
    """
    if epochs is not None and epochs < 1:
        raise ValueError(f"epochs is {epochs}; give at least 1")
    if folder is None:
        task = parts_task()
    elif (Path(folder) / "cvind.mat").is_file():
        task = cemri_task(folder, image_size or 112)
    elif (Path(folder) / "train-images-idx3-ubyte.gz").is_file():
        task = mnist_task(folder)
    elif not Path(folder).is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; give one with CE-MRI or MNIST, or none")
    else:
        known = "neither CE-MRI (1.mat ... and cvind.mat) nor MNIST (train-images-idx3-ubyte.gz ...)"
        raise FileNotFoundError(f"{folder} holds {known}; give a folder with one of them")
    return task if epochs is None else replace(task, schedule=replace(task.schedule, epochs=epochs))


def parts_task(num_train: int = NUM_PARTS_TRAIN, num_test: int = NUM_PARTS_TEST) -> RouteTask:
    """The synthetic parts, the same for every seed of a training.

    After four epochs the twin that chooses by content solves them with the seeds 0, 1 and 2; by place alone 83.4, 100
    and 84.5 % are right.
    """
    image, label = parts.draw_parts(num_train + num_test, seed=0)
    rows = torch.arange(num_train + num_test)
    split = Split(image, label, rows[:num_train], rows[num_train:])
    schedule = Schedule(epochs=4, batch_size=32, learning_rate=5e-3)
    remark = "these are synthetic images, on which place alone may be enough with some seeds; give DATA for real ones"
    return RouteTask("synthetic parts, 32 px", split, parts.CLASSES, "tiny", schedule, remark=remark)


def cemri_task(folder: str | Path, image_size: int = 112) -> RouteTask:
    """CE-MRI by patient: folds 1 and 2 against fold 3, or where these are not all here, the last against the others."""
    from studies.cemri_slices import CLASSES, read_slices, split_by_fold  # needs h5py, which is optional

    slices = read_slices(folder, image_size)
    folds = set(slices.fold.tolist())
    train, test = ({1, 2}, {3}) if folds >= {1, 2, 3} else (folds - {max(folds)}, {max(folds)})
    split = Split(slices.image, slices.label, *split_by_fold(slices, train=train, test=test))
    words = f"folds {', '.join(map(str, sorted(train)))} against {max(test)}"
    name = f"CE-MRI by patient, {image_size} px, {words}"
    return RouteTask(name, split, CLASSES, "medical", Schedule(epochs=40, batch_size=16), Augmentation())


def mnist_task(folder: str | Path) -> RouteTask:
    """MNIST with its own training and test part."""
    image, label = read_mnist(folder, "train")
    test_image, test_label = read_mnist(folder, "test")
    rows = torch.arange(len(image) + len(test_image))
    split = Split(
        torch.cat([image, test_image]), torch.cat([label, test_label]), rows[: len(image)], rows[len(image) :]
    )
    classes = tuple(map(str, range(10)))
    return RouteTask("MNIST, 28 px", split, classes, "digits", Schedule(epochs=4, batch_size=64, warm_up_epochs=1))
