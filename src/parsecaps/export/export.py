"""From a trained model to a file or folder in another format, which takes its name when it has been checked."""

import os
import shutil
from difflib import get_close_matches
from pathlib import Path

from parsecaps.export.format import ExportFormat, ExportOptions, ExportSource
from parsecaps.export.formats import EXPORTS
from parsecaps.files.hub_download import is_repository


def find_format(name: str) -> ExportFormat:
    """The format of this name, or a line with those that there are."""
    if name not in EXPORTS:
        near = get_close_matches(name, EXPORTS, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(EXPORTS)}"
        raise ValueError(f"there is no format {name!r} to export to; {advice}")
    return EXPORTS[name]


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
    _check_push(to, push, private)
    if out.exists() or out.is_symlink():
        raise FileExistsError(f"{out} is there already; choose another place with --out, or remove it")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"{out} cannot be written: the folder {out.parent} is not there")
    unfinished = out.with_name(f".{out.stem}.{os.getpid()}.tmp{wanted.suffix}")
    try:
        lines = wanted.write(ExportSource.open(model), unfinished, ExportOptions(maps, push, private))
        os.replace(unfinished, out)
    finally:
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        else:
            unfinished.unlink(missing_ok=True)
    return lines


def _check_push(to: str, push: str | None, private: bool) -> None:
    """Refuse a name that nothing can be pushed to before the work starts."""
    if push is None:
        if private:
            raise ValueError("--private is for what is pushed; add --push owner/name")
    elif to != "hub":
        raise ValueError(f"--push is for --to hub, not {to}; leave it out, or export to hub")
    elif not is_repository(push):
        raise ValueError(f"--push is {push!r}; give a repository on the hub with its owner, as in owner/name")
