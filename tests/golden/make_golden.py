"""Golden results: what three small models and three short trainings give, number by number, frozen before the redesign.

`parallel` and `bottleneck` are the folders of two runs, saved by that code, and `trunk` is of a later one with two
streams; they stay as they are. Only the two functions `measure` and `measure_training` know the package: when a name
moves, they follow it, and the JSON stays.

    python -m tests.golden.make_golden    # writes the JSON anew, which gives up what it guarded
"""

import csv
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import parsecaps
from parsecaps.audit.measure import audit_model
from parsecaps.data.case_set import CaseSet
from parsecaps.data.sources import open_data
from parsecaps.explain.attribution import MAP_METHODS, Target, attribution_maps
from parsecaps.explain.explanation import Explanation
from parsecaps.model import Model
from parsecaps.prediction.predict import predict_cases
from parsecaps.report.explanation_document import explanation_document
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks

HERE = Path(__file__).parent
IMAGES = sorted((HERE / "images").glob("*.png"))
MODELS = ("parallel", "bottleneck", "trunk")
OTHER_DATA = "phantom:n=16,size=48,seed=5"  # for the audit, which takes long
DATA = "phantom:n=64,size=32"  # for training
TRAININGS: dict[str, dict[str, Any]] = {
    "concepts": {},
    "no concepts": {},
    "mixup, ema, consistency": {"training.mixup": 0.4, "training.ema": 0.9, "training.losses.consistency": 0.5},
}


def measure(folder: Path) -> dict[str, Any]:
    """All that the model of a run says: predictions, scores, explanations and the audit."""
    model = parsecaps.load(folder)
    first = IMAGES[0]
    others = (method for method in MAP_METHODS if method != "routes")
    return _plain(
        {
            "predictions": {"cases": _cases(model, folder), "files": [_prediction(model, each) for each in IMAGES]},
            "scores": parsecaps.evaluate(folder, part="test", resamples=100, device="cpu").as_dict(),
            "explanation": [_explanation(model, each) for each in IMAGES],
            "class_maps": dict(zip(model.classes, _class_maps(model, first), strict=True)),
            "maps": {method: _maps(model.explain(first, method=method, trees=0)) for method in others},
            "reconstruction": _reconstruction(model, first),
            "strict": _without_maps(model.explain(first, strict=True)),
            "audit": _audit(folder),
        }
    )


def measure_training(folder: Path) -> dict[str, Any]:
    """Short trainings in an empty folder: the history, and the sum and the sum of magnitudes of each final tensor."""
    torch.set_num_threads(1)
    return {name: _training(folder, name, settings) for name, settings in TRAININGS.items()}


def _cases(model: Model, folder: Path) -> list[dict[str, Any]]:
    """Logits, calibrated probabilities and presences of the first test cases, by their row in the data set."""
    run = Run(folder)
    rows = run.rows("test")[:12]
    found = predict_cases(model, CaseSet(run.data, run.prepared, rows))
    temperature = parsecaps.evaluate(folder, part="test", resamples=0, device="cpu").temperature
    table = zip(rows, found.logits, found.probabilities(temperature), found.presence, strict=True)
    return [dict(zip(("row", "logits", "probabilities", "presence"), each, strict=True)) for each in table]


def _prediction(model: Model, image: Path) -> dict[str, Any]:
    found = vars(model.predict(image, risk=0.2))
    return {key: found[key] for key in ("label", "probabilities", "concepts", "possible", "abstain")} | {
        "image": image.name
    }


def _explanation(model: Model, image: Path) -> dict[str, Any]:
    told = model.explain(image, risk=0.2, trees=4, traversals=2)
    return {**_without_maps(told), "maps": _maps(told)}


