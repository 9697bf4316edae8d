"""`web`: one HTML file in which a model explains images on the visitor's computer, from a file and without a network.

The network is the ONNX export with maps and trees, run by ONNX Runtime Web; preparation, trees and counterfactuals
are repeated in JavaScript (`page/src/web`), by the same rules. `export/web` has what npm built, and ONNX Runtime.
"""

import gzip
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from parsecaps.explain.attribution_path import describe_routes, has_tree
from parsecaps.explain.explanation import NO_CONCEPTS, NO_REASONING, calibration_notes
from parsecaps.export.export import ExportFormat, ExportSource
from parsecaps.export.onnx import check_onnx, metadata, write_onnx
from parsecaps.files.writing import write_text
from parsecaps.models.summary import count_parameters
from parsecaps.report.case_page import web_page

_MEGABYTE = 1_000_000
_USUAL = 12  # megabytes, at most
_NO_CASES = "training cases are not shown: they are pictures of patients, which stay with the run"
_LEFT_OUT = "maps and parse trees were left out when this page was made (--no-maps)"


def _write(source: ExportSource, path: Path) -> list[str]:
    """Write the page of a model; with maps and trees unless it has no tree of cells, or `--no-maps` was given."""
    model = source.model
    maps = has_tree(model.network) if source.maps is None else source.maps
    with TemporaryDirectory() as folder:
        network = Path(folder) / "network.onnx"
        _, lines = check_onnx(network, write_onnx(model, network, maps=maps, trees=maps), source)
        plain = network.read_bytes()
        packed = gzip.compress(b"".join(plain[i::4] for i in range(4)), 9, mtime=0)  # planes of float32 pack better
    side, colour = model.preparation.size, "colour" if model.preparation.channels == 3 else "grey"
    facts = {
        "network": f"{type(model.network).__name__}, {count_parameters(model.network)} parameters",
        "sees": f"images of {side} x {side} pixels in {colour}",
        "classes": ", ".join(model.classes),
        "concepts": ", ".join(model.concepts),
    }
    page = web_page(
        about_model(source, maps),
        [(name, text) for name, text in facts.items() if text],
        network=packed,
        runtime=shipped("runtime.wasm.gz"),
        script=shipped("page.js").decode(),
        licence=shipped("LICENSE-onnxruntime").decode(),
    )
    write_text(path, page)
    size = path.stat().st_size / _MEGABYTE
    advice = " (large: --no-maps makes a smaller one)" if maps else " (large: the network itself is)"
    shown = f"{size:.1f} MB{advice if size > _USUAL else ''}"
    return [f"one page of {shown}; open it in a browser, no server is needed", *lines]


def about_model(source: ExportSource, maps: bool) -> dict[str, Any]:
    """What the page must know of the model: `About` in `page/src/web/case.js`."""
    model, known = source.model, metadata(source.model)
    folder = model.folder if model.run is None else model.run.folder
    names = ("kind", "classes", "concepts", "reasoning")
    notes = [*calibration_notes(model), _NO_CASES]
    if not has_tree(model.network):
        notes.append(f"{describe_routes(model.network)}, so there are no maps on this page, and no parse tree")
    elif not maps:
        notes.append(_LEFT_OUT)
    if not model.concepts:
        notes.append(NO_CONCEPTS)
    elif not known["reasoning"] and not known["reasoning_by_image"]:
        notes.append(NO_REASONING)
    return {
        "title": "Model" if folder is None else f"Model {folder.resolve().name}",
        "model": {**{name: known[name] for name in names}, "image_size": model.preparation.size},
        **{name: known[name] for name in ("preparation", "temperature", "thresholds", "grid", "reasoning_by_image")},
        "method": "routes" if maps else None,
        "notes": notes,
    }


def shipped(name: str) -> bytes:
    """A part of the page as `page/src/web` gives it, or ONNX Runtime as WebAssembly, packed by gzip."""
    return (files("parsecaps.export") / "web" / name).read_bytes()


FORMAT = ExportFormat(
    name="web",
    purpose="one page that runs the model in a browser, without a server or a network",
    needs="pip install 'parsecaps[export]'; to open it, a browser from 2023 or later",
    gives="an HTML file: diagnosis, concepts, maps, parse trees and interventions for PNG, JPEG and BMP",
    suffix=".html",
    write=_write,
)
