"""Peak memory of one training step, measured in a process of its own (`python -m benchmarks.memory`)."""

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

BATCH_SIZE = 32


@dataclass(frozen=True)
class Memory:
    """Resident memory in bytes: before the step, with the model built and torch warm, and at its highest."""

    model: str
    batch_size: int
    before: int
    peak: int

    @property
    def growth(self) -> int:
        return self.peak - self.before


def measure_memory(preset: str = "medical", *, plain: bool = False, batch_size: int = BATCH_SIZE) -> Memory:
    """Start a new Python that makes one step, for a process cannot forget a peak.

    `plain` takes the CNN of equal FLOPs instead of the preset itself.
    """
    kind = "PlainCNN" if plain else "ParseCaps"
    return Memory(**in_new_process("benchmarks.memory", kind, preset, str(batch_size)))


def in_new_process(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module of the package in a new Python, and read the JSON that it prints."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise OSError(f"memory could not be measured: {reason}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _step(kind: str, preset: str, batch_size: int) -> Memory:
    import torch

    from benchmarks.equal_cnn import cnn_of_equal_flops
    from benchmarks.throughput import NUM_CLASSES, training_task
    from parsecaps.models.parsecaps import ParseCaps
    from parsecaps.models.pretrained import PretrainedModel

    model: PretrainedModel = ParseCaps.from_preset(preset, num_classes=NUM_CLASSES)
    if kind == "PlainCNN":
        model = cnn_of_equal_flops(model)
    shape = (batch_size, model.in_channels, model.image_size, model.image_size)
    image, label = torch.rand(shape), torch.arange(batch_size) % NUM_CLASSES
    training_task(model, model, image[:1], label[:1])()  # loads what torch loads on first use
    before = resident("VmRSS")
    training_task(model, model, image, label)()
    return Memory(kind, batch_size, before, resident("VmHWM"))


def resident(field: str) -> int:
    """Resident memory now (VmRSS) or at its highest (VmHWM); where there is no /proc, the highest for both.

    `ru_maxrss` comes second because a process starts with that of the one that started it.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    import resource  # not on every system

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    print(json.dumps(asdict(_step(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
