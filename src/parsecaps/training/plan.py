"""The plan of a run: its data, read, split, prepared and checked, and its settings."""

import hashlib
import platform
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Self

import numpy as np
import torch

from parsecaps import __version__
from parsecaps.config import Config
from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet, Division, Split
from parsecaps.data.check import DataCheck, Learned, check_data
from parsecaps.data.leaks import write_fingerprints
from parsecaps.data.sources import absolute, open_all
from parsecaps.data.splits import case_key, describe_parts, divide, row_key, rows_of, write_split
from parsecaps.data.spreadsheets import read_table
from parsecaps.files.writing import make_private_folder
from parsecaps.run import CONTENT, Origin, Run, preparation_of
from parsecaps.system.processes import Processes
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.choose import Choice, choose
from parsecaps.training.starting_weights import StartingWeights, read_starting_weights

_PACKAGES = ("torch", "lightning-fabric", "numpy", "monai", "pydicom", "pillow", "safetensors", "pydantic")
_SHOWN = 5  # problems and leaks that are listed before training is refused; notes are listed all


@dataclass(frozen=True)
class Plan:
    """A training before its run is written; `check` only in the first process of a new run, `weights` to start from."""

    config: Config
    data: DataSet
    division: Division
    prepared: PreparedImages
    choices: Sequence[Choice] = ()
    check: DataCheck | None = None
    weights: StartingWeights | None = None

    @classmethod
    def make(cls, config: Config, processes: Processes, callbacks: Callbacks, device: torch.device) -> Self:
        """Read, split and prepare the data, resolve `auto` settings, and refuse data that are not safe to train on."""
        config, weights = with_absolute_paths(config.change("data", also=[*map(absolute, config.data.also)])), None
        if config.model.start is not None:
            weights = read_starting_weights(config.model.start, config.model.kind)
        section, data = config.data, _not_empty(open_all(config.data), config.data.path)
        divided = divide(data, section)
        trunk = None if weights is None else weights.settings
        on_gpu = device.type == "cuda"
        config, choices = choose(config, data, divided.division, processes=processes.count, trunk=trunk, on_gpu=on_gpu)
        prepared, division = _prepare(config, data, divided.division, callbacks)
        if not processes.is_main:
            return cls(config, data, division, prepared, choices, weights=weights)
        check = check_data(
            data,
            prepared,
            divided,
            skip_bad=section.skip_bad,
            allow_leaks=section.allow_leaks,
            learned=None if weights is None else Learned(weights.short_name, weights.fingerprints, weights.known),
        )
        parts = describe_parts(Counter(division), check.unused)
        choices = [Choice("split", parts, f"by patient, hash {check.split_hash}"), *choices]
        shown = (("note", check.notes), ("problem", check.problems[:_SHOWN]), ("leak", check.leaks[:_SHOWN]))
        for title, lines in shown:
            for line in lines:
                callbacks.log(f"{title}: {line}")
        if not check.safe:
            reasons = "; ".join(check.reasons)
            split = f" --split {section.split}" if section.split else ""
            more = f"see all of it with parsecaps data check {section.path}{split}"
            if "--fix-split" in reasons:  # whether pictures look the same depends on the size
                more += f" --size {config.model.image_size}"
            raise ValueError(f"training would be unsafe: {reasons}; {more}")
        for choice in choices:
            callbacks.log(str(choice))
        return cls(config, data, division, prepared, choices, check, weights)

    @classmethod
    def of_run(cls, run: Run, callbacks: Callbacks) -> Self:
        """The plan of a run to resume; refused if its data have changed since it was started."""
        for section, values in run.config.model_dump().items():
            if left := [name for name, value in (values or {}).items() if value == "auto"]:
                left_open = f"{run.config_file} leaves {section}.{left[0]} at auto"
                raise ValueError(f"{left_open}; restore it as the run wrote it")
        data = _not_empty(run.data, run.config.data.path)
        prepared, division = _prepare(run.config, data, run.division, callbacks)
        rows = read_table(run.split_file, required=("image",), optional=("frame", CONTENT), others=True).rows
        then = {row_key(row.cells): row.cells.get(CONTENT, "") for row in rows}
        for case, part, now in zip(data.cases, division, _contents(data, prepared.digests), strict=True):
            name, key = data.name_of(case), case_key(data, case)
            if key not in then:
                raise ValueError(f"{name} was added to {data.root} after the run was started; move it away to resume")
            if part is not None and then[key] not in ("", now):
                raise ValueError(
                    f"{name} has other pixels, another class or other concepts than when the run was started; "
                    "put it back to resume, or train anew"
                )
        weights, start, origin = None, run.config.model.start, run.origin
        if not run.last_checkpoint.is_file() and start is not None and origin is not None:
            weights = read_starting_weights(start, run.config.model.kind)
            if weights.digest != origin.digest:
                raise ValueError(f"{start} is not as it was when the run was started; put it back, or train anew")
        return cls(run.config, data, division, prepared, weights=weights)

    def cases(self, part: Split) -> CaseSet:
        """The cases of a part whose images could be read."""
        return CaseSet(self.data, self.prepared, rows_of(self.division, part))

    def start(
        self, run: Run, origin: Origin | None, processes: Processes, device: torch.device, threads: Choice
    ) -> None:
        """Write the files that a run starts with; `config.yaml` last, because with it the folder is a run."""
        assert self.check is not None
        weights, learned = self.weights, [*self.cases("train").rows, *self.cases("val").rows]
        fingerprints = self.prepared.fingerprints.bits[learned]
        if weights is not None:
            fingerprints = np.concatenate([fingerprints, weights.fingerprints])
        versions = {"parsecaps": __version__, "python": platform.python_version()}
        versions["system"] = f"{sys.platform} {platform.machine()}"
        for package in _PACKAGES:
            with suppress(PackageNotFoundError):
                versions[package] = version(package)
        about = {
            "versions": versions,
            "seeds": {"split": self.config.data.seed, "training": self.config.training.seed},
            "processes": processes.count,
            "threads": torch.get_num_threads(),
            "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
            "split_hash": self.check.split_hash,
            "unused": self.check.unused,
            "choices": [str(choice) for choice in (*self.choices, threads)],
            "started": time.strftime("%Y-%m-%d %H:%M:%S"),
        } | ({} if origin is None else {"start": asdict(origin)})
        make_private_folder(run.checkpoint_folder)
        contents = {CONTENT: _contents(self.data, self.prepared.digests)}
        write_split(run.split_file, self.data, self.division, more=contents, private=True)
        run.write_json(run.data_file, self.check.as_dict())
        if not self.data.look_alikes:
            write_fingerprints(run.fingerprints_file, fingerprints, whole=weights is None or weights.known)
        run.write_json(run.about_file, about)
        run.write_text(run.config_file, self.config.to_yaml())


