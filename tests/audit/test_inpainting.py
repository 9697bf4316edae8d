import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsecaps.audit.inpainting import another_place, paint_over, widened


def square(size: int = 20, top: int = 5, left: int = 6, side: int = 4) -> np.ndarray:
    mask = np.zeros((size, size), bool)
    mask[top : top + side, left : left + side] = True
    return mask


@given(st.integers(0, 10_000))
def test_what_was_there_is_gone_and_the_rest_stays(seed: int) -> None:
    random = np.random.default_rng(seed)
    image, mask = random.random((3, 9, 12)), random.random((9, 12)) < random.uniform(0.1, 0.9)
    if mask.all() or not mask.any():
        return
    other = np.where(mask, random.random(image.shape), image)
    painted = paint_over(image, mask)
    assert np.allclose(painted, paint_over(other, mask))  # of what was under the mask nothing is left
    assert (painted[:, ~mask] == image[:, ~mask]).all()
    assert painted.min() >= image[:, ~mask].min() - 1e-9  # no new extreme: nothing stands out
    assert painted.max() <= image[:, ~mask].max() + 1e-9


def test_each_pixel_is_the_mean_of_its_neighbours_also_at_the_edge() -> None:
    image = np.random.default_rng(0).random((1, 6, 6))
    mask = np.zeros((6, 6), bool)
    mask[:3, :2] = True
    painted = paint_over(image, mask)[0]
    for row, column in np.argwhere(mask):
        around = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)]
        beside = [painted[place] for place in around if min(place) >= 0]
        assert painted[row, column] == pytest.approx(np.mean(beside))


def test_the_image_itself_is_not_touched_and_an_empty_mask_changes_nothing() -> None:
    image = np.random.default_rng(0).random((1, 20, 20))
    before = image.copy()
    paint_over(image, square())
    assert (image == before).all()
    assert (paint_over(image, np.zeros((20, 20), bool)) == image).all()


def test_nothing_is_left_to_fill_from() -> None:
    with pytest.raises(ValueError, match="covers the whole image"):
        paint_over(np.zeros((1, 4, 4)), np.ones((4, 4), bool))


def test_a_margin_of_two_pixels_in_a_hundred() -> None:
    assert widened(square(100, side=1)).sum() == 13  # two steps around a pixel
    assert widened(square(20, side=1)).sum() == 5
    assert not widened(np.zeros((20, 20), bool)).any()


def test_the_other_place_has_the_same_shape_and_some_detail() -> None:
    random = np.random.default_rng(0)
    image = np.zeros((1, 20, 20))
    image[:, :, :10] = random.random((1, 20, 10))  # blank on the right
    mask = widened(square(left=2))
    for _ in range(20):
        moved = another_place(image, mask, random)
        assert moved is not None
        assert moved.sum() == mask.sum()
        assert not (moved & mask).any()
        assert image[:, moved].std() >= 0.5 * image[:, mask].std()


def test_there_may_be_no_other_place() -> None:
    random = np.random.default_rng(0)
    image = random.random((1, 20, 20))
    assert another_place(image, square(side=12), random) is None
    assert another_place(image, np.zeros((20, 20), bool), random) is None
