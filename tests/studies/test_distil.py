"""Each level of the tree learns what the teacher says at its own places."""

from pathlib import Path

import pytest
import torch

import parsecaps
from parsecaps.data.cache import prepare_all
from parsecaps.data.cases import join
from parsecaps.data.leaks import read_fingerprints
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from studies import distil
from tests.data.make import folder_of_pictures


@pytest.fixture
def images(tmp_path: Path) -> distil.Images:
    folder_of_pictures(tmp_path / "bus", per_class=40, side=32)
    data = join(["bus"], [open_data(tmp_path / "bus")])
    return distil.Images(["bus"], data, prepare_all(data, Preparation(size=distil.SIDE, channels=3)))


def test_grids_of_teacher_and_tree_are_the_same() -> None:
    teacher = distil.Teacher()
    image = torch.rand(2, 3, distil.SIDE, distil.SIDE)
    raw = teacher(image)
    assert [(each.shape[1], each.shape[2]) for each in raw] == [(784, 24), (196, 40), (49, 112), (16, 320)]
    teacher.measure(iter([image]))
    for each in teacher(image):
        assert each.abs().max() <= 4
        assert each.mean().abs() < 0.1
    model = parsecaps.ParseCaps.from_preset("medical", num_classes=1, num_concepts=0, in_channels=3, image_size=112)
    student = distil.Student(model, [24, 40, 112, 320]).eval()
    assert [each.shape for each in student(image)] == [each.shape for each in raw]


def test_the_tree_learns_and_can_be_started_from(images: distil.Images, tmp_path: Path) -> None:
    losses = []
    for model, each in distil.distil(images, epochs=2):
        losses.append(sum(each))
        distil.save(model, images, each, 2, tmp_path / "weights")
    assert losses[1] < losses[0]
    card = (tmp_path / "weights" / "README.md").read_text(encoding="utf-8")
    assert "| bus | free use with citation of Gomez-Flores et al. | 80 | 80 |" in card
    assert len(read_fingerprints(tmp_path / "weights" / "fingerprints.safetensors")[0]) > 70
    lines: list[str] = []
    run = parsecaps.fit(
        "phantom:n=40,size=64",
        settings={"training.epochs": 1, "model.image_size": 112},
        start=tmp_path / "weights",
        run_folder=tmp_path / "run",
        callbacks=parsecaps.Callbacks(log=lines.append),
    )
    assert run.origin is not None
    assert run.origin.taken > 300_000
    assert run.origin.adapted == []
