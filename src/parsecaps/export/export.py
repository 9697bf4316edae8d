"""From a trained model to a file or folder in another format, which takes its name when it has been checked."""

import os
import shutil
from difflib import get_close_matches
from pathlib import Path

from parsecaps.export.format import ExportFormat, ExportOptions, ExportSource
from parsecaps.export.formats import EXPORTS


def find_format(name: str) -> ExportFormat:
    """The format of this name, or a line with those that there are."""
    if name not in EXPORTS:
        near = get_close_matches(name, EXPORTS, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(EXPORTS)}"
        raise ValueError(f"there is no format {name!r} to export to; {advice}")
    return EXPORTS[name]


def export_model(model: str | Path, to: str, out: str | Path, *, maps: bool | None = None) -> list[str]:
    """Export the model of a run or folder to `out`, which must not be there yet; gives lines about what was made.

    The export is written beside `out` and checked against PyTorch; if that fails nothing is left.
    """
    wanted, out = find_format(to), Path(out)
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"{out} is there already; choose another place with --out, or remove it")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"{out} cannot be written: the folder {out.parent} is not there")
    unfinished = out.with_name(f".{out.stem}.{os.getpid()}.tmp{wanted.suffix}")
    try:
        lines = wanted.write(ExportSource.open(model), unfinished, ExportOptions(maps))
        os.replace(unfinished, out)
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        else:
            unfinished.unlink(missing_ok=True)
    return lines
