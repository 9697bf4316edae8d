from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from parsecaps.data.masks import prepared_masks
from parsecaps.data.preparation import Preparation
from tests.data.make import folder_of_pictures


def test_masks_are_prepared_as_the_images(tmp_path: Path) -> None:
    data = folder_of_pictures(tmp_path, per_class=1, side=40)
    drawn = np.zeros((40, 40), np.uint8)
    drawn[:10] = 255
    Image.fromarray(drawn).save(tmp_path / "mask.png")
    data = replace(data, cases=[replace(data.cases[0], mask=tmp_path / "mask.png"), data.cases[1]])
    masks = prepared_masks(data, Preparation(size=20), [1, 0])
    assert masks.sum((1, 2)).tolist() == [0, pytest.approx(100, abs=2)]
    assert masks[1, :4].min() == 1
