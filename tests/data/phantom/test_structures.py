"""The concepts as dermatologists describe them, measured on the pictures and the masks."""

import numpy as np
from scipy import ndimage

from parsecaps.data.phantom import CONCEPTS, PhantomBatch, draw

SIZE = 128
COUNT = 24
NOTHING = {name: False for name in CONCEPTS}


def alone(name: str) -> tuple[PhantomBatch, np.ndarray, np.ndarray]:
    """Scenes with one concept only, its masks, and how much darker (or lighter) it made each pixel."""
    with_it = draw(range(COUNT), size=SIZE, force={**NOTHING, name: True})
    plain = draw(range(COUNT), size=SIZE, force=NOTHING)
    darker = plain.image.mean(1) - with_it.image.mean(1)
    return with_it, with_it.concept_masks[:, CONCEPTS.index(name)], darker


def directions(batch: PhantomBatch, masks: np.ndarray) -> np.ndarray:
    """(N, 12): which of twelve directions from the lesion's centre have pixels of the mask beyond its border."""
    found = np.zeros((len(masks), 12), bool)
    for row, (lesion, mask) in enumerate(zip(batch.lesion, masks, strict=True)):
        y0, x0 = ndimage.center_of_mass(lesion)
        y, x = np.nonzero(mask & ~lesion)
        found[row, ((np.arctan2(y - y0, x - x0) / (2 * np.pi)) % 1 * 12).astype(int) % 12] = True
    return found


def test_regular_streaks_are_all_round_and_irregular_ones_on_a_part() -> None:
    regular, masks, darker = alone("regular streaks")
    assert directions(regular, masks).all()
    assert darker[masks].mean() > 10
    irregular, masks, darker = alone("irregular streaks")
    covered = directions(irregular, masks).sum(1)
    assert covered.min() >= 2
    assert covered.max() <= 9
    assert covered.mean() < 6.5
    assert darker[masks].mean() > 10


def test_regular_globules_are_alike_and_spread_irregular_ones_neither() -> None:
    def size_variation_and_spread(name: str) -> tuple[float, float]:
        batch, masks, darker = alone(name)
        assert darker[masks].mean() > 10
        variation, spread = [], []
        for lesion, mask in zip(batch.lesion, masks, strict=True):
            labels, count = ndimage.label(mask)
            areas = ndimage.sum(mask, labels, range(1, count + 1))
            variation.append(areas.std() / areas.mean())
            gaps = ndimage.distance_transform_edt(~mask)[lesion]  # how far the next globule is
            spread.append(np.percentile(gaps, 95) / np.sqrt(lesion.sum()))
        return float(np.mean(variation)), float(np.mean(spread))

    regular, irregular = (size_variation_and_spread(f"{kind} dots and globules") for kind in ("regular", "irregular"))
    assert regular[0] < 0.35
    assert irregular[0] > 0.6
    assert irregular[1] > 2 * regular[1]


def test_a_typical_network_fades_at_the_border_and_an_atypical_one_ends_there() -> None:
    def rim_over_core(name: str) -> float:
        batch, masks, darker = alone(name)
        rim, core = [], []
        for lesion, mask, change in zip(batch.lesion, masks, darker, strict=True):
            depth = ndimage.distance_transform_edt(lesion) / np.sqrt(lesion.sum() / np.pi)
            rim.append(np.abs(change)[mask & (depth > 0.03) & (depth < 0.15)].mean())
            core.append(np.abs(change)[mask & (depth > 0.3)].mean())
        return float(np.mean(rim) / np.mean(core))

    assert rim_over_core("typical pigment network") < 0.7
    assert rim_over_core("atypical pigment network") > 0.9


def test_an_atypical_network_is_darker_and_less_even() -> None:
    def darkest_by_place(name: str) -> np.ndarray:
        """The strongest line in each of many neighbourhoods of the network's core."""
        _, masks, darker = alone(name)
        strongest = ndimage.maximum_filter(darker, (1, 13, 13))[:, ::8, ::8]
        core = ndimage.minimum_filter(masks, (1, 13, 13))[:, ::8, ::8]
        return np.array([[s[c].mean(), s[c].std()] for s, c in zip(strongest, core, strict=True) if c.sum() > 8])

    typical, atypical = darkest_by_place("typical pigment network"), darkest_by_place("atypical pigment network")
    assert atypical[:, 0].mean() > 1.15 * typical[:, 0].mean()
    assert atypical[:, 1].mean() > 1.3 * typical[:, 1].mean()


def test_a_veil_is_blue_over_a_part_of_the_lesion() -> None:
    batch, masks, _ = alone("blue-whitish veil")
    plain = draw(range(COUNT), size=SIZE, force=NOTHING)
    for image, before, lesion, mask in zip(batch.image, plain.image, batch.lesion, masks, strict=True):
        assert 0.1 < (mask & lesion).sum() / lesion.sum() < 0.97
        red, _, blue = image[:, mask].astype(float).mean(1)
        red_before, _, blue_before = before[:, mask].astype(float).mean(1)
        assert (blue - red) - (blue_before - red_before) > 15
        pieces = np.bincount(ndimage.label(mask)[0].ravel())[1:]
        assert pieces.max() / mask.sum() > 0.7  # confluent
