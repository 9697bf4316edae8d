"""The beginning of a run: read, split, choose, prepare and check; then the folder with all of that written down."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from parsecaps.config import Config
from parsecaps.data.cache import prepare_all
from parsecaps.data.cases import DataSet
from parsecaps.data.check import DataCheck, check_data
from parsecaps.data.files import write_atomically
from parsecaps.data.sources import open_data
from parsecaps.data.splits import Division, split_hash, write_split
from parsecaps.training.build import Material, build_preparation
from parsecaps.training.choose import Choice, choose, split_choice
from parsecaps.training.contents import COLUMN, check_contents, contents_of
from parsecaps.data.splits import divide_data
from parsecaps.training.processes import Processes
from parsecaps.training.run_folder import RunFolder, versions
from parsecaps.training.watch import Progress

RUN_VARIABLE = "PARSECAPS_RUN"  # tells the processes that Lightning starts where the run is
_SHOWN = 5  # problems of a kind that are listed before training is refused


@dataclass(frozen=True)
class Listeners:
    """Who is told what: lines of text, images read of how many, and how the training is doing."""

    log: Callable[[str], None] = lambda line: None
    reading: Callable[[int, int], None] = lambda done, total: None
    progress: Callable[[Progress], None] = lambda progress: None


@dataclass(frozen=True)
class Opened:
    """What a new run starts with; `check` is None in processes that are not the first."""

    config: Config
    material: Material
    choices: list[Choice]
    check: DataCheck | None


def open_new(config: Config, processes: Processes, told: Listeners) -> Opened:
    """Read, split and prepare the data, settle what is `auto`, and refuse data that are not safe to train on."""
    section = config.data
    data = _read(config)
    division, problems = divide_data(section, data)
    config, choices = choose(config, data, division, processes=processes.count)
    material = _prepare(config, data, division, told)
    choices = [split_choice(data, material.division), *choices]  # without the files that cannot be read
    if not processes.is_main:
        return Opened(config, material, choices, None)
    check = check_data(
        data,
        material.prepared,
        material.division,
        problems=problems,
        skip_bad=section.skip_bad,
        allow_leaks=section.allow_leaks,
    )
    for title, lines in (("note", check.notes), ("problem", check.problems), ("leak", check.leaks)):
        for line in lines[:_SHOWN]:
            told.log(f"{title}: {line}")
    if not check.safe:
        reasons = "; ".join(check.reasons)
        raise ValueError(f"training would be unsafe: {reasons}; parsecaps data check {section.path} has more")
    return Opened(config, material, choices, check)


def open_again(folder: RunFolder, config: Config, told: Listeners) -> Material:
    """The data of a run that is to be resumed, divided as they were; refused where they have changed since."""
    data = _read(config)
    material = _prepare(config, data, folder.read_division(data), told)
    check_contents(folder.split, data, material.division, material.prepared.digests)
    return material


def write_beginning(folder: RunFolder, opened: Opened, processes: Processes) -> None:
    """Write down how the run starts. `config.yaml` comes last: with it, the folder is a run."""
    assert opened.check is not None
    folder.checkpoints.mkdir(parents=True, exist_ok=True)
    data, division = opened.material.data, opened.material.division
    contents = contents_of(data, opened.material.prepared.digests)
    write_split(folder.split, data, division, more={COLUMN: contents})
    folder.write_json(folder.data, opened.check.as_dict())
    about = {
        "versions": versions(),
        "seeds": {"split": opened.config.data.seed, "training": opened.config.training.seed},
        "processes": processes.count,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "split_hash": split_hash(data, division),
        "choices": [str(choice) for choice in opened.choices],
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    folder.write_json(folder.about, about)
    with write_atomically(folder.config) as file:
        file.write(opened.config.to_yaml())


def new_folder(wanted: str | Path | None, config: Config, processes: Processes) -> RunFolder:
    """The folder that was asked for, if it holds no run yet; or the next free name below `runs`."""
    if not processes.is_main:
        return RunFolder(Path(os.environ.get(RUN_VARIABLE) or wanted or "."))
    if wanted is not None:
        folder = RunFolder(Path(wanted))
        if folder.config.exists() or folder.last.exists():
            raise ValueError(f"{wanted} holds a run already; choose another folder, or go on with --resume {wanted}")
        return folder
    name = plain_name(config.data.path) or "run"
    taken = {path.name for path in Path("runs").glob(f"{name}-*")}
    return RunFolder(next(Path("runs") / f"{name}-{i}" for i in range(1, len(taken) + 2) if f"{name}-{i}" not in taken))


def plain_name(path: str) -> str:
    """The end of a path or of a source's name, in letters, digits and hyphens.

    >>> plain_name("phantom:n=200,size=64"), plain_name("/data/Ward 7.csv")
    ('phantom-n-200', 'Ward-7-csv')
    """
    return "".join(c if c.isalnum() else "-" for c in Path(path.partition(",")[0]).name).strip("-")


@contextmanager
def owned(folder: RunFolder) -> Iterator[None]:
    """Make sure that no other process trains in the folder, and let those that Lightning starts know about it."""
    folder.path.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.path / ".lock")  # let go by the system, also when a process is killed
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"{folder.path} is being trained by another process; wait for it or stop it") from None
    os.environ[RUN_VARIABLE] = str(folder.path.resolve())
    try:
        yield
    finally:
        del os.environ[RUN_VARIABLE]
        lock.release()


def _read(config: Config) -> DataSet:
    data = open_data(config.data.path, config.data.source)
    if not len(data):
        listed = "".join(f"; {problem}" for problem in data.problems[:_SHOWN])
        raise ValueError(f"{config.data.path} has no case that could be used{listed}")
    return data


def _prepare(config: Config, data: DataSet, division: Division, told: Listeners) -> Material:
    """The prepared images; files that cannot be read take no part, and the check has named them."""
    prepared = prepare_all(data, build_preparation(config), skip_bad=True, progress=told.reading)
    good = set(prepared.good)
    return Material(data, prepared, [part if i in good else None for i, part in enumerate(division)])
