import importlib
import math
import random
import shutil
from collections.abc import Iterator
from contextlib import nullcontext

import entmax as oracle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from parsecaps.functional import entmax
from parsecaps.functional.squash import tracing_for_export
from tests.messages import refused

implementation = importlib.import_module("parsecaps.functional.entmax")
ALPHAS = [1, 1.001, 1.2, 1.5, 1.8, 2]
EACH_SOLVER = [1, 1.3, 1.5, 2]


def logits(*shape: int, scale: float = 1.0, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    chance = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=chance, dtype=torch.float64)).to(dtype)


def expected(x: Tensor, alpha: float, dim: int = -1) -> Tensor:
    """The same by the algorithms of the entmax package, in float64: sorting, or bisection."""
    x = x.double().movedim(dim, -1)
    solve = {1: torch.softmax, 1.5: oracle.entmax15, 2: oracle.sparsemax}.get(alpha)
    p = solve(x, dim=-1) if solve else oracle.entmax_bisect(x, alpha, dim=-1, n_iter=100)
    return p.movedim(-1, dim)


def gradient(x: Tensor, alpha: float | Tensor, upstream: Tensor, dim: int = -1) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(entmax(x, alpha, dim), x, upstream)[0]


@pytest.fixture(params=["eager", "small blocks", "fixed steps", "exported", "exported by steps"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every way through the code: by blocks with a stopping test, at once as in a graph or on a GPU, and exported."""
    if request.param == "small blocks":
        monkeypatch.setattr(implementation, "_BLOCK", 20)
    if request.param == "fixed steps":
        monkeypatch.setattr(implementation, "_at_once", lambda x: True)
    if request.param == "exported by steps":
        monkeypatch.setattr(implementation, "_MOST_SORTED", 0)
    with tracing_for_export() if request.param.startswith("exported") else nullcontext():
        yield


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_equals_the_entmax_package_on_every_axis(alpha: float, dim: int) -> None:
    x = logits(5, 6, 7, scale=2, dtype=torch.float64)
    want = expected(x, alpha, dim)
    torch.testing.assert_close(entmax(x.float(), alpha, dim), want.float(), atol=1e-6, rtol=1e-5)
    for same in (alpha, torch.tensor(alpha, dtype=torch.float64)):
        torch.testing.assert_close(entmax(x, same, dim), want, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n", [1, 2, 49, 784])
@pytest.mark.parametrize("scale", [0, 1e-6, 1e-2, 1, 30, 1e4])
def test_value_at_every_size_and_magnitude(alpha: float, n: int, scale: float) -> None:
    x = logits(20, n, scale=scale)
    torch.testing.assert_close(entmax(x, alpha), expected(x, alpha).float(), atol=2e-6, rtol=1e-4)


def slow_for_newton(n: int) -> Tensor:
    """Groups of entries placed so that, for sparsemax, each Newton step drops one group and no more."""
    values, tau, lowest = [0.0, 0.0], -0.5, -0.5 - 1e-6
    while (group := len(values) // 2) + len(values) <= n:
        tau = (len(values) * tau + group * lowest) / (len(values) + group)
        values += [lowest] * group
        lowest += len(values) / (len(values) // 2) * (lowest - tau) - 1e-8
    return torch.tensor(values, dtype=torch.float64)


def adversaries(n: int) -> dict[str, Tensor]:
    i = torch.arange(n, dtype=torch.float64)
    return {
        "all equal": torch.full((n,), 3.0),
        "one hot": torch.where(i == n // 2, 5.0, 0.0),
        "one slightly above": torch.where(i == 0, 1e-6, 0.0),
        "one slightly below": torch.where(i == 0, -1e-6, 0.0),
        "geometric tail": 0.8**i,
        "falling geometric tail": -(2.0 ** (i - n + 1).clamp(min=-60)),
        "slow for Newton": slow_for_newton(n),
        "huge range": -(10.0 ** (i % 30)),
    }


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("alpha", [1.05, 1.5, 1.9, 2])
@pytest.mark.parametrize("name", adversaries(9))
def test_adversaries_converge(name: str, alpha: float) -> None:
    for n in (9, 784, 4096):
        x = adversaries(n)[name].float()
        torch.testing.assert_close(entmax(x, alpha), expected(x, alpha).float(), atol=2e-6, rtol=1.5e-4)


@given(
    st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=40),
    st.one_of(st.sampled_from([1.0, 1.5, 2.0]), st.floats(1, 2)),
    st.integers(-50, 50),
    st.randoms(use_true_random=False),
)
def test_properties(row: list[float], alpha: float, shift: int, chance: random.Random) -> None:
    x = torch.tensor(row, dtype=torch.float64).sort().values
    p = entmax(x, alpha)
    assert (p >= 0).all()
    assert p.sum().item() == pytest.approx(1)
    assert (p.diff() >= -1e-12).all(), "the order of the logits is kept"
    order = chance.sample(range(len(row)), len(row))
    torch.testing.assert_close(entmax(x[order] + shift, alpha), p[order], atol=1e-9, rtol=1e-6)
    a = max(alpha - 1, 1e-12)
    level = x - torch.expm1(a * p.log()) / a
    torch.testing.assert_close(level[p > 0], level[-1].expand(int((p > 0).sum())), atol=1e-6, rtol=1e-6)
    assert (level[p == 0] <= level[-1] + 1e-6).all(), "no entry is left out that should be in"


def test_spread_logits_give_exact_zeros_and_a_larger_alpha_gives_more() -> None:
    zeros = [(entmax(logits(100, 50, scale=5), alpha) == 0).float().mean() for alpha in (1, 1.2, 1.5, 2)]
    assert 0 == zeros[0] < 0.5 < zeros[1] < zeros[2] < zeros[3]


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("alpha", EACH_SOLVER)
def test_minus_infinity_is_as_good_as_absent(alpha: float) -> None:
    x, upstream, order = logits(4, 9), logits(6, 12, seed=1), torch.randperm(12)
    masked = torch.full((6, 12), -math.inf)  # row 4 stays like this
    masked[:4, :9] = x
    masked[5] = math.nan  # and this row must not spoil the others
    p = entmax(masked[:, order], alpha)[:, order.argsort()]
    grad = gradient(masked[:, order], alpha, upstream[:, order])[:, order.argsort()]
    assert p[5].isnan().all()
    for of_absent in (p[:5, 9:], p[4], grad[:5, 9:], grad[4]):
        assert (of_absent == 0).all()
    torch.testing.assert_close(p[:4, :9], entmax(x, alpha), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(grad[:4, :9], gradient(x, alpha, upstream[:4, :9]), atol=2e-6, rtol=1e-4)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradcheck(alpha: float, dim: int) -> None:
    x = logits(3, 4, 5, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: entmax(x, alpha, dim), x)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dim", [1, -1])
@pytest.mark.parametrize("alpha", [1.0001, 1.02, 1.2, 1.5, 1.8, 1.99])
def test_gradcheck_of_a_learned_alpha(alpha: float, dim: int) -> None:
    x = logits(1, 3, 5, dtype=torch.float64).requires_grad_()
    one = torch.tensor(alpha, dtype=torch.float64, requires_grad=True)
    each = (0 * x.detach().sum(dim, keepdim=True) + alpha).requires_grad_()
    for learned in (one, each):
        assert torch.autograd.gradcheck(lambda x, a: entmax(x, a, dim), (x, learned))


def weighted(x: Tensor, alpha: Tensor) -> Tensor:
    return (entmax(x, alpha) * torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype)).sum()


def grad_of_alpha(x: Tensor, alpha: float) -> float:
    a = torch.tensor(alpha, dtype=x.dtype, requires_grad=True)
    return torch.autograd.grad(weighted(x, a), a)[0].item()


@pytest.mark.parametrize(("end", "inside"), [(1.0, 1e-5), (2.0, -1e-5)])
def test_gradient_of_alpha_at_the_ends_is_the_slope_from_inside(end: float, inside: float) -> None:
    x = logits(20, dtype=torch.float64)
    at = [weighted(x, torch.tensor(end + k * inside, dtype=torch.float64)).item() for k in range(3)]
    assert grad_of_alpha(x, end) == pytest.approx((4 * at[1] - 3 * at[0] - at[2]) / (2 * inside), rel=1e-4)


@pytest.mark.parametrize("alpha", [1, 1 + 1e-6, 1.0001, 1.001, 1.01, 1.05, 1.1, 1.3, 1.5, 1.9, 2])
def test_gradient_of_alpha_is_as_good_in_float32(alpha: float) -> None:
    x, rounded = logits(50, scale=2), torch.tensor(alpha, dtype=torch.float32).item()
    assert grad_of_alpha(x, alpha) == pytest.approx(grad_of_alpha(x.double(), rounded), rel=1e-3, abs=1e-5)


def test_one_alpha_per_head_and_those_out_of_range_act_as_the_nearer_end() -> None:
    x = logits(2, 1, 9, 4).expand(2, 5, 9, 4)
    alpha = torch.tensor([0.5, 1.0, 1.5, 2.0, 2.5]).view(5, 1, 1).requires_grad_()
    p = entmax(x, alpha, dim=-2)
    for head, nearest in enumerate((1, 1, 1.5, 2, 2)):
        torch.testing.assert_close(p[:, head], entmax(x[:, head], nearest, dim=-2), atol=1e-6, rtol=1e-5)
    (grad,) = torch.autograd.grad(p.square().sum(), alpha)
    assert (grad > 0).all(), "a larger alpha is more concentrated"
    torch.testing.assert_close(grad[[0, 4]], grad[[1, 3]])


@pytest.mark.parametrize("alpha", [0.9, 2.1, math.nan])
def test_alpha_out_of_range_is_an_error(alpha: float) -> None:
    with refused(ValueError):
        entmax(logits(3), alpha)


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 2, 1, 1), (3, 3, 1)])
def test_alpha_of_a_wrong_shape_is_an_error(shape: tuple[int, ...]) -> None:
    with refused(ValueError):
        entmax(logits(2, 3, 4), torch.full(shape, 1.5))


@pytest.mark.parametrize("alpha", EACH_SOLVER)
@pytest.mark.parametrize("dim", [0, 1])
def test_non_contiguous_input_and_gradient(alpha: float, dim: int) -> None:
    base = logits(6, 8, dtype=torch.float64)
    for x in (base.T, base[:, ::2], base[:1].expand(6, 8)):
        upstream = logits(*x.T.shape, dtype=torch.float64, seed=1).T
        torch.testing.assert_close(entmax(x, alpha, dim), entmax(x.contiguous(), alpha, dim))
        want = gradient(x.contiguous(), alpha, upstream.contiguous(), dim)
        torch.testing.assert_close(gradient(x, alpha, upstream, dim), want)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("alpha", EACH_SOLVER)
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision(alpha: float, dtype: torch.dtype, autocast: bool) -> None:
    x, upstream = logits(5, 30, dtype=dtype), logits(5, 30, seed=1, dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        p, grad = entmax(x, alpha), gradient(x, alpha, upstream)
    torch.testing.assert_close(p, entmax(x.float(), alpha).to(dtype))
    want = gradient(x.float(), alpha, upstream.float()).to(dtype)
    torch.testing.assert_close(grad, want, atol=2e-3, rtol=2e-2)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("alpha", [1.5, torch.tensor(1.3, requires_grad=True)])
def test_empty_batch_and_rows_of_one(alpha: float | Tensor) -> None:
    empty = torch.empty(0, 4, 7, requires_grad=True)
    entmax(empty, alpha, dim=1).sum().backward()
    assert empty.grad is not None
    assert entmax(logits(3, 1), alpha).tolist() == [[1.0]] * 3


class Routing(torch.nn.Module):
    def __init__(self, alpha: float | Tensor) -> None:
        super().__init__()
        self.alpha = torch.nn.Parameter(alpha) if isinstance(alpha, Tensor) else alpha

    def forward(self, x: Tensor) -> Tensor:
        return entmax(x, self.alpha, dim=-2)


PER_HEAD = torch.tensor([1.0, 1.4, 2.0]).view(3, 1, 1)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("alpha", [*EACH_SOLVER, PER_HEAD])
def test_export_with_any_batch_size(alpha: float | Tensor, strict: bool) -> None:
    model = Routing(alpha)
    batch = ({0: torch.export.Dim("batch", max=64)},)
    exported = torch.export.export(model, (logits(2, 3, 9, 4),), dynamic_shapes=batch, strict=strict).module()
    x = logits(5, 3, 9, 4, scale=3, seed=1)
    torch.testing.assert_close(exported(x), model(x), atol=1e-6, rtol=1e-5)


INDUCTOR = pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs a C++ compiler")
CASES = [(alpha, "aot_eager") for alpha in (*EACH_SOLVER, PER_HEAD)]


@pytest.mark.parametrize(("alpha", "backend"), [*CASES, pytest.param(1.5, "inductor", marks=INDUCTOR)])
def test_compile_gives_the_same(alpha: float | Tensor, backend: str) -> None:
    torch.compiler.reset()
    model = Routing(alpha)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    x, upstream = logits(2, 3, 9, 4).requires_grad_(), logits(2, 3, 9, 4, seed=1)
    torch.testing.assert_close(compiled(x), model(x), atol=1e-6, rtol=1e-5)
    got, want = (torch.autograd.grad(f(x), [x, *model.parameters()], upstream) for f in (compiled, model))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


class PeakMemory(TorchDispatchMode):
    """The largest number of bytes alive at once in the tensors made inside the mode."""

    peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        alive = self.__dict__.setdefault("alive", {})
        given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
        for storage in (t.untyped_storage() for t in tree_leaves(out) if isinstance(t, Tensor)):
            if storage._cdata not in given:
                alive[storage._cdata] = storage._weak_ref(), storage.nbytes()
        for key in [key for key, (ref, _) in alive.items() if torch.UntypedStorage._expired(ref)]:
            del alive[key]
        self.peak = max(self.peak, sum(size for _, size in alive.values()))
        return out


@pytest.mark.parametrize(("batch", "dim"), [(2, 1), (2, 2), (64, 1), (64, 2)])
def test_needs_at_most_two_copies_of_the_input_besides_the_output(batch: int, dim: int) -> None:
    x = logits(batch, 100, 196)
    with PeakMemory() as memory:
        output = entmax(x, dim=dim)
    assert output.nbytes < memory.peak < 3.1 * output.nbytes  # numbers per row on top
