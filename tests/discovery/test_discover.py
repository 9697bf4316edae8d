import numpy as np
import pytest

from parsecaps.discovery.discover import discover_concepts, effective_concepts, mask_overlap, purity
from tests.explain.make import make_memory
from tests.messages import refused

LABEL = np.repeat([0, 1, 2], 40)


def presences() -> np.ndarray:
    random = np.random.default_rng(0)
    pure = 0.1 + 0.5 * (LABEL == 2) + 0.2 * random.random(120)
    mixed = random.random(120)
    return np.column_stack([pure, mixed, np.full(120, 0.4) + 0.001 * random.random(120), 0.95 - pure])


def test_alive_dead_and_double_concepts_are_told_apart() -> None:
    found = discover_concepts(make_memory(presences(), label=LABEL))
    assert [each.dead for each in found] == [False, False, True, False]
    assert [each.duplicate for each in found] == [True, False, False, True]
    assert found[0].closest == ("unnamed 4", pytest.approx(-1))
    assert found[3].closest == ("unnamed 1", pytest.approx(-1))
    assert found[1].std == pytest.approx(presences()[:, 1].std())
    assert found[1].mean == pytest.approx(presences()[:, 1].mean())
    assert [each.case.row for each in found[0].prototypes] == sorted(
        (each.case.row for each in found[0].prototypes), key=lambda row: -presences()[row, 0]
    )


def test_how_many_concepts_there_really_are() -> None:
    unrelated = np.random.default_rng(0).random((5000, 4))
    assert effective_concepts(unrelated) == pytest.approx(4, abs=0.02)
    twice = np.column_stack([unrelated[:, :2], 1 - unrelated[:, :2], np.full(5000, 0.3)])
    assert effective_concepts(twice) == pytest.approx(2, abs=0.02)
    assert effective_concepts(np.full((10, 3), 0.4)) == 0
    # two that correlate by r: 2 / (1 + r²)
    mixed = np.column_stack([unrelated[:, 0], unrelated[:, 0] + unrelated[:, 1]]) / 2
    r = np.corrcoef(mixed.T)[0, 1]
    assert effective_concepts(mixed) == pytest.approx(2 / (1 + r**2), abs=1e-5)


def test_purity_is_the_share_of_one_class_beside_chance() -> None:
    memory = make_memory(presences(), label=LABEL)
    pure, mixed = purity(memory, 0), purity(memory, 1)
    assert pure is not None
    assert mixed is not None
    assert (pure.label, pure.share, pure.n) == ("pituitary", 1.0, 20)
    assert pure.p_value < 0.01
    assert 0.35 < pure.chance < 0.55  # the most frequent of three equal classes among 20 draws
    assert mixed.p_value > 0.05


def test_a_common_class_alone_is_not_purity() -> None:
    label = np.where(np.arange(120) < 108, 0, 1)
    found = purity(make_memory(presences(), label=label, patient=[str(i) for i in range(120)]), 1)
    assert found is not None
    assert found.share > 0.8
    assert found.chance == pytest.approx(0.9, abs=0.02)
    assert found.p_value > 0.05


def test_unknown_labels_are_left_out() -> None:
    label = np.where(LABEL == 2, -1, LABEL)
    found = purity(make_memory(presences(), label=label), 0)
    assert found is not None
    assert found.label != "pituitary"
    assert purity(make_memory(presences(), label=np.full(120, -1)), 0) is None


def test_overlap_of_maps_and_masks() -> None:
    masks, maps = np.zeros((3, 4, 4)), np.zeros((3, 4, 4))
    masks[0, :2], masks[1, 0, 0] = 1, 1  # the third has no mask
    maps[0, 0, 0], maps[0, 3, 3] = 3, 1  # three quarters inside, highest inside
    maps[1] = 1
    maps[1, 3, 3] = 2  # 1 of 17 inside, highest outside
    maps[2] = 1
    found = mask_overlap(maps, masks)
    assert found is not None
    assert found.inside == pytest.approx((3 / 4 + 1 / 17) / 2)
    assert found.share == pytest.approx((8 / 16 + 1 / 16) / 2)
    assert (found.pointing, found.n) == (0.5, 2)
    assert mask_overlap(maps[2:], masks[2:]) is None
    with refused(ValueError):
        mask_overlap(maps, masks[:, :2])


def test_maps_are_asked_for_the_prototypes() -> None:
    memory = make_memory(presences(), label=LABEL)
    half = np.zeros((120, 4, 4))
    half[:, :2] = 1
    found = discover_concepts(
        memory,
        count=5,
        maps=lambda rows, concept: np.stack([half[row] if concept == 0 else 1 - half[row] for row in rows]),
        masks=lambda rows: half[list(rows)],
    )
    assert [each.overlap and each.overlap.inside for each in found] == [1, 0, 0, 0]
    assert found[0].overlap is not None
    assert found[0].overlap.n == len(found[0].prototypes) == 5
