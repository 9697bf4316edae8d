"""Small models to export, and what ONNX Runtime makes of them."""

from pathlib import Path
from typing import Any

import torch

from parsecaps.data.preparation import Preparation
from parsecaps.export.checking import Arrays, arrays, open_session, run
from parsecaps.export.export import ExportSource
from parsecaps.export.onnx import ModelGraph, write_onnx
from parsecaps.metrics.calibration import Calibration
from parsecaps.model import Model
from parsecaps.models import find_model

SMALL: dict[str, Any] = {
    "dims": (4, 8, 12),
    "cells": (1, 2),
    "heads": (2, 2),
    "radius": (1, 1),
    "stem_channels": (4, 4, 8, 8),
    "num_concepts": 2,
}


def make_model(kind: str = "ParseCaps", **settings: Any) -> Model:
    """A model with random weights whose answers differ between images, and a temperature."""
    torch.manual_seed(0)
    flat = {"dims": (12, 12, 12)} if kind == "FlatCaps" else {}
    small = {**(SMALL if find_model(kind).has_capsules else {}), **flat, **settings}
    model = find_model(kind).from_preset("tiny", num_classes=3, **small)
    for module in model.modules():
        if hasattr(module, "momentum"):
            module.momentum = 1.0
    with torch.no_grad():  # as if trained: normalisations know what they get
        model.train()(torch.rand(8, model.in_channels, model.image_size, model.image_size))
    model.eval()
    for name, parameter in model.named_parameters():
        if not name.endswith("alpha"):
            parameter.data += 0.2 * parameter.std(correction=0) * torch.randn_like(parameter)
    preparation = Preparation(size=model.image_size, channels=model.in_channels)
    concepts = tuple(f"concept {j}" for j in range(model.num_concepts))
    return Model(model, preparation, ("a", "b", "c"), concepts, Calibration(temperature=1.7))


def source_of(model: Model) -> ExportSource:
    """Without validation cases."""
    return ExportSource(model, None, "drawn images alone")


def both(model: Model, folder: Path, images: torch.Tensor, **options: bool) -> tuple[Arrays, Arrays, ModelGraph]:
    """What PyTorch and ONNX Runtime give for images."""
    path = folder / "model.onnx"
    graph = write_onnx(model, path, **options)
    return arrays(graph.function(images)), run(open_session(path), images), graph
