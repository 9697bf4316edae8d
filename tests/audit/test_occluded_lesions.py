"""Things painted over, for models of which it is known what they look at."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parsecaps.audit.maps import Cases
from parsecaps.audit.masks import CaseMasks, Masks, find_masks
from parsecaps.audit.occluded_lesions import Hidden, measure_hidden, summarise_hidden
from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.explain.targets import About
from parsecaps.prediction.bundle import Bundle
from parsecaps.types import Output

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


def cases_of(data: DataSet, prepared: PreparedImages, places: np.ndarray) -> Cases:
    model = Looks(data, prepared, places).eval()
    return Cases(Bundle(model, Preparation(SIZE, 3), data.classes, data.concepts), data, prepared, ROWS)


@pytest.fixture(scope="module")
def drawn(data: DataSet, prepared: PreparedImages) -> Masks:
    masks = find_masks(data, cases_of(data, prepared, np.zeros((12, 1, SIZE, SIZE), bool)).bundle)
    assert masks.concepts is not None
    return masks.concepts


def hide(cases: Cases, about: About, masks: CaseMasks, label: np.ndarray) -> tuple[Hidden | None, np.ndarray]:
    measured = measure_hidden(cases, about, masks, label)
    assert measured is not None
    return summarise_hidden(measured, cases, about, resamples=20), measured.needed


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
    assert measure_hidden(cases, "classes", CaseMasks(drawn), labels(data)) is None
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
