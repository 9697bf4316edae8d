"""Other couplings than a network's own: whose they are, over which images the mean is, and what they cost."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from parsecaps.audit import couplings as audited
from parsecaps.audit.couplings import MEAN, OTHER, UNIFORM, compare_couplings
from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.model import Model
from parsecaps.models import ParseCaps, find_model
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn import Coupling, SAARouting, replace_couplings
from parsecaps.nn.couplings import given, uniform
from parsecaps.prediction.predict import predict_cases
from tests.models.contract import sharpened, warmed_up

ROWS = list(range(20, 31))
Couplings = dict[Coupling, Tensor]


@pytest.fixture(scope="module")
def data() -> DataSet:
    return open_data("phantom:n=40,size=32")


@pytest.fixture(scope="module")
def prepared(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> PreparedImages:
    return prepare_all(data, Preparation(32, 3), folder=tmp_path_factory.mktemp("cache"))


@pytest.fixture
def model() -> ParseCaps:
    """With couplings that differ between images."""
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=0, in_channels=3)
    return sharpened(warmed_up(model)).eval()


def routings(model: PretrainedModel) -> Iterator[SAARouting]:
    return (each for each in model.modules() if isinstance(each, SAARouting))


def measured(network: PretrainedModel, data: DataSet, prepared: PreparedImages, rows: list[int] = ROWS) -> Any:
    model = Model(network, Preparation(32, 3), data.classes, ())
    ordinary = predict_cases(model, CaseSet(data, prepared, rows))
    return ordinary, compare_couplings(model, CaseSet(data, prepared, rows), ordinary, resamples=20)


def images_of(prepared: PreparedImages, rows: list[int] = ROWS) -> Tensor:
    return torch.from_numpy(np.array(prepared.images[rows])).float().div(255)


def couplings_of(model: PretrainedModel, image: Tensor) -> Couplings:
    own: Couplings = {}
    with torch.no_grad(), replace_couplings(model, lambda module, c: own.setdefault(module, c)):
        model(image)
    return own


@torch.no_grad()
def logits(model: PretrainedModel, image: Tensor, couplings: Couplings) -> np.ndarray:
    with replace_couplings(model, given(couplings)):
        return np.asarray(model(image).logits.double())


@pytest.fixture
def as_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `compare_couplings` give the predictions that it would compare, in the order of the ordinary ones."""

    def second(first: Any, other: Any, **options: Any) -> Any:
        return other.subset([other.name.index(name) for name in first.name])

    monkeypatch.setattr(audited, "compare", second)


@pytest.mark.usefixtures("as_predictions")
def test_couplings_of_another_image_come_from_another_image(
    model: ParseCaps, data: DataSet, prepared: PreparedImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audited, "_COUPLED", 4)  # the last batch has three images, and takes from the first
    _, found = measured(model, data, prepared)
    image = images_of(prepared)
    each = [couplings_of(model, one[None]) for one in image]
    table = np.stack([logits(model, image, own) for own in each], axis=1)  # (images, donors, classes)
    far = np.abs(table - found[OTHER].logits[:, None]).max(-1)
    donor = far.argmin(1)
    assert far.min(1).max() < 1e-5
    assert np.sort(far, axis=1)[:, 1].min() > 1e-4  # the donor is the only one that fits
    at, seen = 0, []
    for _ in ROWS:
        seen.append(at)
        at = int(donor[at])
    assert sorted(seen) == list(range(len(ROWS)))  # one cycle: nobody is left in place
    assert len(set((donor - np.arange(len(ROWS))) % len(ROWS))) > 2  # not a shift, by which neighbours in order swap


@pytest.mark.usefixtures("as_predictions")
@pytest.mark.parametrize("batch", [1, 4, 64])
def test_the_mean_is_over_all_images_whatever_the_batch(
    model: ParseCaps, data: DataSet, prepared: PreparedImages, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audited, "_COUPLED", batch)
    _, found = measured(model, data, prepared)
    image = images_of(prepared)
    each = [couplings_of(model, one[None]) for one in image]
    mean = {module: torch.cat([own[module] for own in each]).mean(0, keepdim=True) for module in each[0]}
    np.testing.assert_allclose(found[MEAN].logits, logits(model, image, mean), rtol=0, atol=1e-5)
    first = {module: torch.cat([own[module] for own in each[:4]]).mean(0, keepdim=True) for module in each[0]}
    assert np.abs(found[MEAN].logits - logits(model, image, first)).max() > 1e-4  # four alone have another mean


def test_couplings_that_do_not_depend_on_the_image_cost_nothing(
    model: ParseCaps, data: DataSet, prepared: PreparedImages
) -> None:
    with torch.no_grad():
        for routing in routings(model):  # parents ask for nothing, so the priors alone are the logits
            routing.query_norm.weight.zero_()
            routing.query_norm.bias.zero_()
    own = couplings_of(model, images_of(prepared))
    assert all(torch.equal(c, c[:1].expand_as(c)) for c in own.values())
    _, found = measured(model, data, prepared)
    for name in (OTHER, MEAN):
        for each in found[name].differences.values():
            assert (each.difference, each.low, each.high) == (0, 0, 0)


@pytest.mark.usefixtures("as_predictions")
def test_trees_and_class_routings_alike(model: ParseCaps, data: DataSet, prepared: PreparedImages) -> None:
    """In cells, and in a rival's class capsules."""
    rival = find_model("CapsNet").from_preset("tiny", num_classes=2, in_channels=3).eval()
    for network in (model, rival):
        ordinary, found = measured(network, data, prepared)
        with replace_couplings(network, uniform):
            loaded = Model(network, Preparation(32, 3), data.classes, ())
            wanted = predict_cases(loaded, CaseSet(data, prepared, ROWS))
        assert np.array_equal(found[UNIFORM].logits, wanted.logits)
        assert all(np.abs(found[name].logits - ordinary.logits).max() > 0 for name in (OTHER, MEAN))
        assert all(not module._forward_hooks for module in network.modules())


def test_one_image_has_no_other(model: ParseCaps, data: DataSet, prepared: PreparedImages) -> None:
    with pytest.raises(ValueError, match="need 2 images, and there are 1"):
        measured(model, data, prepared, ROWS[:1])
