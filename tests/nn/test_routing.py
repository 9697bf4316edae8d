"""SAA routing: the parents are the sum of two branches, and nothing but coupled children."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from parsecaps.nn import SAARouting, replace_couplings
from parsecaps.nn.couplings import uniform

SETTINGS: dict[str, Any] = {
    "width": 16,
    "in_dim": 4,
    "out_dim": 6,
    "stride": 2,
    "heads": 2,
    "radius": 1,
    "whole_values": False,
    "locality": True,
    "jitter": 0.0,
    "content": True,
    "paper_logits": False,
    "axial": True,
    "over": "children",
    "alpha": 1.5,
    "learn_alpha": False,
    "squash_form": "exponential",
    "normalisation": "batch",
}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"stride": 1, "in_dim": 6},
    {"radius": None, "width": 5},
    {"over": "parents"},
    {"whole_values": True},
    {"whole_values": True, "stride": 1, "in_dim": 6},
    {"axial": False},
    {"content": False},
    {"paper_logits": True},
    {"normalisation": "layer"},
]


def routing(**changes: Any) -> SAARouting:
    return SAARouting(**{**SETTINGS, **changes}).eval()


def children(layer: SAARouting, batch: int = 2) -> Tensor:
    return torch.randn(batch, layer.sparse.neighbourhood.width**2, layer.sparse.value_maps.shape[1])


def zero_values(layer: nn.Module) -> None:
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if name.endswith("value.weight"):
                p.zero_()


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_shapes(changes: dict[str, Any]) -> None:
    layer = routing(**changes)
    settings = {**SETTINGS, **changes}
    parents = (-(-settings["width"] // settings["stride"])) ** 2
    assert layer(children(layer)).shape == (2, parents, settings["out_dim"])


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_nothing_bypasses_the_couplings(changes: dict[str, Any]) -> None:
    """Without values there are no parents, whatever the children: no other path leads upwards."""
    layer = routing(**changes)
    zero_values(layer)
    for mode in (True, False):
        assert (layer.train(mode)(children(layer)) == 0).all()


def test_the_prediction_asks_and_is_never_added() -> None:
    layer = routing()
    u = children(layer)
    free = layer(u)
    with replace_couplings(layer, uniform):
        before = layer(u)
        with torch.no_grad():
            for p in [*layer.predict.parameters(), *layer.query_norm.parameters()]:
                p.copy_(torch.randn_like(p) * 3)
        assert torch.equal(layer(u), before)
    assert not torch.allclose(layer(u), free)


def test_parents_are_the_sum_of_the_branches() -> None:
    layer = routing()
    u = children(layer)
    q = layer.query_norm(layer.predict(u))
    assert layer.axial is not None
    torch.testing.assert_close(layer(u), layer.sparse(u, q) + layer.axial(u, q))


def test_the_branches_do_not_depend_on_each_other() -> None:
    layer, alone = routing(), routing(axial=False)
    alone.load_state_dict({k: v for k, v in layer.state_dict().items() if not k.startswith("axial.")})
    with torch.no_grad():
        layer.axial.value.weight.zero_()
    u = children(layer)
    torch.testing.assert_close(layer(u), alone(u))


def test_without_content_there_is_no_prediction() -> None:
    names = [name for name, _ in routing(content=False).named_parameters()]
    assert not any(word in name for name in names for word in ("predict", "query", "key", "temperature"))