def _without_maps(told: Explanation) -> dict[str, Any]:
    """An explanation for JSON without its pictures, in the form of version 2, in which each image had its own model."""
    document = explanation_document([told]).to_dict()
    (found,) = document["cases"]
    known = {each["concept"]: each["cases"] for each in document["prototypes"]}
    for each in (*found["similar"], *(each for group in known.values() for each in group)):
        del each["picture"]
    for concept in found["concepts"]:
        del concept["map"]
        concept["prototypes"] = known.get(concept["name"], [])
    found["trees"] = [tree.to_dict() for tree in told.trees]
    if found["reasons"] is not None:
        found["reasons"]["reasoning"] = document["model"]["reasoning"]
        del found["reasons"]["reasoning"]["scale"]
    if found["strict"] is not None:
        del found["strict"]["lines"]
    for strip in found["traversals"]:
        del strip["sentence"]
        strip["png"] = strip.pop("picture").partition(",")[2]
    del found["class_map"], found["picture"], found["size"], found["reasoning"]
    return {**found, "version": 2, "name": Path(told.name).name}


def _maps(told: Explanation) -> dict[str, Any]:
    """The maps of the diagnosis and of each concept."""
    return {told.diagnosis: _half(told.class_map)} | {each.name: _half(each.map) for each in told.concepts}


def _class_maps(model: Model, image: Path) -> list[np.ndarray]:
    targets = [Target("classes", k) for k in range(len(model.classes))]
    return [_half(each) for each in attribution_maps(model.network.eval(), _read(model, image), targets)[0]]


@torch.no_grad()
def _reconstruction(model: Model, image: Path) -> np.ndarray:
    return _half(model.network.eval()(_read(model, image), reconstruct=True).reconstruction[0])


def _read(model: Model, image: Path) -> torch.Tensor:
    return model.read(image)[None]


def _audit(folder: Path) -> dict[str, Any]:
    found = audit_model(folder, OTHER_DATA, limit=2, resamples=50, seed=0).as_dict()
    del found["data"], found["strict"]["model"]  # a path, and a digest
    for layer in found["redundancy"]:
        if layer["pairs"] > 1000:  # of so many, one lies on the edge of a bin; the mean stays
            del layer["share"]
    return found


def _training(folder: Path, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    data = DATA if name != "no concepts" else str(_folder_of_images(folder / "images"))
    fixed = {"model.preset": "tiny", "training.epochs": 2, "training.batch_size": 16, "training.warm_up_epochs": 1}
    run = parsecaps.fit(
        data, settings={**fixed, "training.keep": "last", **settings}, run_folder=folder / name, callbacks=Callbacks()
    )
    with run.history_file.open(encoding="utf-8") as file:
        history = [
            {key: float(value) for key, value in row.items() if not key.endswith(("seconds", "_mask", "_measure"))}
            for row in csv.DictReader(file)
        ]
    state = run.model.network.state_dict()
    sums = {key: [float(each.double().sum()), float(each.double().abs().sum())] for key, each in state.items()}
    return {"history": history, "weights": sums}


def _folder_of_images(folder: Path) -> Path:
    """The phantom as a folder per class, so that nothing is known of its concepts."""
    data = open_data(DATA)
    assert data.draw is not None
    for i, pixels in enumerate(data.draw(range(len(data)))):
        place = folder / data.classes[data.cases[i].label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.moveaxis(pixels, 0, -1)).save(place / f"{i:03}.png")
    return folder


def _half(picture: Any) -> np.ndarray:
    """A picture (..., size, size) at half its size, each pixel the mean of four, with the digits of a float32."""
    full = np.asarray(picture, dtype=np.float64)
    mean = (full[..., ::2, ::2] + full[..., 1::2, ::2] + full[..., ::2, 1::2] + full[..., 1::2, 1::2]) / 4
    return np.vectorize(lambda value: float(f"{value:.9g}"), otypes=[float])(mean)


def _plain(value: Any) -> Any:
    """The same of plain dictionaries, lists, texts and numbers."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as empty:
        os.environ["PARSECAPS_CACHE"] = f"{empty}/cache"
        golden = {model: measure(HERE / model) for model in MODELS} | {"training": measure_training(Path(empty))}
    for model, found in golden.items():
        (HERE / f"{model}.json").write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")
