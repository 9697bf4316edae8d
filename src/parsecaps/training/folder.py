"""The folder of a training: private, locked from the first moment, and removed again if nothing began."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout

from parsecaps.files.writing import make_first_free, make_private_folder, refuse_links, remove_empty
from parsecaps.run import Run
from parsecaps.system.processes import Processes

RUN_VARIABLE = "PARSECAPS_RUN"  # tells the processes that Fabric starts where the run is
_LOCK = ".lock"


@contextmanager
def new_run(wanted: str | Path | None, name: str, processes: Processes) -> Iterator[Run]:
    """A run in the folder asked for, or the next free one below `runs`; removed again, if made here, unless a run
    begins.
    """
    if not processes.is_main:
        yield Run(os.environ.get(RUN_VARIABLE) or wanted or ".", is_main=False)
        return
    if wanted is not None:
        _refuse_a_run(Run(wanted))
        made = make_private_folder(wanted)
        run = Run(wanted)
    else:
        made = make_first_free(Path("runs") / f"{name}-{i}" for i in count(1))
        run = Run(made[-1])
    try:
        before = set(os.listdir(run.folder))
        with locked(run):
            _refuse_a_run(run)  # of a process that was quicker
            try:
                yield run
            finally:
                if not run.is_there:
                    _remove_what_is_new(run, before)
    finally:
        if not run.is_there:
            remove_empty(made)


@contextmanager
def locked(run: Run) -> Iterator[None]:
    """Lock the folder against other processes, and tell those that Fabric starts about it."""
    lock = FileLock(run.folder / _LOCK, mode=0o600)  # let go by the system, also when a process is killed
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"{run.folder} is being trained by another process; wait for it or stop it") from None
    outer = os.environ.get(RUN_VARIABLE)
    os.environ[RUN_VARIABLE] = str(run.folder.resolve())
    try:
        yield
    finally:
        del os.environ[RUN_VARIABLE]
        if outer is not None:  # a fold within its cross-validation
            os.environ[RUN_VARIABLE] = outer
        lock.release()


def _refuse_a_run(run: Run) -> None:
    folder = run.folder
    refuse_links(folder)
    if run.is_there or (run.checkpoint_folder.is_dir() and any(run.checkpoint_folder.iterdir())):
        raise ValueError(
            f"{folder} holds a run already; choose another folder, or go on with parsecaps train --resume {folder}"
        )
    for path in (run.bundle_folder, run.split_file, run.data_file, run.about_file, run.history_file, run.scores_file):
        if path.exists():
            raise ValueError(f"{path} is there already, and not of this run; choose another folder")


def _remove_what_is_new(run: Run, before: set[str]) -> None:
    for path in (run.split_file, run.data_file, run.about_file, run.fingerprints_file, run.folder / _LOCK):
        if path.name not in before:
            with suppress(OSError):
                path.unlink()
    if run.checkpoint_folder.name not in before:
        remove_empty([run.checkpoint_folder])
