"""The contact sheet: where pictures and captions stand, and what is refused."""

import numpy as np
import pytest

from parsecaps.report.pictures import contact_sheet
from tests.messages import refused


def test_pictures_stand_row_by_row_on_white() -> None:
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 20, 30), dtype=np.uint8)
    sheet = contact_sheet(images, columns=2)
    assert sheet.dtype == np.uint8
    assert sheet.shape == (3, 3 * 24 + 4, 2 * 34 + 4)
    np.testing.assert_array_equal(sheet[:, 4:24, 4:34], images[0])
    np.testing.assert_array_equal(sheet[:, 4:24, 38:68], images[1])
    np.testing.assert_array_equal(sheet[:, 52:72, 4:34], images[4])
    assert (sheet[:, 52:, 34:] == 255).all()
    assert (sheet[:, :4] == 255).all()


def test_captions_stand_under_their_pictures() -> None:
    images = np.full((3, 1, 40, 60), 128, np.uint8)
    sheet = contact_sheet(images, ["nevus", "", "a caption much longer than its picture is wide"], columns=3)
    under = [sheet[:, 44:62, left : left + 60] for left in (4, 68, 132)]
    assert under[0].min() < 100
    assert under[1].min() == 255
    assert under[2].min() < 100
    assert (sheet[:, :, -4:] == 255).all()  # cut, not running over
    assert (sheet[:, 4:44, 4:64] == 128).all()


@pytest.mark.parametrize(
    ("images", "captions", "columns"),
    [
        (np.zeros((2, 3, 4, 4), np.float32), None, 2),
        (np.zeros((2, 4, 4, 3), np.uint8), None, 2),
        (np.zeros((0, 3, 4, 4), np.uint8), None, 2),
        (np.zeros((2, 3, 4, 4), np.uint8), ["one"], 2),
        (np.zeros((2, 3, 4, 4), np.uint8), None, 0),
    ],
)
def test_errors_name_the_fix(images: np.ndarray, captions: list[str] | None, columns: int) -> None:
    with refused(ValueError):
        contact_sheet(images, captions, columns=columns)
