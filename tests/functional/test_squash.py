import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm
from tests.messages import refused

FORMS: list[SquashForm] = ["exponential", "quadratic"]


def new_length(form: SquashForm, length: float) -> float:
    return -math.expm1(-length) if form == "exponential" else length**2 / (1 + length**2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", [1e-15, 1e-6, 0.1, 1, 7, 1e4])
def test_value(form: SquashForm, length: float) -> None:
    direction = torch.tensor([0.6, 0.0, -0.8])
    want = new_length(form, length) * direction
    torch.testing.assert_close(squash(length * direction, form), want, atol=0, rtol=1e-5)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8), st.sampled_from(FORMS))
def test_keeps_the_direction_and_a_length_of_at_most_one(values: list[float], form: SquashForm) -> None:
    s = torch.tensor(values, dtype=torch.float64)
    u = squash(s, form)
    assert u.norm() <= 1 + 1e-12
    assert u.norm().item() == pytest.approx(new_length(form, s.norm().item()))
    torch.testing.assert_close(u * s.norm(), s * u.norm())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2])
def test_every_axis(form: SquashForm, dim: int) -> None:
    s = torch.randn(3, 4, 5)
    torch.testing.assert_close(squash(s, form, dim), squash(s.movedim(dim, -1), form).movedim(-1, dim))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("scale", [1e-12, 1e-9, 1e-3, 1, 10])
def test_gradcheck(form: SquashForm, scale: float) -> None:
    s = (scale * torch.randn(4, 3, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: squash(s, form), s, eps=min(1e-6, 1e-3 * scale), atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_jacobian_at_zero_is_the_limit(form: SquashForm, dtype: torch.dtype) -> None:
    zero = torch.zeros(3, dtype=dtype)
    jacobian = torch.autograd.functional.jacobian(lambda s: squash(s, form), zero)
    slope = 1 if form == "exponential" else 0
    torch.testing.assert_close(jacobian, slope * torch.eye(3, dtype=dtype), atol=1e-15, rtol=0)
    assert (squash(zero, form) == 0).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [0, 1e-4, 1, 1000])
def test_half_precision(form: SquashForm, dtype: torch.dtype, length: float) -> None:
    s = (length * torch.tensor([0.6, -0.8])).to(dtype).requires_grad_()
    u = squash(s, form)
    u.sum().backward()
    torch.testing.assert_close(u, squash(s.detach().float(), form).to(dtype))
    assert s.grad is not None
    assert s.grad.isfinite().all()


def test_an_unknown_form_is_an_error() -> None:
    with refused(ValueError):
        squash(torch.ones(2), "cubic")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_compiles_without_a_break(form: SquashForm) -> None:
    s = torch.randn(2, 5, 8)
    compiled = torch.compile(squash, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(s, form), squash(s, form))
