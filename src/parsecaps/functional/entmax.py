"""alpha-entmax, the sparse softmax that turns routing logits into coupling coefficients.

Sec. 3.2.2, Eq. (a_entmax) of the paper. Deviation: the paper prints ``max((x - tau) / alpha, 0) ** (1 / (alpha - 1))``,
which is not the function it cites; this is the cited one (Peters et al. 2019, Correia et al. 2019).

With ``y = x - max(x)`` and ``a = alpha - 1``, ``tau`` is right when the sum of ``max(a y - tau, 0) ** (1 / a)``,
``F(tau)``, is 1. ``F ** a`` is convex and decreasing, so Newton's method needs no bracket if it starts left of the
root: at ``-1``, from the largest entry, or at ``mean(a y) - n ** -a``, from Jensen's inequality. Gradients come from
the output alone, by implicit differentiation.

In an exported graph every step is some nodes. There `tau` for alpha 1.5 and 2 is found exactly by sorting (Peters et
al. 2019); for many numbers at alpha 1.5, which some runtimes sort slowly, by as few steps as they may need.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from parsecaps.functional.squash import is_exporting

_BLOCK = 2**18  # entries per thread that a CPU works on at a time: all passes over them stay in the cache
_EAGER_STEPS = 64  # a bound only: the loop ends when every row of the block has converged
_FIXED_STEPS = 18  # where nothing ends the loop early; usual rows need 3 to 7, 4096 entries made to be slow 18
_FIXED_STEPS_15 = 10  # the same at alpha = 1.5, where the slowest rows known need 6
_MOST_SORTED = 2**11  # numbers of an image; from there on ONNX Runtime is faster with Newton's steps
_STEPS_NEAR_1 = 6  # where the logarithm of F is nearly a straight line
_SMALLEST_POWER = 0.05  # of a, below which 1 + a y keeps too few digits of y
_SMALLEST_A = 1e-12  # stands for alpha = 1 where a is a divisor; changes nothing above rounding

_Block = tuple[slice, slice, slice]


def entmax(x: Tensor, alpha: float | Tensor = 1.5, dim: int = -1) -> Tensor:
    """Turn logits into probabilities, many of them exactly zero: softmax at alpha = 1, sparsemax at 2.

    Solves ``max_p <p, x> + H_alpha(p)`` over the simplex, where ``H_alpha`` is the Tsallis entropy: ``p = max((alpha -
    1) x - tau, 0) ** (1 / (alpha - 1))``, with ``tau`` such that ``p`` sums to 1.

    ``alpha`` may be a tensor, for instance one learned number per head. Its entries outside [1, 2] act as the nearer
    end and get the gradient of that end, so that a learned alpha can return.

    An entry of ``-inf`` has probability 0 and gradient 0; a row of nothing but ``-inf`` gives zeros. Half precision is
    computed in float32 and returned as it came. The gradient cannot be differentiated again.

    Shapes:
        - x: any, with at least one axis
        - alpha: a number, or a tensor that broadcasts against ``x`` and has size 1 on ``dim``
        - output: as ``x``

    >>> entmax(torch.tensor([2.0, 1.0, 0.0, -1.0]))
    tensor([0.8307, 0.1693, 0.0000, 0.0000])
    >>> entmax(torch.tensor([2.0, 1.5, 0.0, -1.0]), alpha=2)
    tensor([0.7500, 0.2500, 0.0000, 0.0000])
    """
    dim = range(x.dim())[dim]
    if isinstance(alpha, Tensor):
        rows = _reduced_shape(x, dim)
        sizes = zip(reversed(alpha.shape), reversed(rows), strict=False)
        if alpha.dim() > x.dim() or any(size not in (1, row) for size, row in sizes):
            raise ValueError(f"alpha has shape {tuple(alpha.shape)}; give one that broadcasts to {rows}")
    elif not 1 <= alpha <= 2:
        raise ValueError(f"alpha is {alpha}; choose a number from 1 (softmax) to 2 (sparsemax)")
    elif alpha not in (1, 1.5, 2) and not is_exporting():
        alpha = torch.tensor(alpha, dtype=_working_dtype(x), device=x.device)
    p: Tensor = _Entmax.apply(x, alpha, dim)  # type: ignore[no-untyped-call]
    return p


class _Entmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float | Tensor, dim: int) -> Tensor:
        tensor, number = (alpha, 0.0) if isinstance(alpha, Tensor) else (None, float(alpha))
        p: Tensor = (_forward_op if _as_one_op(x) else _forward)(x, tensor, number, dim)
        ctx.dim, ctx.number = dim, number
        ctx.save_for_backward(p, tensor)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        p, tensor = ctx.saved_tensors
        learned = ctx.needs_input_grad[1]
        gradients = (_backward_op if _as_one_op(p) else _backward)(p, grad, tensor, ctx.number, ctx.dim, learned)
        return gradients[0], gradients[1] if learned else None, None


def _forward(x: Tensor, tensor: Tensor | None, number: float, dim: int) -> Tensor:
    alpha = number if tensor is None else tensor
    if _at_once(x):
        return _solve(x, alpha, dim).to(x.dtype)
    rows, alpha_rows = _fold(x, dim), _fold_alpha(alpha, x, dim)
    p_rows = torch.empty_like(rows, memory_format=torch.contiguous_format)
    for block in _blocks(rows):
        p_rows[block] = _solve(rows[block], _pick(alpha_rows, block), 1)
    return p_rows.view(x.shape)


def _backward(
    p: Tensor, grad: Tensor, tensor: Tensor | None, number: float, dim: int, learned: bool
) -> tuple[Tensor, Tensor]:
    """The gradients of x and of alpha, the latter empty where it is not learned."""
    alpha = number if tensor is None else tensor
    grad_alpha: Tensor | None = None
    if _at_once(p):
        grad_x, grad_alpha = _gradients(p, grad, alpha, dim, learned)
        grad_x = grad_x.to(p.dtype)
    else:
        rows, grad_rows, alpha_rows = _fold(p, dim), _fold(grad, dim), _fold_alpha(alpha, p, dim)
        grad_x = torch.empty_like(grad_rows)
        if learned:
            grad_alpha = rows.new_zeros(rows.shape[0], 1, rows.shape[2], dtype=_working_dtype(p))
        for block in _blocks(rows):
            grads = _gradients(rows[block], grad_rows[block], _pick(alpha_rows, block), 1, learned)
            grad_x[block] = grads[0]
            if grad_alpha is not None and grads[1] is not None:
                grad_alpha[block] = grads[1]
    if grad_alpha is None or tensor is None:
        return grad_x.view(p.shape), p.new_empty(0)
    grad_alpha = grad_alpha.view(_reduced_shape(p, dim)).sum_to_size(tensor.shape).to(tensor.dtype)
    return grad_x.view(p.shape), grad_alpha


# For the compiler on a CPU, one operation each: unrolled, the steps of Newton's method take it minutes to compile.
_forward_op = torch.library.custom_op("parsecaps::entmax", _forward, mutates_args=())
_backward_op = torch.library.custom_op("parsecaps::entmax_backward", _backward, mutates_args=())


@_forward_op.register_fake
def _(x: Tensor, tensor: Tensor | None, number: float, dim: int) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@_backward_op.register_fake
def _(p: Tensor, grad: Tensor, tensor: Tensor | None, number: float, dim: int, learned: bool) -> tuple[Tensor, Tensor]:
    grad_alpha = torch.empty_like(tensor) if learned and tensor is not None else p.new_empty(0)
    return torch.empty_like(p, memory_format=torch.contiguous_format), grad_alpha


def _solve(x: Tensor, alpha: float | Tensor, dim: int) -> Tensor:
    """The probabilities, in the working dtype; every argument as in `entmax`."""
    x = x.to(_working_dtype(x))
    finfo = torch.finfo(x.dtype)
    y = x - _largest(x, dim).clamp(min=finfo.min)  # finite, for -inf minus -inf is NaN
    if isinstance(alpha, Tensor):
        p = _solve_any(y, alpha, dim)
    elif alpha == 1:
        p = y.exp_()
    elif is_exporting() and alpha - 1 >= _SMALLEST_POWER:
        return _solve_for_export(y, alpha, dim)
    elif is_exporting():
        p = _solve_any(y, torch.tensor(alpha, dtype=y.dtype), dim, _STEPS_NEAR_1)
    else:
        p = _solve_power(y, alpha, dim)
    return p.div_(p.sum(dim, keepdim=True).clamp_(min=finfo.tiny))


def _solve_power(y: Tensor, alpha: float, dim: int) -> Tensor:
    """For alpha = 1.5, where p = (w / 2)^2, and 2, where p = w; w = max(y - tau / a, 0) is updated in place."""
    n, a, finfo = y.shape[dim], alpha - 1, torch.finfo(y.dtype)
    # the last step may start from this: at alpha = 1.5 it leaves at most n / 4 of the square
    enough = 8 * finfo.eps if alpha == 2 else 2 * math.sqrt(8 * finfo.eps / n)
    start = y.mean(dim, keepdim=True).sub_(n**-a / a).clamp_(min=-1 / a)
    w = y.sub_(start).relu_()
    for _ in range(_steps(w, _FIXED_STEPS if alpha == 2 else _FIXED_STEPS_15)):
        if alpha == 2:
            slope, excess = w.sign().sum(dim, keepdim=True), w.sum(dim, keepdim=True).sub_(1)
        else:
            slope, excess = w.sum(dim, keepdim=True), (w * w).sum(dim, keepdim=True)
            excess.sub_(excess.sqrt(), alpha=2)
        last = _none_above(excess, enough)
        step = excess.div_(slope.clamp_(min=finfo.tiny))
        w.sub_(step.clamp_(min=0)).relu_()  # a step back would be rounding, and revive zeros
        if last:
            break
    return w if alpha == 2 else w.mul_(w)


def _solve_for_export(y: Tensor, alpha: float, dim: int) -> Tensor:
    """As `_solve_power`, for any number, with z = 1 + a y and tau in [0, 1]: few operations, none in place."""
    z = y * (alpha - 1) + 1
    if alpha == 2 or (alpha == 1.5 and math.prod(z.shape[1:]) <= _MOST_SORTED):
        tau = _tau_by_sorting(z, alpha, dim)
    else:
        tau = _tau_by_steps(z, alpha, dim)
    w = (z - tau).clamp(min=0)
    return w if alpha == 2 else _power(w, 1 / (alpha - 1))


def _tau_by_sorting(z: Tensor, alpha: float, dim: int) -> Tensor:
    """Exactly: tau of the k largest entries for every k, of which the largest below the last of its entries is right.

    At alpha = 2 it is ``(sum z - 1) / k``; at 1.5, where the k squares sum to 1, ``mean - sqrt(1 / k - variance)``.
    """
    falling = z.clamp(min=0).sort(dim, descending=True).values  # a sum of far smaller ones would lose what counts
    k = torch.arange(1, z.shape[dim] + 1, dtype=z.dtype, device=z.device).view(-1, *[1] * (z.dim() - 1 - dim))
    mean = falling.cumsum(dim) / k
    if alpha == 2:
        return (mean - 1 / k).amax(dim, keepdim=True)  # which falls with k from there on
    variance = falling.square().cumsum(dim) / k - mean.square()
    tau = mean - (1 / k - variance).clamp(min=0).sqrt()
    return torch.where(tau <= falling, tau, 0).amax(dim, keepdim=True)


def _tau_by_steps(z: Tensor, alpha: float, dim: int) -> Tensor:
    """Newton's method from Jensen's start.

    At alpha = 1.5, the slowest known rows of up to 64 entries are right to 3e-8 after 5 steps, those of 784 after 6.
    Towards alpha = 2 the slowest need a step for each half as many entries more.
    """
    n, a = z.shape[dim], alpha - 1
    steps = 5 if n <= 64 else 8
    if alpha > 1.5:
        steps = min(_FIXED_STEPS, 3 + math.ceil(math.log(n, 1.5)))
    tau = (z.mean(dim, keepdim=True) - n**-a).clamp(min=0)
    for _ in range(steps):
        w = (z - tau).clamp(min=0)
        total, slope = (_power(w, power).sum(dim, keepdim=True) for power in (1 / a, 1 / a - 1))
        tau = tau + (total - _power(total, 1 - a)) / slope
    return torch.where(tau >= 0, tau, 0)  # a row of nothing but -inf has none


def _power(x: Tensor, power: float) -> Tensor:
    """The power of a number that is not negative, by faster ways where there are some."""
    if power == 0.5:
        return x.sqrt()
    return x if power == 1 else x**power


def _solve_any(y: Tensor, alpha: Tensor, dim: int, fixed: int = _FIXED_STEPS) -> Tensor:
    """Any alpha in [1, 2], by tau = a s - 1: p = (1 + a (y - s)) ** (1 / a) tends to exp(y - s) at a = 0."""
    finfo = torch.finfo(y.dtype)
    a = _a(alpha, y.dtype)
    s = (y.mean(dim, keepdim=True) - torch.expm1(-a * math.log(y.shape[dim])) / a).clamp_(min=0)
    for _ in range(_steps(y, fixed)):
        r = (y - s).mul_(a).clamp_(min=-1)  # p ** a - 1
        p = r.log1p().div_(a * math.log(2)).exp2_()  # exp2 is three times as fast as exp
        log_total = p.sum(dim, keepdim=True).clamp_(min=finfo.tiny).log_()
        excess = torch.exp((1 - a) * log_total) * torch.expm1(a * log_total) / a  # (F - F ** (1 - a)) / a
        if _none_above(excess, 8 * finfo.eps):
            break
        slope = r.add_(1).clamp_(min=finfo.tiny).reciprocal_().mul_(p).sum(dim, keepdim=True)
        s = s + (excess / slope.clamp_(min=finfo.tiny)).clamp_(min=0)
    return p


def _gradients(p: Tensor, grad: Tensor, alpha: float | Tensor, dim: int, learned: bool) -> tuple[Tensor, Tensor | None]:
    """The gradients of x and, if it is learned, of alpha (summed over ``dim`` only), in the working dtype.

    With ``s = p ** (2 - alpha)`` on the support, dp/dx is ``diag(s) - s s^T / sum(s)`` and dp/dalpha is
    ``c - s sum(c) / sum(s)``, where ``c`` is what alpha does to ``p`` while s of `_solve_any` is held.
    """
    dtype = _working_dtype(p)
    p, grad, tiny = p.to(dtype), grad.to(dtype), torch.finfo(dtype).tiny
    if isinstance(alpha, Tensor):
        a, log_p = _a(alpha, dtype), p.clamp(min=tiny).log_()
        s = (log_p * (1 - a)).exp_().mul_(p.sign())
    elif alpha == 2:
        s = p.sign()
    elif alpha in (1, 1.5):
        s = p if alpha == 1 else p.clamp(min=tiny).rsqrt_().mul_(p)  # sqrt is slow at zeros
    else:  # in an exported graph
        s = p.clamp(min=tiny) ** (2 - alpha) * p.sign()
    grad_x = s * grad
    mean = grad_x.sum(dim, keepdim=True) / s.sum(dim, keepdim=True).clamp_(min=tiny)
    grad_x = torch.addcmul(grad_x, s, mean, value=-1)
    if not learned:
        return grad_x, None
    return grad_x, _alpha_slope(p, log_p, s, a).mul_(grad - mean).sum(dim, keepdim=True)


def _alpha_slope(p: Tensor, log_p: Tensor, s: Tensor, a: Tensor) -> Tensor:
    """``(p - s - a p log p) / a^2``, by its series ``-p log(p)^2 (1/2 + v/6 ...)`` for small v = -a log p."""
    v = -a * log_p
    series = torch.zeros_like(v)
    for k in range(10, 1, -1):
        series.mul_(v).add_(1 / math.factorial(k))
    return torch.where(v < 0.2, series.mul_(log_p).mul_(log_p).mul_(-p), (p + p * v - s) / a**2)


def _a(alpha: Tensor, dtype: torch.dtype) -> Tensor:
    return (alpha.to(dtype) - 1).clamp(_SMALLEST_A, 1)


def _working_dtype(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _as_one_op(x: Tensor) -> bool:
    """Where the compiler should not look inside; an exported graph is to run elsewhere, so it gets the steps."""
    return torch.compiler.is_compiling() and not is_exporting() and x.device.type == "cpu"


def _at_once(x: Tensor) -> bool:
    """In a graph, or on a device one should not wait for: all in one block, with a fixed number of steps."""
    return torch.compiler.is_compiling() or is_exporting() or x.device.type != "cpu"


def _steps(x: Tensor, fixed: int) -> int:
    return fixed if _at_once(x) else _EAGER_STEPS


def _none_above(x: Tensor, bound: float) -> bool:
    return not _at_once(x) and bool(x.amax() <= bound)


def _largest(x: Tensor, dim: int) -> Tensor:
    """amax, but by halves over a strided axis, where torch's can be ten times as slow."""
    if _at_once(x) or x.stride(dim) == 1:
        return x.amax(dim, keepdim=True)
    while (n := x.shape[dim]) > 1:
        half = (n + 1) // 2
        x = torch.maximum(x.narrow(dim, 0, half), x.narrow(dim, n - half, half))
    return x


def _reduced_shape(x: Tensor, dim: int) -> tuple[int, ...]:
    return (*x.shape[:dim], 1, *x.shape[dim + 1 :])


def _fold(x: Tensor, dim: int) -> Tensor:
    """View x as (outer, n, inner), n being the axis ``dim``: the middle axis reduces as fast as the last."""
    return x.reshape(math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :]))


def _fold_alpha(alpha: float | Tensor, x: Tensor, dim: int) -> float | Tensor:
    return _fold(alpha.expand(_reduced_shape(x, dim)), dim) if isinstance(alpha, Tensor) else alpha


def _pick(alpha: float | Tensor, block: _Block) -> float | Tensor:
    return alpha[block] if isinstance(alpha, Tensor) else alpha


def _blocks(rows: Tensor) -> Iterator[_Block]:
    """Cut (outer, n, inner) into blocks that each fit the cache; an empty tensor has none."""
    if rows.numel() == 0:
        return
    outer, n, inner = rows.shape
    size = _BLOCK * torch.get_num_threads()
    width = min(inner, max(1, size // n))
    height = max(1, size // (n * width))
    for top in range(0, outer, height):
        for left in range(0, inner, width):
            yield slice(top, top + height), slice(None), slice(left, left + width)
