"""The processes that train together, joined by Fabric."""

import atexit
import gc
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers.tensorboard import TensorBoardLogger

from parsecaps.config import Auto, Precision
from parsecaps.files.writing import close_to_others
from parsecaps.run import Run
from parsecaps.system.extras import is_installed
from parsecaps.system.processes import Processes


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
    """End the threads of the process group before Python ends: one that still frees a tensor would abort then."""
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
