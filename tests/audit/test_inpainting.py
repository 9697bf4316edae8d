"""Places painted over, and lesions, for models of which it is known what they look at."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from parsecaps.audit.audit_cases import About, AuditCases, CaseMasks, Masks, find_masks
from parsecaps.audit.inpainting import (
    Inpainted,
    another_place,
    measure_inpainted,
    paint_over,
    summarise_inpainted,
    widened,
)
from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.model import Model
from parsecaps.types import Output
from tests.messages import refused

ROWS = list(range(12))
SIZE = 32


@pytest.fixture(scope="module")
def data() -> DataSet:
    return open_data(f"phantom:n=12,size={SIZE}")


@pytest.fixture(scope="module")
def prepared(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> PreparedImages:
    return prepare_all(data, Preparation(SIZE, 3), folder=tmp_path_factory.mktemp("cache"))


class Looks(nn.Module):
    """Sees the concepts of an image, and its label, as long as the pixels that it looks at are as they were."""

    def __init__(self, data: DataSet, prepared: PreparedImages, places: np.ndarray) -> None:
        super().__init__()
        self.num_classes, self.num_concepts = len(data.classes), len(data.concepts)
        self.in_channels, self.image_size = 3, SIZE
        self.scale = nn.Parameter(torch.ones(()))
        self.known = torch.from_numpy(np.array(prepared.images[ROWS])).float() / 255
        self.places = torch.from_numpy(places)  # (N, concepts or 1, size, size)
        self.concepts = torch.tensor([data.cases[row].concepts for row in ROWS])
        self.label = torch.tensor([data.cases[row].label for row in ROWS])

    def forward(self, image: Tensor) -> Output:
        same = (image[:, None] == self.known).all(2)  # (B, N, size, size)
        row = same.flatten(2).sum(2).argmax(1)
        changed = ~same[torch.arange(len(image)), row]
        intact = ~(changed[:, None] & self.places[row]).flatten(2).any(2)  # (B, concepts or 1)
        presence = self.concepts[row] * intact
        label = torch.where(intact[:, 0], self.label[row], 1 - self.label[row])
        return Output(logits=nn.functional.one_hot(label, 2) * 9.0, presence=presence * self.scale)


def cases_of(data: DataSet, prepared: PreparedImages, places: np.ndarray) -> AuditCases:
    model = Looks(data, prepared, places).eval()
    return AuditCases(
        Model(model, Preparation(SIZE, 3), data.classes, data.concepts), CaseSet(data, prepared, ROWS), resamples=20
    )


@pytest.fixture(scope="module")
def drawn(data: DataSet, prepared: PreparedImages) -> Masks:
    masks = find_masks(data, cases_of(data, prepared, np.zeros((12, 1, SIZE, SIZE), bool)).model)
    assert masks.concepts is not None
    return masks.concepts


def hide(cases: AuditCases, about: About, masks: CaseMasks, label: np.ndarray) -> tuple[Inpainted | None, np.ndarray]:
    measured = measure_inpainted(cases, about, masks, label)
    assert measured is not None
    return summarise_inpainted(measured, cases, about), measured.needed


def labels(data: DataSet) -> np.ndarray:
    return np.array([data.cases[row].label for row in ROWS])


def test_concepts_that_are_seen_where_they_are(data: DataSet, prepared: PreparedImages, drawn: Masks) -> None:
    cases = cases_of(data, prepared, drawn(ROWS))
    found, needed = hide(cases, "concepts", CaseMasks(drawn), labels(data))
    assert found is not None
    present = np.array([data.cases[row].concepts for row in ROWS]) == 1
    assert ((needed == 1) == present).all()
    assert (np.isnan(needed) == ~present).all()
    assert [target.name for target in found.targets] == list(data.concepts)
    assert [target.shown.n for target in found.targets] == present.sum(0).tolist()
    for each in (found.overall, *found.targets):
        if each.shown.n:
            assert (each.shown.value, each.hidden.value) == (1, 0)
            assert each.elsewhere.value in {1, None}  # it does not look there
    assert found.overall.elsewhere.n > 0
    assert found.overall.shown.n == present.sum()


def test_a_diagnosis_that_does_not_need_its_lesion(data: DataSet, prepared: PreparedImages, drawn: Masks) -> None:
    whole = drawn(ROWS).any(1)
    nowhere = cases_of(data, prepared, np.zeros((12, 1, SIZE, SIZE), bool))
    there = cases_of(data, prepared, whole[:, None])

    def lesion(rows: object) -> np.ndarray:
        return np.asarray(whole[rows])

    for cases, left in ((nowhere, 1), (there, 0)):
        found, needed = hide(cases, "classes", CaseMasks(lesion=lesion), labels(data))
        assert found is not None
        assert (needed[whole.any((1, 2))] == 1 - left).all()
        assert (found.overall.shown.value, found.overall.hidden.value) == (1, left)
        assert found.overall.shown.n == whole.any((1, 2)).sum()
        assert [target.shown.n for target in found.targets] == [
            int(whole[labels(data) == label].any((1, 2)).sum()) for label in range(2)
        ]


def test_unknown_labels_and_missing_masks_take_no_part(data: DataSet, prepared: PreparedImages, drawn: Masks) -> None:
    cases = cases_of(data, prepared, drawn(ROWS))
    assert measure_inpainted(cases, "classes", CaseMasks(drawn), labels(data)) is None
    none = CaseMasks(lesion=lambda rows: np.zeros((len(rows), SIZE, SIZE), bool))
    every = CaseMasks(lesion=lambda rows: np.ones((len(rows), SIZE, SIZE), bool))  # nothing to fill it from
    for masks in (none, every):
        found, needed = hide(cases, "classes", masks, labels(data))
        assert found is None
        assert np.isnan(needed).all()
    corner = np.zeros((12, SIZE, SIZE), bool)
    corner[:, :6, :6] = True
    label = np.where(np.arange(12) < 5, labels(data), -1)
    found, needed = hide(cases, "classes", CaseMasks(lesion=lambda rows: corner[: len(rows)]), label)
    assert found is not None
    assert found.overall.shown.n == 5
    assert not np.isnan(needed).any()  # whether an answer changes can be said without a label


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
    with refused(ValueError):
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
