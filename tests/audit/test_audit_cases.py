from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from parsecaps.audit.audit_cases import AuditCases, find_masks, model_values
from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import Case, DataSet
from parsecaps.data.phantom import draw
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.explain.attribution import Target
from parsecaps.model import Model
from parsecaps.models import PlainCNN
from tests.data.make import folder_of_pictures


def bundle_for(*concepts: str) -> Model:
    model = PlainCNN.from_preset("tiny", num_classes=2, num_concepts=len(concepts), in_channels=3)
    return Model(model, Preparation(32, 3), ("nevus", "melanoma"), concepts)


def test_drawn_concepts_are_found_by_name() -> None:
    data = open_data("phantom:n=12,size=64,seed=4")
    found = find_masks(data, bundle_for("irregular streaks", "no such thing", "blue-whitish veil"))
    assert found.concepts is not None
    assert found.lesion is None
    masks = found.concepts([3, 5, 8])
    truth = draw([3, 5, 8], size=32, seed=4).concept_masks
    np.testing.assert_array_equal(masks[:, 0], truth[:, data.concepts.index("irregular streaks")])
    np.testing.assert_array_equal(masks[:, 2], truth[:, data.concepts.index("blue-whitish veil")])
    assert not masks[:, 1].any()
    some = find_masks(data.subset([5, 8]), bundle_for("blue-whitish veil"))
    assert some.concepts is not None
    np.testing.assert_array_equal(some.concepts([0, 1])[:, 0], masks[1:, 2])


@pytest.fixture
def outlined(tmp_path: Path) -> DataSet:
    """Three pictures; the outline of a lesion in the upper half of the first two."""
    folder_of_pictures(tmp_path / "pictures", per_class=3, side=40)
    half = np.zeros((40, 40), np.uint8)
    half[:20] = 255
    Image.fromarray(half).save(tmp_path / "mask.png")
    masks = (tmp_path / "mask.png", tmp_path / "mask.png", None)
    truth = ((1.0, 0.0), (float("nan"), 1.0), (1.0, 1.0))
    cases = [
        Case(tmp_path / "pictures" / "a" / f"{i}.png", 0, f"p{i}", concepts=truth[i], mask=masks[i]) for i in range(3)
    ]
    return DataSet("test", tmp_path, ("nevus", "melanoma"), ("veil", "streaks"), cases)


def test_a_lesion_is_where_its_concepts_are(outlined: DataSet) -> None:
    found = find_masks(outlined, bundle_for("streaks", "veil"))
    assert found.lesion is not None
    assert found.concepts is not None
    lesion, concepts = found.lesion([0, 1, 2]), found.concepts([0, 1, 2])
    assert lesion[:2, :16].all()
    assert not lesion[:, 16:].any()
    assert not lesion[2].any()
    has = concepts.any((2, 3)).tolist()
    assert has == [[False, True], [True, False], [False, False]]  # known to have it, and outlined
    np.testing.assert_array_equal(concepts[0, 1], lesion[0])


def test_data_without_masks_have_none(outlined: DataSet) -> None:
    bare = replace(outlined, cases=[replace(case, mask=None) for case in outlined.cases])
    found = find_masks(bare, bundle_for("veil"))
    assert (found.concepts, found.lesion) == (None, None)
    assert find_masks(outlined, bundle_for("something else")).concepts is None


def test_values_are_presences_then_probabilities() -> None:
    image = torch.rand(2, 1, 32, 32)
    for concepts in (0, 3):
        model = PlainCNN.from_preset("tiny", num_classes=3, num_concepts=concepts).eval()
        with torch.no_grad():
            output, values = model(image), model_values(model)(image)
        torch.testing.assert_close(values[:, concepts:], output.logits.softmax(-1))
        assert values.shape == (2, concepts + 3)
        if output.presence is not None:
            torch.testing.assert_close(values[:, :concepts], output.presence)


def test_what_is_explained_is_what_a_case_has_or_else_what_is_seen(outlined: DataSet) -> None:
    model = bundle_for("streaks", "no such thing", "veil")
    cases = AuditCases(model, CaseSet(outlined, prepare_all(outlined, model.preparation), [2, 0, 1]))
    values = torch.tensor([[0.9, 0.2, 0.1, 0.7, 0.3], [0.9, 0.8, 0.1, 0.3, 0.7], [0.1, 0.1, 0.6, 0.5, 0.5]])
    found = cases.targets(range(3), values)
    assert found == [
        [Target("concepts", 0), Target("concepts", 2), Target("classes", 0)],
        [Target("concepts", 1), Target("concepts", 2), Target("classes", 1)],  # unknown, but seen; has no streaks
        [Target("concepts", 0), Target("concepts", 2), Target("classes", 0)],
    ]
    assert [cases.column(each) for each in found[1]] == [1, 2, 4]
    batches = list(cases.first(2).batches())
    assert [(batch, tuple(image.shape)) for batch, image in batches] == [(range(2), (2, 3, 32, 32))]
