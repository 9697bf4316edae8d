"""Does training wait for data? Images per second of the loader beside those of a training step, and its memory.

    python -m benchmarks.data phantom:n=50000 64

prepares a data set into an empty cache, goes through it once, and prints the peak memory of doing so.
"""

import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.speed import BATCH_SIZE, NUM_CLASSES, training_task
from benchmarks.timing import Effort, best_seconds, in_new_process, resident
from parsecaps.data.batches import Augmentation, Batches
from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import Case, DataSet
from parsecaps.data.leaks import Fingerprints
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.models.parsecaps import ParseCaps


@dataclass(frozen=True)
class LoadingSpeed:
    """Images per second, each on its own: batches with all augmentation, and training steps."""

    preset: str
    image_size: int
    loader: float
    training: float

    @property
    def ratio(self) -> float:
        return self.loader / self.training


@dataclass(frozen=True)
class LoadingMemory:
    """A data set from its source through the cache to batches: how long it took, and resident bytes at the highest."""

    data: str
    images: int
    image_size: int
    prepare_seconds: float
    epoch_seconds: float
    peak: int


def time_loading(preset: str, effort: Effort, *, images: int = 256) -> LoadingSpeed:
    """Batches from a mapped file, as in training, and a training step of the preset, taking turns."""
    model = ParseCaps.from_preset(preset, num_classes=NUM_CLASSES)
    side = model.image_size
    with tempfile.TemporaryDirectory() as folder:
        shape = (images, model.in_channels, side, side)
        mapped = np.lib.format.open_memmap(Path(folder) / "images.npy", mode="w+", dtype=np.uint8, shape=shape)
        mapped[:] = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        nothing = Fingerprints(np.zeros((images, 32), np.uint8), np.zeros((images, 256), np.uint8))
        prepared = PreparedImages(mapped, nothing, [(side, side)] * images, [""] * images, [])
        cases = [Case(Path(str(i)), i % NUM_CLASSES, str(i)) for i in range(images)]
        data = DataSet("noise", Path(), tuple(map(str, range(NUM_CLASSES))), (), cases)
        batches = Batches(
            CaseSet(data, prepared, range(images)),
            batch_size=BATCH_SIZE,
            shuffle=True,
            augmentation=Augmentation(padding=4),
        )

        def load() -> None:
            for _ in batches.epoch(0):
                pass

        image = torch.rand(BATCH_SIZE, model.in_channels, side, side)
        step = training_task(model, model, image, torch.arange(BATCH_SIZE) % NUM_CLASSES)
        best = best_seconds({"loader": load, "training": step}, effort)
    return LoadingSpeed(preset, side, len(batches) * BATCH_SIZE / best["loader"], BATCH_SIZE / best["training"])


def measure_loading_memory(data: str, image_size: int) -> LoadingMemory:
    """Do it in a new Python, for a process cannot forget a peak."""
    return LoadingMemory(**in_new_process("benchmarks.data", data, str(image_size)))


def _load(name: str, image_size: int) -> LoadingMemory:
    start = time.perf_counter()
    data = open_data(name)
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare_all(data, Preparation(size=image_size, channels=3), folder=Path(folder))
        ready = time.perf_counter()
        rows = range(len(data))
        for _ in Batches(CaseSet(data, prepared, rows), batch_size=64, shuffle=True, augmentation=Augmentation()):
            pass
        done = time.perf_counter()
    return LoadingMemory(name, len(data), image_size, ready - start, done - ready, resident("VmHWM"))


if __name__ == "__main__":
    print(json.dumps(asdict(_load(sys.argv[1], int(sys.argv[2])))))
