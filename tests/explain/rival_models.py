"""Small models of others that decide by their concepts alone, each with another way from them to the classes."""

import torch

from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.metrics.calibration import Calibration
from parsecaps.model import Model
from parsecaps.models import find_model
from tests.models.contract import warmed_up

DATA = "phantom:n=12,size=32"
KINDS = {
    "presence": ("CBM", {"passes": "presence"}),
    "logit": ("CBM", {}),
    "activation": ("CCNN", {}),
    "activation with bias": ("CoherentCNN", {}),
    "vectors": ("CEM", {}),
}


def make(name: str) -> Model:
    torch.manual_seed(2)
    kind, settings = KINDS[name]
    data = open_data(DATA)
    model = find_model(kind).from_preset("tiny", num_classes=2, num_concepts=7, in_channels=3, **settings)
    return Model(warmed_up(model), Preparation(32, 3), data.classes, data.concepts, Calibration(temperature=1.3))
