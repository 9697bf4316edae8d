import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from parsecaps.audit.cases import Values, model_values
from parsecaps.audit.couplings import CutMeasures, RouteCuts, can_be_cut, summarise_cuts
from parsecaps.explain import Target, route_relevance
from parsecaps.metrics import means
from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.nn import record_couplings, replace_couplings
from parsecaps.nn.couplings import Coupling
from parsecaps.rivals import CapsNet


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
    with pytest.raises(ValueError, match="1 cells have a relevance, but the model has 4"):
        cut(model, values, image, 0, couplings(model, image)[:1])


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
