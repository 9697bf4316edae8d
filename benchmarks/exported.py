"""How fast an exported model answers one image, in ONNX Runtime beside PyTorch, each on one thread.

The medical preset with random weights. Both take turns, and the median of the processor's time counts, which a busy
machine changes less than that of the clock.
"""

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from parsecaps.data.preparation import Preparation
from parsecaps.export.checking import open_session
from parsecaps.export.onnx import write_onnx
from parsecaps.model import Model
from parsecaps.models import ParseCaps

CLASSES = ("a", "b", "c")


@dataclass(frozen=True)
class ExportedSpeed:
    """Of the file: megabytes, and the processor's seconds to write and to open it; of an answer: its seconds."""

    image_size: int
    megabytes: float
    write_seconds: float
    open_seconds: float
    eager: float
    runtime: float

    @property
    def ratio(self) -> float:
        """How many times as fast ONNX Runtime is."""
        return self.eager / self.runtime


def time_exported(
    image_size: int = 112, *, preset: str = "medical", maps: bool = False, turns: int = 60
) -> ExportedSpeed:
    """Export a new model and let both answer the same image; with `maps`, explain it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        network = ParseCaps.from_preset(preset, num_classes=len(CLASSES), image_size=image_size).eval()
        concepts = tuple(f"concept {j}" for j in range(network.num_concepts))
        model = Model(network, Preparation(size=image_size, channels=1), CLASSES, concepts)
        image = torch.rand(1, 1, image_size, image_size)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            start = time.process_time()
            graph = write_onnx(model, path, maps=maps)
            written = time.process_time()
            session = open_session(path)
            opened, size = time.process_time(), path.stat().st_size
        given, eager, runtime = {"image": image.numpy()}, [], []
        for _ in range(turns + 2):
            begin = time.process_time()
            graph.function(image)
            between = time.process_time()
            session.run(None, given)
            eager.append(between - begin)
            runtime.append(time.process_time() - between)
    finally:
        torch.set_num_threads(threads)
    medians = statistics.median(eager[2:]), statistics.median(runtime[2:])  # the first turns allocate
    return ExportedSpeed(image_size, size / 1e6, written - start, opened - written, *medians)
