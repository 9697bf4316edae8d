"""How many processes train together, and which of them this one is; Fabric joins them."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers.tensorboard import TensorBoardLogger

from parsecaps.run import Run


@dataclass(frozen=True)
class Processes:
    """`count` processes on `machines` machines; this one has the number `rank`, from 0."""

    rank: int = 0
    count: int = 1
    machines: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the one that prints and writes files."""
        return self.rank == 0


def find_processes(devices: int) -> Processes:
    """Those of torchrun, or `devices` that Fabric starts from this one (a started one has its LOCAL_RANK)."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        count, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
        return Processes(int(os.environ["RANK"]), count, count // here)
    return Processes(int(os.environ.get("LOCAL_RANK", 0)) if devices > 1 else 0, devices)


@contextmanager
def join_processes(run: Run, processes: Processes, *, first_step: int, idle_parameters: bool) -> Iterator[Fabric]:
    """Fabric on the devices that are there, with TensorBoard's logs of the run from `first_step` on.

    `idle_parameters` says that some weights get no gradient (a decoder that is never asked). What Fabric and torch
    advise about other ways to use them is not shown; errors come through.
    """
    ddp = "ddp_find_unused_parameters_true" if idle_parameters else "ddp"
    logger = TensorBoardLogger(run.folder, name=run.log_folder.name, version="", purge_step=first_step)
    with _quiet():
        fabric = Fabric(
            accelerator="cuda" if torch.cuda.is_available() else "cpu",
            devices=processes.count // processes.machines,
            num_nodes=processes.machines,
            strategy=ddp if processes.count > 1 else "auto",
            precision="bf16-mixed" if run.config.training.precision == "bf16" else "32-true",
            loggers=logger,
        )
        fabric.launch()
        yield fabric


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
