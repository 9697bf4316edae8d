"""A run from its end: the memory of its training cases, and whether its decoder has anything to show."""

from pathlib import Path

import numpy as np
import pytest
import torch

from parsecaps.config import load_config
from parsecaps.data.sources import open_data
from parsecaps.data.splits import rows_of
from parsecaps.explain.case_memory import CaseMemory, read_thumbnails, remember_run
from parsecaps.explain.traversal import trained_decoder, traverse, usual_ranges
from parsecaps.model import Model
from tests.messages import refused
from tests.training.make import PHANTOM, TINY, skewed_manifest, train

ONCE = "training.epochs=1"


def test_training_cases_are_remembered_in_the_run(tmp_path: Path) -> None:
    run = train(load_config(None, [*PHANTOM, ONCE]), run_folder=tmp_path / "run")
    made = remember_run(run.folder)
    model = Model.load(run.bundle_folder)
    memory = CaseMemory.load(run.folder / "known_cases", model)
    data = open_data(run.config.data.path)
    rows = rows_of(run.division, "train")
    assert memory.predictions.label.tolist() == [data.cases[row].label for row in rows]
    assert memory.presence == pytest.approx(made.presence, abs=1e-7)
    assert len(read_thumbnails(run.known_cases_folder / "thumbnails.zip", range(len(rows)))) == len(rows)
    with refused(ValueError):  # all images have concepts
        trained_decoder(model.network)


def test_images_without_concepts_train_the_decoder(tmp_path: Path) -> None:
    settings = [f"data.path={skewed_manifest(tmp_path)}", *TINY, ONCE]
    run = train(load_config(None, settings), run_folder=tmp_path / "run")
    memory = remember_run(run.folder)
    model = Model.load(run.bundle_folder)
    ranges = usual_ranges(memory)
    moved = traverse(model.network, torch.from_numpy(memory.global_capsule[0]), steps=3, ranges=ranges)
    assert moved.values[:, [0, -1]].numpy() == pytest.approx(ranges, abs=1e-6)
    assert (np.sort(memory.global_capsule, axis=0)[0] <= ranges[:, 0] + 1e-7).all()
    assert (moved.pictures[:, -1] - moved.pictures[:, 0]).abs().max() > 0
