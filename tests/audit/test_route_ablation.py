import numpy as np
import pytest
import torch
from torch import Tensor

from parsecaps.audit.faithfulness import target_values
from parsecaps.audit.route_ablation import cut_routes, summarise_cuts
from parsecaps.models import ParseCaps
from parsecaps.nn import record_couplings, replace_couplings
from parsecaps.nn.couplings import Coupling


def tiny(**changes: object) -> ParseCaps:
    return ParseCaps.from_preset("tiny", num_classes=2, axial=False, **changes).eval()


def couplings(model: ParseCaps, image: Tensor) -> list[Tensor]:
    with record_couplings(model) as recorded:
        model(image)
    return [each.coupling for each in recorded]


@pytest.mark.parametrize("radius", [(0, 0, 0), (1, 1, 2)])  # kept as windows in the first cell, and dense
def test_what_is_cut_is_what_was_asked_for(radius: tuple[int, ...]) -> None:
    model, image = tiny(radius=radius), torch.rand(2, 1, 32, 32)
    values = target_values(model, "concepts")
    found = cut_routes(model, values, image, 1, couplings(model, image), np.random.default_rng(0), shares=(0.5, 1.0))
    whole = values(image)[:, 1].numpy()
    np.testing.assert_allclose(found.shown[:, 0], whole, rtol=1e-6)
    np.testing.assert_allclose(found.random[:, 0], whole, rtol=1e-6)

    def none(module: Coupling, c: Tensor) -> Tensor:
        return torch.zeros_like(c)

    with replace_couplings(model, none):
        bare = values(image)[:, 1].numpy()
    first = couplings(model, image)
    chosen = {id(module): c for module, c in zip(_modules(model), first, strict=True)}

    def gone(module: Coupling, c: Tensor) -> Tensor:  # all that the whole model had chosen
        return module.kept(module.dense(c) * (chosen[id(module)] == 0))

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
        counts.append((recorded[0].coupling > 0).flatten(1).sum(1).tolist())
        return output.presence

    cut_routes(model, values, image, 0, couplings(model, image), np.random.default_rng(0), shares=(0.3,))
    counts = counts[1:]  # after all of them
    assert len(counts) == 5  # shown, three times random, strongest
    assert all(each == counts[0] for each in counts)
    whole = (couplings(model, image)[0] > 0).flatten(1).sum(1)
    assert counts[0] == (whole - torch.ceil(0.3 * whole).long()).tolist()


def test_gains_are_means_over_the_shares() -> None:
    model, image = tiny(), torch.rand(4, 1, 32, 32)
    values = target_values(model, "classes")
    found = cut_routes(model, values, image, 0, couplings(model, image), np.random.default_rng(0))
    scores = summarise_cuts([found], np.arange(4), resamples=20)
    assert scores.gain.value == pytest.approx((found.random - found.shown)[:, 1:].mean())
    assert scores.gain_on_strongest.value == 0
    with pytest.raises(ValueError, match="1 cells have a relevance, but the model has 4"):
        cut_routes(model, values, image, 0, couplings(model, image)[:1], np.random.default_rng(0))


def _modules(model: ParseCaps) -> list[Coupling]:
    return [module for module in model.modules() if isinstance(module, Coupling)]
