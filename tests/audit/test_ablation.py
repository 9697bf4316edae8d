import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from parsecaps.audit import ablation as audited
from parsecaps.audit.ablation import (
    MEAN,
    OTHER,
    TESTIMONY,
    UNIFORM,
    CutMeasures,
    RouteCuts,
    can_be_cut,
    compare_couplings,
    summarise_cuts,
)
from parsecaps.audit.audit_cases import Values, model_values
from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.explain import Target, route_relevance
from parsecaps.metrics import means
from parsecaps.model import Model
from parsecaps.models import ParseCaps, PlainCNN, find_model
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn import SAARouting, record_couplings, replace_couplings
from parsecaps.nn.couplings import Coupling, given, uniform
from parsecaps.prediction.predict import predict_cases
from parsecaps.rivals import CapsNet
from tests.messages import refused
from tests.models.contract import sharpened, warmed_up


def tiny(**changes: object) -> ParseCaps:
    return ParseCaps.from_preset("tiny", num_classes=2, **changes).eval()


def couplings(model: ParseCaps, image: Tensor) -> list[Tensor]:
    with record_couplings(model) as recorded:
        model(image)
    return [each.coupling for each in recorded if each.branch == "sparse"]


def cut(
    model: ParseCaps, values: Values, image: Tensor, column: int, relevance: list[Tensor], **options: object
) -> CutMeasures:
    """One target of every image."""
    cuts = RouteCuts(model, values, image, **options)  # type: ignore[arg-type]
    return cuts.measure(range(len(image)), [column] * len(image), relevance, np.random.default_rng(0))


@pytest.mark.parametrize("radius", [(0, 0, 0), (1, 1, 2)])  # kept as windows in the first cell, and dense
def test_what_is_cut_is_what_was_asked_for(radius: tuple[int, ...]) -> None:
    model, image = tiny(radius=radius), torch.rand(2, 1, 32, 32)
    values = model_values(model)
    found = cut(model, values, image, 1, couplings(model, image), shares=(0.5, 1.0))
    whole = values(image)[:, 1].numpy()
    np.testing.assert_allclose(found.shown[:, 0], whole, rtol=1e-6)
    np.testing.assert_allclose(found.random[:, 0], whole, rtol=1e-6)

    def none(module: Coupling, c: Tensor) -> Tensor:
        return torch.zeros_like(c) if module.branch == "sparse" else c

    with replace_couplings(model, none):
        bare = values(image)[:, 1].numpy()
    first = couplings(model, image)
    chosen = {id(module): c for module, c in zip(_modules(model), first, strict=True)}

    def gone(module: Coupling, c: Tensor) -> Tensor:  # all that the whole model had chosen
        return module.kept(module.dense(c) * (chosen[id(module)] == 0)) if id(module) in chosen else c

    with replace_couplings(model, gone):
        np.testing.assert_allclose(found.shown[:, 2], values(image)[:, 1].numpy(), rtol=1e-6)
    np.testing.assert_allclose(found.shown[:, 2], found.random[:, 2], rtol=1e-6)
    assert not np.allclose(found.shown[:, 2], whole)
    assert np.isfinite(bare).all()


def test_as_many_are_cut_at_random_as_are_shown() -> None:
    model, image = tiny(), torch.rand(3, 1, 32, 32)
    counts: list[list[int]] = []

    def values(given: Tensor) -> Tensor:
        with record_couplings(model) as recorded:
            output = model(given)
        # in the first cell nothing below has changed, so what is gone was cut
        first = next(each.coupling for each in recorded if each.branch == "sparse")
        counts.append((first > 0).flatten(1).sum(1).tolist())
        return output.presence

    cut(model, values, image, 0, couplings(model, image), shares=(0.3,))
    all_routes, strongest, shown_and_random = counts
    assert strongest == [count - math.ceil(0.3 * count) for count in all_routes]
    assert shown_and_random == 4 * strongest  # shown, three times random


def test_gains_are_means_over_the_shares() -> None:
    model, image = tiny(), torch.rand(4, 1, 32, 32)
    values = model_values(model)
    found = cut(model, values, image, 3, couplings(model, image))
    scores = summarise_cuts(found, partial(means, group=np.arange(4), resamples=20))
    assert scores.gain.value == pytest.approx((found.random - found.shown)[:, 1:].mean())
    assert scores.gain_on_strongest.value == 0


def test_pairs_in_one_batch_are_as_each_alone() -> None:
    """Two targets of three images; the same random numbers in the same order."""
    model, image = tiny(), torch.rand(3, 1, 32, 32)
    first, second = couplings(model, image), [torch.rand_like(each) for each in couplings(model, image)]
    cuts, random = RouteCuts(model, model_values(model), image), np.random.default_rng(7)
    both = [torch.cat([a[:2], b[[2, 0]]]) for a, b in zip(first, second, strict=True)]
    found = cuts.measure([0, 1, 2, 0], [1, 1, 4, 4], both, random)
    random = np.random.default_rng(7)
    for part, case, column, relevance in (([0, 1], [0, 1], 1, first), ([2, 3], [2, 0], 4, second)):
        alone = RouteCuts(model, model_values(model), image[case])
        wanted = alone.measure([0, 1], [column] * 2, [each[case] for each in relevance], random)
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got[part], want, rtol=1e-5)


