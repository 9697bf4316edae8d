"""The start of a run: read, split, choose, prepare and check; then the folder with all of that written down."""

import hashlib
import platform
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

import numpy as np
import torch

from parsecaps import __version__
from parsecaps.config import Config
from parsecaps.data.cache import prepare_all
from parsecaps.data.cases import DataSet
from parsecaps.data.check import DataCheck, Learned, check_data
from parsecaps.data.leaks import write_fingerprints
from parsecaps.data.sources import absolute, open_all
from parsecaps.data.splits import case_key, describe_parts, divide_data, row_key, write_split
from parsecaps.data.tables import read_table
from parsecaps.files.writing import make_private_folder
from parsecaps.run import Origin, Run
from parsecaps.system.processes import Processes
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.choose import Choice, choose
from parsecaps.training.starting_weights import StartingWeights, read_starting_weights

_PACKAGES = ("torch", "lightning-fabric", "numpy", "monai", "pydicom", "pillow", "safetensors", "pydantic")
_CONTENT = "content"  # a column of a run's split.csv
_SHOWN = 5  # problems and leaks that are listed before training is refused; notes are listed all


class Start(NamedTuple):
    """What was found and chosen before a run starts; `check` is None in processes that are not the first.

    `weights` are those to start from, None for new ones.
    """

    choices: list[Choice]
    check: DataCheck | None
    weights: StartingWeights | None = None


def start_run(run: Run, config: Config, processes: Processes, callbacks: Callbacks, device: torch.device) -> Start:
    """Read, split and prepare the data, settle what is `auto`, and refuse data that are not safe to train on.

    The run then has its settings and data, and its folder is as it was. The data are read by the path that the run
    keeps, so that whoever opens it later finds the same files by the same names.
    """
    config = config.change("data", path=absolute(config.data.path), also=[*map(absolute, config.data.also)])
    weights = None
    if config.model.start is not None:
        config = config.change("model", start=absolute(config.model.start))
        weights = read_starting_weights(str(config.model.start), config.model.kind)
    section, run.data = config.data, _not_empty(open_all(config.data), config.data.path)
    divided = divide_data(section, run.data)
    run.division = divided.division
    trunk = None if weights is None else weights.settings
    on_gpu = device.type == "cuda"
    run.config, choices = choose(config, run.data, run.division, processes=processes.count, trunk=trunk, on_gpu=on_gpu)
    _prepare(run, callbacks)  # files that cannot be read take no part
    if not processes.is_main:
        return Start(choices, None, weights)
    check = check_data(
        run.data,
        run.prepared,
        divided,
        skip_bad=section.skip_bad,
        allow_leaks=section.allow_leaks,
        learned=None if weights is None else Learned(weights.short_name, weights.fingerprints, weights.whole),
    )
    parts = describe_parts(Counter(run.division), check.unused)
    choices = [Choice("split", parts, f"by patient, hash {check.split_hash}"), *choices]
    shown = (("note", check.notes), ("problem", check.problems[:_SHOWN]), ("leak", check.leaks[:_SHOWN]))
    for title, lines in shown:
        for line in lines:
            callbacks.log(f"{title}: {line}")
    if not check.safe:
        reasons = "; ".join(check.reasons)
        raise ValueError(f"training would be unsafe: {reasons}; see all of it with parsecaps data check {section.path}")
    for choice in choices:
        callbacks.log(str(choice))
    return Start(choices, check, weights)


def write_start(run: Run, start: Start, processes: Processes, origin: Origin | None, device: torch.device) -> None:
    """Write down how the run starts, from which weights. `config.yaml` comes last: with it, the folder is a run."""
    assert start.check is not None
    make_private_folder(run.checkpoint_folder)
    contents = _contents(run.data, run.prepared.digests)
    write_split(run.split_file, run.data, run.division, more={_CONTENT: contents}, private=True)
    run.write_json(run.data_file, start.check.as_dict())
    if not run.data.look_alikes:
        whole = start.weights is None or start.weights.whole
        write_fingerprints(run.fingerprints_file, _learned(run, start.weights), whole=whole)
    about = {
        "versions": _versions(),
        "seeds": {"split": run.config.data.seed, "training": run.config.training.seed},
        "processes": processes.count,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "split_hash": start.check.split_hash,
        "unused": start.check.unused,
        "choices": [str(choice) for choice in start.choices],
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
    } | ({} if origin is None else {"start": asdict(origin)})
    run.write_json(run.about_file, about)
    run.write_text(run.config_file, run.config.to_yaml())


def reopen_run(run: Run, callbacks: Callbacks) -> None:
    """Read the data of a run that is to be resumed; refused where they have changed since it was started."""
    for section, values in run.config.model_dump().items():
        if left := [name for name, value in (values or {}).items() if value == "auto"]:
            raise ValueError(f"{run.config_file} leaves {section}.{left[0]} at auto; restore it as the run wrote it")
    run.data = _not_empty(run.open_data(), run.config.data.path)
    _prepare(run, callbacks)
    rows = read_table(run.split_file, required=("image",), optional=("frame", _CONTENT), others=True).rows
    then = {row_key(row.cells): row.cells.get(_CONTENT, "") for row in rows}
    contents = _contents(run.data, run.prepared.digests)
    for case, part, now in zip(run.data.cases, run.division, contents, strict=True):
        name, key = run.data.name_of(case), case_key(run.data, case)
        if key not in then:
            raise ValueError(f"{name} was added to {run.data.root} after the run was started; move it away to resume")
        if part is not None and then[key] not in ("", now):
            raise ValueError(
                f"{name} has other pixels, another class or other concepts than when the run was started; "
                "put it back to resume, or train anew"
            )


def _learned(run: Run, weights: StartingWeights | None) -> np.ndarray:
    """The fingerprints (N, 32) of all that the model learns from, what it starts from included."""
    own = run.prepared.fingerprints.bits[[*run.rows("train"), *run.rows("val")]]
    return own if weights is None else np.concatenate([own, weights.fingerprints])


def _not_empty(data: DataSet, path: str) -> DataSet:
    if not len(data):
        listed = "".join(f"; {problem}" for problem in data.problems[:_SHOWN])
        raise ValueError(f"{path} has no case that could be used{listed}; run parsecaps data check {path}")
    return data


def _prepare(run: Run, callbacks: Callbacks) -> None:
    run.prepared = prepare_all(run.data, run.preparation, skip_bad=True, progress=callbacks.reading)
    good = set(run.prepared.good)
    run.division = [part if i in good else None for i, part in enumerate(run.division)]


def _contents(data: DataSet, digests: Sequence[str]) -> list[str]:
    """Twelve characters for each case that stand for its file, its class and its concepts.

    `digests` are those of `data.cache.PreparedImages`: equal where the pixels come from equal files.
    """
    found = []
    for case, digest in zip(data.cases, digests, strict=True):
        label = data.classes[case.label] if case.label >= 0 else None
        concepts = list(zip(data.concepts, map(str, case.concepts), strict=False))
        found.append(hashlib.sha256(repr((digest, label, concepts)).encode()).hexdigest()[:12])
    return found


def _versions() -> dict[str, str]:
    found = {
        "parsecaps": __version__,
        "python": platform.python_version(),
        "system": f"{sys.platform} {platform.machine()}",
    }
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
