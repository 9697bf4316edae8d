"""Axial attention along d, against its formula written out, and beside sparse attention."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from parsecaps.functional import entmax, squash
from parsecaps.nn import AxialAttention, RoutingConfig, record_couplings
from parsecaps.nn.saa import at_once

GEOMETRY = {"width": 5, "in_dim": 3, "out_dim": 4, "stride": 2}


def new_attention(**changes: Any) -> AxialAttention:
    geometry = {name: changes.pop(name, value) for name, value in GEOMETRY.items()}
    return AxialAttention(**geometry, config=RoutingConfig(**changes))


def attention(**changes: Any) -> AxialAttention:
    layer = new_attention(**changes)
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.5 * torch.randn_like(p))
    return layer


def own_children(u: Tensor, width: int, stride: int) -> Tensor:
    """The mean over each parent's own children, of which there are fewer at an odd border."""
    grid = u.unflatten(1, (width, width))
    steps = range(0, width, stride)
    means = [grid[:, y : y + stride, x : x + stride].mean((1, 2)) for y in steps for x in steps]
    return torch.stack(means, 1)


@pytest.mark.parametrize("paper_logits", [False, True])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize(("width", "stride"), [(4, 2), (5, 2), (3, 1)])
def test_equals_its_formula(width: int, stride: int, alpha: float, paper_logits: bool) -> None:
    layer = attention(width=width, stride=stride, alpha=alpha, paper_logits=paper_logits)
    parents = (-(-width // stride)) ** 2
    u, q = torch.randn(2, width**2, 3), torch.randn(2, parents, 4)
    with record_couplings(layer) as recorded:
        out = layer(u, q)
    mean = own_children(u, width, stride)
    logits = q.mT @ layer.key(mean) / math.sqrt(parents) + layer.prior
    c = entmax(logits, alpha)
    torch.testing.assert_close(recorded[0].coupling, c.unsqueeze(1))
    torch.testing.assert_close(out, squash((c @ layer.value(mean).mT).mT))
    assert out.shape == (2, parents, 4)
    assert (recorded[0].branch, recorded[0].between) == ("axial", "parameters")


def test_it_starts_by_preferring_each_parameters_own_value() -> None:
    layer = new_attention()
    with record_couplings(layer) as recorded:
        layer(torch.randn(2, 25, 3), torch.randn(2, 9, 4))
    assert (recorded[0].coupling.argmax(-1) == torch.arange(4)).all()


def test_gradcheck() -> None:
    layer = attention(alpha=1.0).double()
    u = torch.randn(2, 25, 3, dtype=torch.float64, requires_grad=True)
    q = torch.randn(2, 9, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda u, q: layer(u, q), (u, q), fast_mode=True)


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_at_its_start_every_parameter_can_learn(alpha: float) -> None:
    """Couplings that are exactly 0 and 1 have no gradient, and would stay as they are for ever."""
    layer = new_attention(alpha=alpha).double()
    u = torch.randn(2, 25, 3, dtype=torch.float64)
    q = torch.randn(2, 9, 4, dtype=torch.float64)
    (layer(u, q) * torch.randn(2, 9, 4)).sum().backward()
    dead = [name for name, p in layer.named_parameters() if p.grad is None or p.grad.abs().max() < 1e-9]
    assert dead == []


def test_both_attentions_run_at_once_on_a_gpu_and_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """On stand-ins: the second begins when what it reads is there, and what follows waits for it."""
    said: list[str] = []

    class Stream:
        def __init__(self, name: str) -> None:
            self.name = name

        def wait_stream(self, other: "Stream") -> None:
            said.append(f"{self.name} waits for {other.name}")

    class OnGpu:
        device = torch.device("cuda")

        def __init__(self, name: str) -> None:
            self.name = name

        def record_stream(self, stream: Stream) -> None:
            said.append(f"{self.name} is read on {stream.name}")

    here, beside, given = Stream("here"), Stream("beside"), OnGpu("u")

    @contextmanager
    def stream(entered: Stream) -> Iterator[None]:
        said.append(f"on {entered.name}")
        yield
        said.append(f"off {entered.name}")

    def result(name: str) -> Callable[[], Any]:
        def make() -> OnGpu:
            said.append(name)
            return OnGpu(name)

        return make

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: here)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: beside)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    one, other = at_once(result("sparse"), result("axial"), cast(Tensor, given))
    assert (cast(Any, one).name, cast(Any, other).name) == ("sparse", "axial")
    assert said == [
        *("beside waits for here", "sparse", "on beside", "axial", "off beside", "here waits for beside"),
        *("u is read on beside", "axial is read on here"),
    ]
