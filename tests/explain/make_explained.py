"""Small explainers of every kind of model, with weights that make its answers differ between images."""

from pathlib import Path

import torch

from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.explain.case_memory import THUMBNAILS_FILE, remember, write_thumbnails
from parsecaps.model import Model
from parsecaps.models import ParseCaps, PlainCNN

DATA = "phantom:n=8,size=32"


def make_model(data: DataSet, head: str) -> Model:
    """`head` is that of a ParseCaps, "trunk" for a bottleneck on a trunk, or "cnn" for a plain CNN without concepts."""
    torch.manual_seed(0)
    if head == "cnn":
        model: ParseCaps | PlainCNN = PlainCNN(num_classes=2, in_channels=3, image_size=32)
        return Model(model.eval(), Preparation(size=32, channels=3), data.classes, ())
    on_trunk = {"head": "bottleneck", "trunk": "PlainCNN", "tile": 16, "context": "trunk"}
    settings = on_trunk if head == "trunk" else {"head": head}
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=7, in_channels=3, **settings).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return Model(model, Preparation(size=32, channels=3), data.classes, data.concepts)


def make_folder(folder: Path, head: str) -> Model:
    """A model in a run that remembers all cases."""
    data = open_data(DATA)
    model = make_model(data, head)
    model.save(folder / "bundle")
    prepared = prepare_all(data, model.preparation, folder=folder / "cache")
    (folder / "known_cases").mkdir()
    remember(model, CaseSet(data, prepared, range(len(data)))).save(folder / "known_cases")
    write_thumbnails(folder / "known_cases" / THUMBNAILS_FILE, prepared.images, range(len(data)))
    (folder / "config.yaml").touch()  # by which a folder is known as a run
    return Model.load(folder)
