"""`monai`: a MONAI bundle, whose configuration puts our preparation, network and table together by MONAI's means.

configs/metadata.json, inference.json, schema.json, logging.conf
models/    the model's own folder, weights as safetensors; nothing is pickled, which MONAI's `model.pt` would be
docs/README.md, LICENSE
"""

import json
import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from hashlib import sha256
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parsecaps import __version__
from parsecaps.export.export import ExportFormat, ExportSource
from parsecaps.export.hub import Publication, check_model, left_out, write_model
from parsecaps.model import Model
from parsecaps.prediction.files import find_files
from parsecaps.prediction.predict import Prediction, predict_files
from parsecaps.report.cards import monai_card
from parsecaps.report.pictures import picture_of
from parsecaps.system.extras import require

_CONFIGS = ("configs/inference.json", "configs/metadata.json", "configs/schema.json", "configs/logging.conf")
_SCHEMA = "https://project-monai.github.io/schema/meta_schema_20240725.json"  # MONAI's own, for those who are online
_NOT_STATED = "not stated"
_TOLERANCE = 1e-6


def write(source: ExportSource, path: Path) -> list[str]:
    """Write the bundle, let MONAI verify it, and compare its answers with those of the model."""
    for package in ("monai", "jsonschema"):  # MONAI needs the second to verify, and only misses it late
        require(package)
    model, about = source.model, Publication.of(source.model)
    for folder in ("configs", "models", "docs"):
        (path / folder).mkdir(parents=True)
    write_model(model, path / "models")
    texts = {
        "configs/metadata.json": json.dumps(_inert(metadata(about)), indent=2) + "\n",
        "docs/README.md": monai_card(model, about.card, configs=_CONFIGS),
        "LICENSE": _licence(about),
    }
    shipped = resources.files("parsecaps.export")  # monai_inference.json answers to all images of a `dataset_dir`
    for name in {*_CONFIGS} - {*texts}:
        texts[name] = (shipped / name.replace("configs/", "monai_")).read_text("utf-8")
    for name, text in texts.items():
        (path / name).write_text(text, encoding="utf-8")
    return [_check(source, path), "verified by MONAI", *left_out(model, path)]


def metadata(about: Publication) -> dict[str, Any]:
    """What MONAI's specification wants to know of a bundle; `concepts` is a further output, if asked for."""
    model = about.model
    preparation, kind = model.preparation, type(model.network).__name__
    side = preparation.size
    colours = ("red", "green", "blue") if preparation.channels == 3 else ("grey",)
    shown = ", ".join(model.classes)
    outputs = {"pred": _tensor("probabilities", "classes", model.classes)}
    if model.concepts:
        outputs["concepts"] = _tensor("probabilities", "concepts", model.concepts)
    scores = {} if about.scores is None else {each.name: about.scores[each.name] for each in about.scores.main_metrics}
    return {
        "schema": _SCHEMA,
        "version": "1.0.0",
        "changelog": {"1.0.0": f"exported by parsecaps {__version__}"},
        "monai_version": _version("monai"),
        "pytorch_version": _version("torch"),
        "numpy_version": _version("numpy"),
        "required_packages_version": {name: _version(name) for name in ("parsecaps", "safetensors")},
        "name": f"{kind} for {shown}",
        "task": f"Classification of images: {shown}",
        "description": (
            f"A {kind} network that names one of {len(model.classes)} classes"
            f"{f' and says how present each of {len(model.concepts)} concepts is' if model.concepts else ''}"
        ),
        "authors": _NOT_STATED,
        "copyright": about.licence or _NOT_STATED,
        "data_source": about.data or _NOT_STATED,
        "data_type": "images or DICOM",
        "image_classes": f"{preparation.channels} channels, prepared as models/bundle.json says, in [0, 1]",
        "label_classes": "; ".join(f"{i}: {name}" for i, name in enumerate(model.classes)),
        "pred_classes": "the calibrated probability of each class",
        "eval_metrics": {name: float(each.value) for name, each in scores.items() if each.value is not None},
        "intended_use": "For research. It is not a medical device.",
        "network_data_format": {
            "inputs": {"image": _tensor("image", "magnitude", colours, side, side, modality="n/a")},
            "outputs": outputs,
        },
    }


