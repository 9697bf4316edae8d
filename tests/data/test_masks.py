"""Masks of lesions on a small grid, and that they move as their images do."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from parsecaps.data.batches import Augmentation, Batches
from parsecaps.data.cache import PreparedImages
from parsecaps.data.case_set import CaseSet, lesion_masks
from parsecaps.data.leaks import Fingerprints
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from tests.data.make import table

CHANGES = Augmentation(rotation=180, scale=0.2, shear=0.2, shift=0.1, padding=3, gamma=0, contrast=0, brightness=0)


@pytest.mark.parametrize("resampling", ["bilinear", "bicubic"])
def test_masks_move_with_their_images(resampling: str) -> None:
    """A bright disc and its mask, on a grid a quarter as fine, stay at the same place under any change of place."""
    data = table([(f"p{i}", i % 2, 1) for i in range(6)], "xy")
    row, column = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    disc = ((row - 20) ** 2 + (column - 40) ** 2 < 12**2).float()
    images = (disc * 255).byte().expand(6, 1, 64, 64).numpy().copy()
    masks = (F.avg_pool2d(disc[None], 4) * 255).byte().expand(6, 16, 16).numpy().copy()
    none = Fingerprints(np.zeros((6, 32), np.uint8), np.zeros((6, 256), np.uint8))
    prepared = PreparedImages(images, none, [(64, 64)] * 6, [""] * 6, [])

    def batch(**settings: Any) -> Any:
        return next(iter(Batches(CaseSet(data, prepared, range(6)), batch_size=6, **settings).epoch(0)))

    plain = batch(masks=masks)
    assert torch.equal(plain.mask[:, 0], torch.from_numpy(masks).float() / 255)
    given: dict[str, Any] = {
        "augmentation": CHANGES.model_copy(update=dict(resampling=resampling)),
        "views": 2,
        "shuffle": True,
    }
    moved, without, mixed = batch(**given, masks=masks), batch(**given), batch(**given, masks=masks, mixup=0.4)
    assert moved.mask.shape == (12, 1, 16, 16)
    for each in (moved, mixed):
        assert (each.mask - F.avg_pool2d(each.image, 4)).abs().mean() < 0.03
    assert (moved.mask - plain.mask.repeat(2, 1, 1, 1)).abs().mean() > 0.05
    assert without.mask is None
    assert torch.equal(without.image, moved.image)


def test_lesions_of_drawn_images() -> None:
    drawn, rows = open_data("phantom:n=40,size=64"), [3, 5, 9]
    assert drawn.has_masks(rows)
    found = lesion_masks(drawn, Preparation(64), rows)
    assert found.shape == (40, 28, 28)
    assert not found[[0, 1, 2, 4]].any()
    assert drawn.concept_masks is not None
    whole = drawn.concept_masks(rows, 112).any(1)
    assert whole.any()
    assert found[rows] / 255 == pytest.approx(whole.reshape(3, 28, 4, 28, 4).mean((2, 4)), abs=0.35)
    middle = lesion_masks(drawn, Preparation(64, centre=0.5), rows)
    inner = whole[:, 28:84, 28:84].reshape(3, 28, 2, 28, 2).mean((2, 4))
    assert np.abs(middle[rows] / 255 - inner).mean() < 0.05


def test_lesions_of_files(tmp_path: Path) -> None:
    mask = np.zeros((56, 112), np.uint8)
    mask[:28, :56] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    data = table([("p", 0, 1), ("q", 0, 1)], "x")
    assert not data.has_masks([0, 1])
    data = replace(data, cases=[data.cases[0], replace(data.cases[1], mask=tmp_path / "mask.png")])
    assert data.has_masks([0, 1])
    assert not data.has_masks([0])
    found = lesion_masks(data, Preparation(64), [0, 1])
    assert not found[0].any()
    wanted = np.zeros((28, 28))
    wanted[7:14, :14] = 255  # padded to a square
    assert np.abs(found[1] - wanted).mean() < 10
