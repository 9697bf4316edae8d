"""From a trained model to a file or folder in another format, which takes its name when it has been checked."""

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from parsecaps.files.hub_download import is_repository
from parsecaps.model import Model

_FORMATS = ("onnx", "web_page", "monai", "hub")  # modules of this package, each with its `FORMAT`
_BATCH = 16


@dataclass(frozen=True)
class ExportSource:
    """A model to export, with the validation cases to check the export on, and what the user chose.

    `batches` gives the prepared cases, some at a time, and is None for a model without any. `checked_on` says in words
    what the check saw. `maps` of where concepts were seen are None for what the format does by itself; `push` is the
    repository on the hub, as in `owner/name`, that the export is uploaded to, `private` or not.
    """

    model: Model
    batches: Callable[[], Iterable[Tensor]] | None
    checked_on: str
    maps: bool | None = None
    push: str | None = None
    private: bool = False

    @classmethod
    def open(cls, folder: str | Path) -> "ExportSource":
        """The model of a run or of a saved model's folder, on the CPU; validation cases that are there are used."""
        model = Model.load(folder, "cpu")
        try:
            cases = None if model.run is None else model.run.cases("val")
        except (OSError, ValueError) as error:
            return cls(model, None, f"drawn images alone: the validation cases cannot be read ({error})")
        if not cases:
            reason = (
                "the model has no run with validation cases" if cases is None else "the run has no validation cases"
            )
            return cls(model, None, f"drawn images alone: {reason}")
        said = f"{len(cases):,} validation cases and drawn images"
        return cls(model, lambda: (batch.image for batch in cases.batches(_BATCH)), said)

    def validation(self) -> Iterable[Tensor]:
        """The prepared validation cases, some at a time: (B, channels, size, size); none without a run."""
        return () if self.batches is None else self.batches()

    def drawn(self) -> Tensor:
        """Images that any model can be checked on: black, white, constant grey, noise, and two smooth ones.

        Shapes:
            - output: (6, channels, size, size) in [0, 1]
        """
        preparation = self.model.preparation
        shape = (preparation.channels, preparation.size, preparation.size)
        noise = np.random.default_rng(0)
        coarse = torch.from_numpy(noise.random((2, preparation.channels, 6, 6), dtype=np.float32))
        smooth = torch.nn.functional.interpolate(coarse, shape[1:], mode="bicubic").clamp(0, 1)
        constant = [torch.full(shape, value) for value in (0.0, 1.0, 0.5)]
        return torch.stack([*constant, torch.from_numpy(noise.random(shape, dtype=np.float32)), *smooth])


@dataclass(frozen=True)
class ExportFormat:
    """A format by its name: what it is for, what it needs, what it gives, and how it is written.

    `suffix` is how its file is called, empty for a folder. `write` makes a file or folder at a path that nobody knows
    yet, checks it against PyTorch, and gives lines about it; an error leaves nothing behind (`export_model`).
    """

    name: str
    purpose: str
    needs: str
    gives: str
    suffix: str
    write: Callable[[ExportSource, Path], list[str]]


@cache
def formats() -> dict[str, ExportFormat]:
    """The formats that a model can be exported to, by their names."""
    found: list[ExportFormat] = [import_module(f"parsecaps.export.{module}").FORMAT for module in _FORMATS]
    return {each.name: each for each in found}


def find_format(name: str) -> ExportFormat:
    """The format of this name."""
    if name not in formats():
        near = get_close_matches(name, formats(), 1)
        advice = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(formats())}"
        raise ValueError(f"there is no format {name!r} to export to; {advice}")
    return formats()[name]


def export_model(
    model: str | Path,
    to: str,
    out: str | Path,
    *,
    maps: bool | None = None,
    push: str | None = None,
    private: bool = False,
) -> list[str]:
    """Export the model of a run or folder to `out`, which must not be there yet; gives lines about what was made.

    The export is written beside `out` and checked against PyTorch; if that fails nothing is left. With `push`, which is
    for the format `hub`, it is also uploaded.
    """
    wanted, out = find_format(to), Path(out)
    if private and push is None:
        raise ValueError("--private is for what is pushed; add --push owner/name")
    if push is not None and to != "hub":
        raise ValueError(f"--push is for --to hub, not {to}; leave it out, or export to hub")
    if push is not None and not is_repository(push):
        raise ValueError(f"--push is {push!r}; give a repository on the hub with its owner, as in owner/name")
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"{out} is there already; choose another place with --out, or remove it")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"{out} cannot be written: the folder {out.parent} is not there")
    unfinished = out.with_name(f".{out.stem}.{os.getpid()}.tmp{wanted.suffix}")
    try:
        source = replace(ExportSource.open(model), maps=maps, push=push, private=private)
        lines = wanted.write(source, unfinished)
        os.replace(unfinished, out)
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        else:
            unfinished.unlink(missing_ok=True)
    return lines
