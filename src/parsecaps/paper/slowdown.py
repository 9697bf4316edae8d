"""How long a table will take here: a training step of each model, timed once on this machine and remembered."""

import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from parsecaps import __version__
from parsecaps.config import Config
from parsecaps.data.cache import cache_folder
from parsecaps.files.writing import make_private_folder, write_text
from parsecaps.paper.cells import Load, Log
from parsecaps.paper.listing import BESIDE
from parsecaps.paper.timing import Effort, best_seconds
from parsecaps.system.threads import allowed_cores
from parsecaps.training.build import TrainingStep, build_network
from parsecaps.training.objective import Objective
from parsecaps.training.optimizer import Schedule
from parsecaps.training.terms import TermContext
from parsecaps.types import Batch, silent

_BATCH = 8
_STEPS = Effort(rounds=3, seconds=0.0, turn=0.0)  # the fastest counts: other work on the machine only adds
_FILE = "training-steps.json"
_FRESH = 86_400.0  # seconds that a timing is taken for granted: other work on the machine may come and go


def machine() -> str:
    """This machine in a few words.

    >>> "torch" in machine()
    True
    """
    name = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.is_file():
        lines = cpu.read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    cores = allowed_cores()
    threads = f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    return f"{cores} core{'s' if cores > 1 else ''} of {name}{gpu}, {threads}"


def seconds_per_image(load: Load, log: Log = silent) -> float:
    """Seconds of training per image, forward, backward and step; from a timing of today on this machine if any."""
    config = _config(load)
    key = _key(load, config)
    known = _timings()
    if key not in known:
        log(f"timing a step of {load.column.name} at {config.model.image_size} px")
        known = {**_timings(), key: [_time_step(config, load), time.time()]}
        make_private_folder(cache_folder())
        write_text(cache_folder() / _FILE, json.dumps(known, indent=1) + "\n", private=True)
    return known[key][0]


def seconds_per_epoch(loads: Sequence[Load], log: Log = silent) -> float:
    """Return the seconds that an epoch of each takes."""
    return sum(BESIDE * load.images * seconds_per_image(load, log) for load in loads)


def _config(load: Load) -> Config:
    adamw = load.optimizer == "usual" or load.column.as_printed
    training = {"epochs": 1, "optimizer": "adamw" if adamw else "muon", **load.column.training}
    return (
        Config()
        .change("model", **load.column.model_section(load.size, load.concepts))
        .change("preparation", channels=load.channels)
        .change("training", **training)
        .change("training", losses={"consistency": 0.0}, mixup=0.0)
    )


def _time_step(config: Config, load: Load) -> float:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build_network(config, load.classes).train()
        channels, size = int(config.preparation.channels), int(config.model.image_size)
        concepts = config.model.num_concepts
        batch = Batch(
            torch.rand(_BATCH, channels, size, size),
            torch.arange(_BATCH) % load.classes,
            torch.randint(2, (_BATCH, int(concepts))).float() if concepts else None,
        )
        step = TrainingStep(model, Objective.build(TermContext(config.training, model)))
        optimizer = Schedule(**dict(config.training)).build_optimizer(step)

        def once() -> None:
            optimizer.zero_grad()
            _, losses = step(batch)
            torch.autograd.backward(step.objective.total(losses))
            optimizer.step()

        return best_seconds({"": once}, _STEPS)[""] / _BATCH


def _timings() -> dict[str, list[float]]:
    """What is known: seconds for an image, and when that was measured."""
    try:
        found = json.loads((cache_folder() / _FILE).read_text(encoding="utf-8"))
        return {
            str(key): [float(value), float(when)] for key, (value, when) in found.items() if time.time() - when < _FRESH
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _key(load: Load, config: Config) -> str:
    own = json.dumps(
        [config.model.model_dump(mode="json"), config.training.optimizer, config.preparation.channels, load.classes],
        sort_keys=True,
    )
    return f"{__version__} {machine()} {os.uname().nodename if hasattr(os, 'uname') else ''} {own}"
