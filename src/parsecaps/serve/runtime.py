"""What runs the network of a server: PyTorch, or ONNX Runtime where it is installed and the model can be exported.

ONNX Runtime answers the same, as is checked, in less time. The exported file is kept in the user's folder for caches.
"""

import hashlib
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from parsecaps import __version__
from parsecaps.data.cache import cache_folder
from parsecaps.export.checking import arrays, compare_answers, open_session, run
from parsecaps.export.export import ExportSource
from parsecaps.export.onnx import answer_graph, check_onnx, write_onnx
from parsecaps.files.writing import make_private_folder, write_binary
from parsecaps.model import Model
from parsecaps.prediction.predict import answer
from parsecaps.types import Output

RuntimeName = Literal["torch", "onnx"]
Network = Callable[[Tensor], Output]
_CASES = 32  # validation cases that an export is checked on, beside drawn images
_ONE_THREAD = 1  # a worker has one core


@dataclass(frozen=True)
class Runtime:
    """What runs the network, and how it is called; `note` says why it is not ONNX Runtime, where that was not chosen.

    `network` takes prepared images (B, channels, size, size) on the CPU, from several threads at a time.
    """

    name: RuntimeName
    version: str
    note: str | None
    network: Network

    def __str__(self) -> str:
        shown = f"{'ONNX Runtime' if self.name == 'onnx' else 'PyTorch'} {self.version}"
        return shown if self.note is None else f"{shown}, not ONNX Runtime: {self.note}"


def choose_runtime(model: Model, wanted: Literal["auto"] | RuntimeName) -> Runtime:
    """ONNX Runtime where it can answer for this model, unless PyTorch is `wanted`; with `onnx` an error where not."""
    reason = None
    try:
        if wanted != "torch":
            return _in_onnx(model)
    except Exception as error:  # whatever a network has in it that cannot be exported, PyTorch runs it
        reason = " ".join(str(error).split()) or type(error).__name__
        if wanted == "onnx":
            raise ValueError(f"runtime is 'onnx', but {reason}; choose auto or torch") from None
    return Runtime("torch", torch.__version__, reason, partial(answer, model))


def _in_onnx(model: Model) -> Runtime:
    if model.device.type != "cpu":
        raise ValueError("the model is on a GPU")
    try:
        versions = [version(name) for name in ("onnx", "onnxruntime")]
    except PackageNotFoundError as error:
        raise ValueError(f"{error.args[0]} is not installed (pip install 'parsecaps[export]')") from None
    path = cache_folder() / f"served-{_key(model, versions)}.onnx"
    session = _kept(model, path) or _exported(model, path)
    return Runtime("onnx", versions[-1], None, partial(_network, session))


def _key(model: Model, versions: list[str]) -> str:
    """Hash of what an export depends on: the files of the model and the versions of the packages."""
    digest = hashlib.sha256("|".join([__version__, torch.__version__, *versions]).encode())
    assert model.folder is not None
    for name in ("config.json", "bundle.json", "calibration.json", "model.safetensors"):
        path = model.folder / name
        digest.update(hashlib.sha256(path.read_bytes() if path.is_file() else b"").digest())
    return digest.hexdigest()[:32]


def _kept(model: Model, path: Path) -> Any:
    """A session of an earlier export; None where there is none, or it does not answer as PyTorch does (any more)."""
    try:
        session = open_session(path.read_bytes(), threads=_ONE_THREAD)
        images = ExportSource(model, None, "").drawn()
        compare_answers(arrays(answer_graph(model).function(images)), run(session, images))
    except Exception:  # it is not there, damaged, or of another library: it is made anew
        return None
    return session


def _exported(model: Model, path: Path) -> Any:
    """A session of a new export, checked, and kept where the folder for caches lets us."""
    with tempfile.TemporaryDirectory(prefix="parsecaps-onnx-") as folder:
        unchecked = Path(folder) / "model.onnx"
        graph = write_onnx(model, unchecked)
        check_onnx(unchecked, graph, _source(model))
        content = unchecked.read_bytes()
    with suppress(OSError):
        make_private_folder(path.parent)
        with write_binary(path, private=True) as file:
            file.write(content)
    return open_session(content, threads=_ONE_THREAD)


def _network(session: Any, image: Tensor) -> Output:
    found = {name: torch.from_numpy(array) for name, array in run(session, image).items()}
    return Output(found["logits"], presence=found.get("presence"))


def _source(model: Model) -> ExportSource:
    """The model with its first validation cases, read from their files.

    A server that starts has no time to prepare a whole data set, as `parsecaps export` does.
    """
    images: list[Tensor] = []
    with suppress(OSError, ValueError):  # the data of the run are elsewhere
        if (found := model.run) is not None and found.data.draw is None:
            cases = [found.data.cases[row] for row in found.rows("val")[:_CASES]]
            images += [model.read(case.image, case.frame) for case in cases]
    checked_on = f"{len(images)} validation cases and drawn images"
    return ExportSource(model, (lambda: [torch.stack(images)]) if images else None, checked_on)
