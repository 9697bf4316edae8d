import warnings
from functools import partial

import numpy as np
import pytest

from parsecaps.audit.audit_cases import Average, joined
from parsecaps.audit.maps import THRESHOLDS, localise, measure_maps
from parsecaps.metrics import means
from tests.explain.oracle import quantus
from tests.messages import refused


def over(cases: int, resamples: int = 20) -> Average:
    return partial(means, group=np.arange(cases), resamples=resamples)


def random_maps(count: int = 6, targets: int = 2, size: int = 12) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    masks = np.zeros((count, targets, size, size), bool)
    for place in np.ndindex(count, targets):
        top, left = random.integers(0, size - 4, 2)
        masks[place][top : top + 4, left : left + 3] = True
    return random.random((count, targets, size, size)) + masks * random.random((count, targets, 1, 1)), masks


def test_pointing_and_mass_are_those_of_quantus() -> None:
    library = quantus()
    maps, masks = random_maps(8, 1)
    measured = measure_maps(maps, masks)
    settings = {"normalise": False, "disable_warnings": True, "display_progressbar": False}
    given = {"x_batch": maps, "y_batch": np.zeros(8, int), "a_batch": maps, "s_batch": masks}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hits = library.PointingGame(**settings)(model=None, **given)
        mass = library.RelevanceMassAccuracy(**settings)(model=None, **given)
    assert measured.pointing[:, 0].tolist() == [float(hit) for hit in hits]
    assert 0 < measured.pointing.mean() < 1
    np.testing.assert_allclose(measured.mass[:, 0], mass)


def test_overlap_is_counted_pixel_by_pixel() -> None:
    maps, masks = random_maps()
    measured = measure_maps(maps, masks)
    for place in np.ndindex(maps.shape[:2]):
        for t, threshold in enumerate(THRESHOLDS):
            above = maps[place] / maps[place].max() >= threshold
            both, either = (above & masks[place]).sum(), (above | masks[place]).sum()
            assert measured.overlap[(*place, t)] == pytest.approx(both / either)


def test_one_threshold_serves_all_cases() -> None:
    mask = np.zeros((2, 1, 10, 10), bool)
    mask[:, :, 2:5, 2:5] = True
    maps = mask * 1.0
    maps[0, 0][~mask[0, 0]] = 0.3  # found at any threshold above 0.3
    maps[1, 0, 2:5, 2:5] = 0.5  # and below 0.5
    maps[1, 0, 3, 3] = 1
    found = localise(measure_maps(maps, mask), over(2, 20), ["veil"]).targets[0]
    assert found.iou.value == 1
    assert found.threshold is not None
    assert 0.3 < found.threshold <= 0.5
    maps[1, 0, 2:5, 2:5] = 0.2  # no threshold serves both: its own best is not what counts
    maps[1, 0, 3, 3] = 1
    worse = localise(measure_maps(maps, mask), over(2, 20), ["veil"]).targets[0]
    assert worse.iou.value == pytest.approx((1 + 1 / 9) / 2)


@pytest.mark.parametrize("value", [0.0, 0.7, -1.0, np.nan, np.inf])
def test_a_blank_map_misses_and_is_counted(value: float) -> None:
    _, masks = random_maps(4, 1)
    maps = np.full(masks.shape, value)
    found = localise(measure_maps(maps, masks), over(4, 20), ["veil"]).targets[0]
    assert [each.value for each in (found.pointing, found.mass, found.iou)] == [0, 0, 0]
    assert (found.pointing.n, found.blank) == (4, 4)


def test_evidence_against_does_not_count() -> None:
    maps, masks = random_maps(5, 1)
    against = np.where(np.random.default_rng(0).random(maps.shape) < 0.4, -9 * maps, maps)
    for first, second in zip(measure_maps(against, masks), measure_maps(np.maximum(against, 0), masks), strict=True):
        np.testing.assert_array_equal(first, second)


def test_cases_without_the_concept_take_no_part() -> None:
    maps, masks = random_maps(6, 2)
    masks[3:, 1] = False
    found = localise(measure_maps(maps, masks), over(6, 50), ["veil", "streaks"])
    alone = localise(measure_maps(maps[:3, 1:], masks[:3, 1:]), over(3, 50), ["streaks"])
    assert [target.mass.n for target in found.targets] == [6, 3]
    assert found.targets[1].mass.value == alone.targets[0].mass.value
    assert found.targets[1].iou.value == alone.targets[0].iou.value
    masks[:, 1] = False
    nothing = localise(measure_maps(maps, masks), over(6, 50), ["veil", "streaks"])
    assert (nothing.targets[1].pointing.value, nothing.targets[1].threshold) == (None, None)
    assert nothing.mass.value == nothing.targets[0].mass.value


def test_a_map_without_a_clue_has_the_masks_share_inside() -> None:
    random = np.random.default_rng(2)
    masks = np.zeros((200, 1, 12, 12), bool)
    masks[:, 0, :6, :4] = True
    maps = random.random(masks.shape)
    found = localise(measure_maps(maps, masks), over(200, 300), ["veil"]).targets[0]
    assert found.share.value == pytest.approx(24 / 144)
    assert found.ratio.value == pytest.approx((found.mass.value or 0) / (24 / 144))
    assert (found.ratio.low or 0) < 1 < (found.ratio.high or 0)
    assert found.pointing.value == pytest.approx(24 / 144, abs=0.08)


def test_of_several_highest_points_the_share_inside_counts() -> None:
    mask = np.zeros((1, 1, 9, 9), bool)
    mask[0, 0, 4, 4] = True
    maps = np.zeros(mask.shape)
    maps[0, 0, 4, 7] = 1
    assert measure_maps(maps, mask).pointing[0, 0] == 0
    maps[0, 0, 4, 4] = 1
    assert measure_maps(maps, mask).pointing[0, 0] == 0.5


def test_batches_join_to_the_whole() -> None:
    maps, masks = random_maps()
    whole = measure_maps(maps, masks)
    parts = joined([measure_maps(maps[:2], masks[:2]), measure_maps(maps[2:], masks[2:])])
    for first, second in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(first, second)
    with refused(ValueError):
        measure_maps(maps, masks[:, :1])


def test_where_the_target_is_needed() -> None:
    masks = np.zeros((4, 1, 6, 6), bool)
    masks[:, :, 1, 1] = True
    maps = np.zeros((4, 1, 6, 6))
    maps[:2, :, 1, 1] = maps[2:, :, 4, 4] = 1  # the first two hit
    needed = np.array([[1], [0], [1], [np.nan]])
    options = {"average": over(4, 20), "names": ["veil"]}
    found = localise(measure_maps(maps, masks), needed=needed, **options)  # type: ignore[arg-type]
    assert found.pointing.value == 0.5
    assert found.needed is not None
    assert (found.needed.value, found.needed.n) == (0.5, 2)
    assert localise(measure_maps(maps, masks), **options).needed is None  # type: ignore[arg-type]