def with_absolute_paths(config: Config) -> Config:
    """The configuration with paths that hold in any folder."""
    config = config.change("data", path=absolute(config.data.path))
    return config if config.model.start is None else config.change("model", start=absolute(config.model.start))


def refuse_others(run: Run, wanted: Config, may_differ: Collection[str] = ()) -> None:
    """Refuse a run that was started with other settings than these; what is `auto` in them may be anything."""
    found, asked = run.config.model_dump(), with_absolute_paths(wanted).model_dump()
    if any(str(choice).startswith("model.settings: ") for choice in run.about["choices"]):  # some were added
        given = wanted.model.settings
        found["model"]["settings"] = {k: v for k, v in found["model"]["settings"].items() if k in given}
    for content in (found, asked):  # each weight and argument of its own: those that are auto may be anything
        content["losses"] = {}
        for name, value in content["training"].pop("losses").items():
            each = value if isinstance(value, dict) else {"weight": value}
            content["losses"] |= {f"{name}.{key}": given for key, given in each.items()}
    for section, values in asked.items():
        for name, value in (dict.fromkeys(found[section] or {}) if values is None else values).items():
            there = (found[section] or {}).get(name)
            if f"{section}.{name}" not in may_differ and value not in ("auto", there):
                reason = f"{section}.{name}={there}, but {value} is wanted"
                raise ValueError(f"{run.folder} was trained with {reason}; choose another folder")


def _prepare(
    config: Config, data: DataSet, division: Division, callbacks: Callbacks
) -> tuple[PreparedImages, Division]:
    """The images, and the division without unreadable files."""
    prepared = prepare_all(data, preparation_of(config), skip_bad=True, progress=callbacks.reading)
    good = set(prepared.good)
    return prepared, [part if i in good else None for i, part in enumerate(division)]


def _not_empty(data: DataSet, path: str) -> DataSet:
    if not len(data):
        listed = "".join(f"; {problem}" for problem in data.problems[:_SHOWN])
        raise ValueError(f"{path} has no case that could be used{listed}; run parsecaps data check {path}")
    return data


def _contents(data: DataSet, digests: Sequence[str]) -> list[str]:
    """Twelve characters for each case: a hash of its file's digest, its class and its concepts."""
    found = []
    for case, digest in zip(data.cases, digests, strict=True):
        label = data.classes[case.label] if case.label >= 0 else None
        concepts = list(zip(data.concepts, map(str, case.concepts), strict=False))
        found.append(hashlib.sha256(repr((digest, label, concepts)).encode()).hexdigest()[:12])
    return found