def test_the_network_is_left_as_it_was() -> None:
    model, image = tiny(), torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        before = model(image).logits
        cut(model, model_values(model), image, 0, couplings(model, image))
        torch.testing.assert_close(model(image).logits, before, rtol=0, atol=0)
        assert not torch.equal(model(1 - image).logits, before)
    assert not model.primary._forward_hooks


def test_routes_to_classes_can_be_cut_too() -> None:
    """The first layers run again, as they are no tree's."""
    torch.manual_seed(0)
    model, image = CapsNet.from_preset("tiny", num_classes=3).eval(), torch.rand(2, 1, 32, 32)
    assert can_be_cut(model)
    assert not can_be_cut(CapsNet.from_preset("tiny", num_classes=3, routing="none"))
    assert not can_be_cut(PlainCNN(num_classes=3, image_size=32))

    def scores(image: Tensor) -> Tensor:
        with torch.no_grad():
            return model(image).logits

    ((brought,),) = route_relevance(model, image, [Target("classes", 1)])
    cuts = RouteCuts(model, scores, image)
    found = cuts.measure([0, 1], [1, 1], [brought], np.random.default_rng(0))
    np.testing.assert_allclose(found.shown[:, 0], scores(image)[:, 1], rtol=1e-5)
    assert (np.diff(found.shown[:, :3]) < 0).all()
    assert (found.shown[:, 1:3] < found.random[:, 1:3]).all()
    assert (found.shown[:, 1:3] <= found.strongest[:, 1:3]).all()


def _modules(model: ParseCaps) -> list[Coupling]:
    return [module for module in model.modules() if isinstance(module, Coupling) and module.branch == "sparse"]


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


@pytest.mark.usefixtures("as_predictions")
def test_testimony_is_what_the_context_says_by_choosing(data: DataSet, prepared: PreparedImages) -> None:
    """By hand: the leaves of the mean image, and the context of each."""
    small = {"dims": (4, 8, 8), "cells": (1, 2), "heads": (2, 2), "radius": (1, 1), "tile": 16, "context_cells": 2}
    settings = {"num_classes": 2, "in_channels": 3, "image_size": 32, "num_concepts": 0, "trunk": "PlainCNN", **small}
    streams = sharpened(warmed_up(ParseCaps.from_preset("trunk", **settings))).eval()
    ordinary, found = measured(streams, data, prepared)
    image = streams.standardise(images_of(prepared))
    with torch.no_grad():
        mean = streams.standardise(images_of(prepared).mean(0, keepdim=True))
        maps, u = streams.context(image), streams.primary(streams.initial(mean)).expand(len(image), -1, -1)
        for cell in streams.cells:
            u = cell(u, maps)
        wanted = streams.classes(streams.norm(u))[0].double().numpy()
    np.testing.assert_allclose(found[TESTIMONY].logits, wanted, atol=1e-5)
    assert np.abs(wanted - wanted[:1]).max() > 1e-3  # it says something
    assert np.abs(wanted - ordinary.logits).max() > 1e-3
    assert all(not module._forward_hooks for module in streams.modules())
    alone = warmed_up(ParseCaps.from_preset("trunk", **{**settings, "context": "none"})).eval()
    assert list(measured(alone, data, prepared)[1]) == [UNIFORM, OTHER, MEAN]


def test_routes_of_two_streams_can_be_cut() -> None:
    """The context is computed once, and is that of each image."""
    small = {"dims": (4, 8), "cells": (1,), "heads": (2,), "radius": (1,), "tile": 16, "trunk": "PlainCNN"}
    model = ParseCaps.from_preset("trunk", num_classes=2, image_size=32, num_concepts=2, **small)
    model, image = sharpened(warmed_up(model)), torch.rand(3, 1, 32, 32)
    values, relevance = model_values(model), couplings(model, image)
    together = cut(model, values, image, 1, relevance)
    for i in range(3):
        alone = cut(model, values, image[i : i + 1], 1, [each[i : i + 1] for each in relevance])
        np.testing.assert_allclose(together.shown[i], alone.shown[0], rtol=1e-5)
    np.testing.assert_allclose(together.shown[:, 0], values(image)[:, 1], rtol=1e-5)


def test_one_image_has_no_other(model: ParseCaps, data: DataSet, prepared: PreparedImages) -> None:
    with refused(ValueError):
        measured(model, data, prepared, ROWS[:1])