def _tensor(kind: str, format_name: str, names: Sequence[str], *shape: int, **more: str) -> dict[str, Any]:
    """What MONAI wants to know of a tensor: of a vector that its shape is (1, n), as the model zoo writes it."""
    return {
        "type": kind,
        "format": format_name,
        **more,
        "num_channels": len(names),
        "spatial_shape": list(shape or (1, len(names))),
        "dtype": "float32",
        "value_range": [0, 1],
        "is_patch_data": False,
        "channel_def": {str(i): name for i, name in enumerate(names)},
    }


def _inert(value: Any) -> Any:
    """The same without text that MONAI would run or look up: the names of classes are those of whoever trained.

    >>> _inert({"0": "$quit()", "1": "50 % or more"})
    {'0': '_quit()', '1': '50 % or more'}
    """
    if isinstance(value, dict):
        return {key: _inert(each) for key, each in value.items()}
    if isinstance(value, str) and re.search(r"^[$@%]|[@%](#|::)", value):
        return re.sub(r"[$@%]", "_", value)
    return value


def _version(package: str) -> str:
    """The version of a package, without the mark of a build, which MONAI's schema does not allow."""
    found = __version__ if package == "parsecaps" else version(package)
    return found.partition("+")[0]


def _licence(about: Publication) -> str:
    known = "No licence of the weights is stated: ask whoever trained them before you use them."
    if about.licence is not None:
        known = f"Licence of the data that the weights learned from, which binds whoever uses them: {about.licence}."
    return f"{known}\n\nThe program that runs them, parsecaps, has a licence of its own (MIT).\n"


def _check(source: ExportSource, path: Path) -> str:
    """Refuse a bundle that MONAI finds wrong, or that does not answer as the model does; gives a line about it."""
    from monai.bundle.config_parser import ConfigParser
    from monai.bundle.scripts import verify_metadata, verify_net_in_out
    from monai.bundle.workflows import ConfigWorkflow

    config, meta, schema = (path / "configs" / name for name in ("inference.json", "metadata.json", "schema.json"))
    root: dict[str, Any] = {"bundle_root": str(path)}
    with ExitStack() as stack:
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.ERROR)  # MONAI's log is for those who run a bundle
        digest = sha256(schema.read_bytes()).hexdigest()  # MONAI warns of a file that nobody vouches for
        verify_metadata(meta_file=str(meta), filepath=schema, hash_val=digest, hash_type="sha256")
        verify_net_in_out("network_def", str(meta), str(config), device="cpu", **root)
        parser = ConfigParser()
        parser.read_config(str(config))
        parser.update({**root, "device": "$torch.device('cpu')"})
        network = parser.get_parsed_content("network")

        @torch.no_grad()
        def answers(images: Tensor) -> np.ndarray:
            return np.asarray(network(images, concepts=True).double().numpy())

        line = check_model(source, answers, "the export to monai")
        with tempfile.TemporaryDirectory() as folder:
            for i, image in enumerate(source.drawn()):
                picture_of(image).save(Path(folder) / f"{i}.png")
            (Path(folder) / "broken.png").write_bytes(b"no image")
            files = {**root, "dataset_dir": folder, "device": "$torch.device('cpu')"}
            workflow = ConfigWorkflow(str(config), str(meta), logging_file=False, **files)
            workflow.initialize()
            _check_run(source.model, Path(folder), workflow.parser.get_parsed_content("evaluator").predictions())
    return line


def _check_run(model: Model, folder: Path, found: Iterator[Prediction]) -> None:
    """Refuse a bundle that says something else of files than `parsecaps predict`."""
    for right, said in zip(predict_files(model, find_files([folder])), found, strict=True):
        names = ("image", "frame", "patient", "label", "error")
        same = all(getattr(right, name) == getattr(said, name) for name in names)
        wanted, given = (
            [*(each.probabilities or {}).values(), *(each.concepts or {}).values()] for each in (right, said)
        )
        if not (same and len(wanted) == len(given) and np.allclose(given, wanted, rtol=0, atol=_TOLERANCE)):
            reason = f"of the image {Path(right.image).name} it says other things than parsecaps predict"
            raise ValueError(f"the export to monai failed its check: {reason}; nothing was written")


FORMAT = ExportFormat(
    name="monai",
    purpose="running a model as a MONAI bundle",
    needs="jsonschema; to run it, parsecaps, MONAI and fire",
    gives="a folder: configurations, weights as safetensors, card; a table of diagnoses and concepts when it is run",
    suffix="",
    write=write,
)
