"""The pictures: the same alone and in a batch and at every size, and one concept changes its own pixels alone."""

import time
from functools import cache

import numpy as np
import pytest

from parsecaps.data.phantom import CONCEPTS, PhantomBatch, case_table, draw
from parsecaps.data.phantom.checklist import EXCLUSIVE
from tests.messages import refused

NOTHING = {name: False for name in CONCEPTS}


@cache
def batch(size: int) -> PhantomBatch:
    return draw(range(40), size=size)


def assert_same(first: PhantomBatch, second: PhantomBatch) -> None:
    for name, a, b in zip(PhantomBatch._fields, first, second, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


def rows(whole: PhantomBatch, chosen: list[int]) -> PhantomBatch:
    return PhantomBatch(*(field[chosen] for field in whole))


@pytest.mark.parametrize("size", [32, 47, 64])
def test_shapes_and_types(size: int) -> None:
    found = {name: (value.dtype.name, value.shape) for name, value in batch(size)._asdict().items()}
    assert found == {
        "image": ("uint8", (40, 3, size, size)),
        "lesion": ("bool", (40, size, size)),
        "concept_masks": ("bool", (40, 7, size, size)),
        "concepts": ("float32", (40, 7)),
        "label": ("int64", (40,)),
        "patient": ("int64", (40,)),
        "true_concepts": ("float32", (40, 7)),
        "true_label": ("int64", (40,)),
    }


@pytest.mark.parametrize("size", [32, 47, 64])
def test_an_image_is_the_same_in_every_batch_bit_for_bit(size: int) -> None:
    whole = batch(size)
    for i in (0, 5, 17, 39):
        assert_same(draw([i], size=size), rows(whole, [i]))
    mixed = [31, 2, 2, 39, 0, 18, 7]
    assert_same(draw(mixed, size=size), rows(whole, mixed))
    assert_same(draw(np.arange(39, -1, -1), size=size), rows(whole, list(range(39, -1, -1))))


def test_no_images_and_far_images() -> None:
    assert draw([], size=32).image.shape == (0, 3, 32, 32)
    assert_same(draw([10**9], size=32, seed=7), draw([10**9], size=32, seed=7))


def test_every_seed_and_number_is_another_picture() -> None:
    pictures = [*batch(32).image, *draw(range(40), size=32, seed=1).image]
    assert len({picture.tobytes() for picture in pictures}) == 80


def test_the_table_says_what_is_drawn() -> None:
    table = case_table(30, seed=4, concept_noise=0.2, label_noise=0.2)
    drawn = draw(range(30), size=32, seed=4, concept_noise=0.2, label_noise=0.2)
    for name, value in table._asdict().items():
        np.testing.assert_array_equal(value, getattr(drawn, name), err_msg=name)
    clean = draw(range(30), size=32, seed=4)
    np.testing.assert_array_equal(drawn.image, clean.image)  # noise is in the annotation, not in the picture
    np.testing.assert_array_equal(drawn.concept_masks, clean.concept_masks)


@pytest.mark.parametrize("size", [32, 64, 128])
def test_a_scene_is_the_same_at_every_size(size: int) -> None:
    small, large = batch(size), batch(256)
    for name in ("concepts", "label", "patient"):
        np.testing.assert_array_equal(getattr(small, name), getattr(large, name))

    def enlarged(mask: np.ndarray) -> np.ndarray:
        return mask.repeat(256 // size, -1).repeat(256 // size, -2)

    assert (overlap(enlarged(small.lesion), large.lesion) > 0.93).all()
    for concept, name in enumerate(CONCEPTS):
        present = small.concepts[:, concept] > 0
        masks = enlarged(small.concept_masks[present, concept]), large.concept_masks[present, concept]
        fine = "streaks" in name or "globules" in name  # a pixel at the rim is much of them
        least = {32: 0.4, 64: 0.65, 128: 0.8}[size] if fine else 0.85
        assert (overlap(*masks) > least).all(), name
    shrunk = large.image.reshape(40, 3, size, 256 // size, size, 256 // size).mean((3, 5))
    for picture, expected in zip(small.image, shrunk, strict=True):
        assert np.corrcoef(picture.ravel(), expected.ravel())[0, 1] > 0.97


def overlap(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    both, either = (first & second).sum((1, 2)), (first | second).sum((1, 2))
    return both / either


def test_masks_are_there_exactly_where_a_concept_is() -> None:
    drawn = draw(range(300), size=48)
    np.testing.assert_array_equal(drawn.concept_masks.any((2, 3)), drawn.concepts > 0)
    share = drawn.lesion.mean((1, 2))
    assert share.min() > 0.08
    assert share.max() < 0.6
    for concept in (0, 1, 2, 5, 6):  # all but streaks lie within the lesion, give or take its soft edge
        within = (drawn.concept_masks[:, concept] & drawn.lesion).sum() / drawn.concept_masks[:, concept].sum()
        assert within > 0.95, CONCEPTS[concept]
    for concept in (3, 4):
        beyond = (drawn.concept_masks[:, concept] & ~drawn.lesion).sum() / drawn.concept_masks[:, concept].sum()
        assert beyond > 0.4, CONCEPTS[concept]


@pytest.mark.parametrize("name", CONCEPTS)
def test_a_concept_changes_its_own_pixels_and_no_others(name: str) -> None:
    """Pairs of one scene with and without a concept: clear inside its mask, next to nothing outside."""
    opposite = {other: False for pair in EXCLUSIVE if name in pair for other in pair}
    with_it = draw(range(60), size=64, force={**opposite, name: True})
    without = draw(range(60), size=64, force={**opposite, name: False})
    np.testing.assert_array_equal(with_it.lesion, without.lesion)
    concept = CONCEPTS.index(name)
    np.testing.assert_array_equal(
        np.delete(with_it.concept_masks, concept, 1), np.delete(without.concept_masks, concept, 1)
    )
    change = np.abs(with_it.image.astype(int) - without.image).mean(1)  # (60, 64, 64)
    mask = with_it.concept_masks[:, concept]
    inside = np.array([c[m].mean() for c, m in zip(change, mask, strict=True)])
    outside = np.array([c[~m].mean() for c, m in zip(change, mask, strict=True)])
    assert inside.min() > 4
    assert np.median(inside) > 10
    assert outside.max() < 1
    assert (inside / outside).min() > 20


def test_forcing_what_is_so_changes_nothing() -> None:
    whole = batch(32)
    for name in CONCEPTS:
        chosen = np.flatnonzero(whole.concepts[:, CONCEPTS.index(name)]).tolist()
        assert_same(draw(chosen, size=32, force={name: True}), rows(whole, chosen))


def test_images_of_a_patient_share_skin_and_light_but_not_the_lesion() -> None:
    drawn = draw(range(200), size=32, force=NOTHING)
    skin = np.median(drawn.image[:, :, 8:24, 1:4], axis=(2, 3))  # at the left, where lesions do not reach
    spread = [np.ptp(skin[drawn.patient == p], 0).max() for p in np.unique(drawn.patient)]
    assert np.median(spread) < 10
    assert np.ptp(skin, 0).min() > 60  # over all patients
    first, second = drawn.patient[:-1] == drawn.patient[1:], (drawn.lesion[:-1] != drawn.lesion[1:]).any((1, 2))
    assert second[first].all()


@pytest.mark.parametrize("size", [0, 31, 513])
def test_sizes_that_cannot_be_drawn(size: int) -> None:
    with refused(ValueError):
        draw([0], size=size)


def test_the_largest_size() -> None:
    drawn = draw([1], size=512)
    assert drawn.image.shape == (1, 3, 512, 512)
    assert drawn.image.std() > 10


def test_speed_on_one_core() -> None:
    """At least 200 images a second at 64 px; the best of a few, since other work may share the machine."""
    draw(range(16), size=64)
    seconds = []
    for start in range(0, 480, 160):
        begin = time.process_time()
        draw(range(start, start + 160), size=64)
        seconds.append(time.process_time() - begin)
    assert 160 / min(seconds) > 200
