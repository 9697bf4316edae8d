"""The page of `parsecaps demo`: what was reached, and cases with what the network says of them."""

import base64
import io
from typing import Any

import numpy as np

from parsecaps.metrics import Scores, find_metric
from parsecaps.prediction.predictions import Predictions
from parsecaps.report.pages import render
from parsecaps.run import Run


def demo_page(run: Run, scores: Scores, shown: Predictions, images: np.ndarray, folder: str) -> str:
    """The whole page as HTML; `images` (N, channels, size, size) uint8 are of `shown`, `folder` is that of the run."""
    minutes, seconds = divmod(round(run.about["seconds"]), 60)
    return render(
        "demo.html",
        scores=scores,
        find_metric=find_metric,
        run=folder,
        seconds=f"{minutes} minutes {seconds} seconds" if minutes else f"{seconds} seconds",
        curves=base64.b64encode(run.curves_file.read_bytes()).decode(),
        cases=_cases(shown, images, scores.temperature),
    )


def _cases(shown: Predictions, images: np.ndarray, temperature: float) -> list[dict[str, Any]]:
    probabilities = shown.probabilities(temperature)
    cases = []
    for i, image in enumerate(images):
        best = int(probabilities[i].argmax())
        case = {
            "name": shown.name[i],
            "picture": _png(image),
            "answer": shown.classes[best],
            "probability": float(probabilities[i, best]),
            "truth": shown.classes[shown.label[i]],
            "concepts": [],
        }
        if shown.presence is not None and shown.concepts is not None:
            rows = zip(shown.concept_names, shown.presence[i], shown.concepts[i], strict=True)
            case["concepts"] = [{"name": name, "presence": float(p), "drawn": z == 1} for name, p, z in rows]
        cases.append(case)
    return cases


def _png(image: np.ndarray) -> str:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.moveaxis(image, 0, -1).squeeze()).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()
