"""alpha-entmax, the sparse softmax that turns routing logits into coupling coefficients.

Sec. 3.2.2, Eq. (a_entmax) of the paper. Deviation: the paper prints ``max((x - tau) / alpha, 0) ** (1 / (alpha - 1))``,
which is not the function it cites; this is the cited one (Peters et al. 2019, Correia et al. 2019).

How it is solved. With ``y = x - max(x)`` and ``a = alpha - 1``, let ``F(tau)`` be the sum of
``max(a y - tau, 0) ** (1 / a)``. ``F ** a`` is convex and decreasing, so Newton's method started left of the root
approaches it from the left and needs no bracket; every step at least quarters the product of excess and slope. The
largest entry alone gives one such start, ``tau >= -1``, and Jensen's inequality another,
``tau >= mean(a y) - n ** -a``. The gradients come from the output alone, by implicit differentiation.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_BLOCK = 2**17  # entries worked on together on a CPU, so that repeated passes over them stay in the cache
_EAGER_STEPS = 64  # a bound only: the loop ends when every row of the block has converged
_FIXED_STEPS = 16  # where nothing can end the loop early; usual rows need 3 to 7, rows built to be slow need 16
_SMALLEST_A = 1e-12  # stands for alpha = 1 where a is a divisor; changes nothing above rounding

_Block = tuple[slice, slice, slice]


def entmax(x: Tensor, alpha: float | Tensor = 1.5, dim: int = -1) -> Tensor:
    """Turn logits into probabilities, many of them exactly zero.

    Solves ``max_p <p, x> + H_alpha(p)`` over the simplex, where ``H_alpha`` is the Tsallis entropy. The solution is
    ``p = max((alpha - 1) x - tau, 0) ** (1 / (alpha - 1))``, with ``tau`` such that ``p`` sums to 1. ``alpha`` is 1
    for softmax and 2 for sparsemax; in between it is sparser than the one and smoother than the other.

    ``alpha`` may be a tensor, for instance one learned number per head, and gets its gradient. Its entries outside
    [1, 2] act as the nearer end and get the gradient of that end, so that a learned alpha can come back.

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
        fits = x.shape[:dim] + (1,) + x.shape[dim + 1 :]
        if alpha.dim() > x.dim() or any(a not in (1, n) for a, n in zip(alpha.shape[::-1], fits[::-1], strict=False)):
            raise ValueError(f"alpha has shape {tuple(alpha.shape)}; give one that broadcasts to {tuple(fits)}")
    elif not 1 <= alpha <= 2:
        raise ValueError(f"alpha is {alpha}; choose a number from 1 (softmax) to 2 (sparsemax)")
    elif alpha not in (1, 1.5, 2):
        alpha = torch.tensor(alpha, dtype=_working_dtype(x), device=x.device)
    p: Tensor = _Entmax.apply(x, alpha, dim)  # type: ignore[no-untyped-call]
    return p


class _Entmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: float | Tensor, dim: int) -> Tensor:
        if _at_once(x):
            p = _solve(x, alpha, dim).to(x.dtype)
        else:
            rows, alpha_rows = _fold(x, dim), _fold_alpha(alpha, x, dim)
            p_rows = torch.empty_like(rows, memory_format=torch.contiguous_format)
            for block in _blocks(rows):
                p_rows[block] = _solve(rows[block], _pick(alpha_rows, block), 1)
            p = p_rows.view(x.shape)
        ctx.dim = dim
        ctx.alpha = None if isinstance(alpha, Tensor) else alpha
        ctx.save_for_backward(p, alpha if isinstance(alpha, Tensor) else None)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        p, alpha = ctx.saved_tensors
        if alpha is None:
            alpha = ctx.alpha
        dim, learned = ctx.dim, ctx.needs_input_grad[1]
        if _at_once(p):
            grad_x, grad_alpha = _gradients(p, grad, alpha, dim, learned)
        else:
            rows, grad_rows, alpha_rows = _fold(p, dim), _fold(grad, dim), _fold_alpha(alpha, p, dim)
            grad_x = torch.empty_like(rows)
            grad_alpha = torch.empty_like(rows[:, :1], dtype=_working_dtype(p))
            for block in _blocks(rows):
                grads = _gradients(rows[block], grad_rows[block], _pick(alpha_rows, block), 1, learned)
                grad_x[block] = grads[0]
                if learned:
                    grad_alpha[block] = grads[1]
        if not learned:
            return grad_x.view(p.shape).to(p.dtype), None, None
        grad_alpha = grad_alpha.view(p.shape[:dim] + (1,) + p.shape[dim + 1 :])
        return grad_x.view(p.shape).to(p.dtype), grad_alpha.sum_to_size(alpha.shape).to(alpha.dtype), None


def _solve(x: Tensor, alpha: float | Tensor, dim: int) -> Tensor:
    """The probabilities, in the working dtype; every argument as in `entmax`."""
    x = x.to(_working_dtype(x))
    y = x - x.amax(dim, keepdim=True).clamp_(min=torch.finfo(x.dtype).min)  # so that -inf - -inf never happens
    if isinstance(alpha, Tensor):
        p = _solve_any(y, alpha, dim)
    elif alpha == 1:
        p = y.exp_()
    else:
        p = _solve_power(y, alpha, dim)
    return p.div_(p.sum(dim, keepdim=True).clamp_(min=torch.finfo(p.dtype).tiny))


def _solve_power(y: Tensor, alpha: float, dim: int) -> Tensor:
    """alpha = 1.5, where p = w^2, and alpha = 2, where p = w; w = a y - tau is updated in place as tau grows."""
    w = y.mul_(alpha - 1)
    tau = w.mean(dim, keepdim=True).sub_(y.shape[dim] ** (1 - alpha)).clamp_(min=-1)
    w.sub_(tau).relu_()
    tiny = torch.finfo(w.dtype).tiny
    for _ in range(_steps(w)):
        if alpha == 2:
            excess, slope = w.sum(dim, keepdim=True).sub_(1), w.sign().sum(dim, keepdim=True)
        else:
            total, slope = (w * w).sum(dim, keepdim=True), w.sum(dim, keepdim=True)
            excess = total - total.sqrt()
        if _converged(excess):
            break
        w.sub_(excess.div_(slope.clamp_(min=tiny)).clamp_(min=0)).relu_()  # back-steps are rounding: they revive zeros
    return w if alpha == 2 else w.mul_(w)


def _solve_any(y: Tensor, alpha: Tensor, dim: int) -> Tensor:
    """Any alpha in [1, 2], by tau = a s - 1: then p = (1 + a (y - s)) ** (1 / a), which tends to exp(y - s) at a = 0."""
    tiny = torch.finfo(y.dtype).tiny
    a = _a(alpha, y.dtype)
    s = (y.mean(dim, keepdim=True) - torch.expm1(-a * math.log(y.shape[dim])) / a).clamp_(min=0)
    for _ in range(_steps(y)):
        r = (y - s).mul_(a).clamp_(min=-1)  # p ** a - 1
        p = r.log1p().div_(a).exp_()
        log_total = p.sum(dim, keepdim=True).clamp_(min=tiny).log_()
        excess = torch.exp((1 - a) * log_total) * torch.expm1(a * log_total) / a  # (F - F ** (1 - a)) / a
        if _converged(excess):
            break
        slope = r.add_(1).clamp_(min=tiny).reciprocal_().mul_(p).sum(dim, keepdim=True)
        s = s + (excess / slope.clamp_(min=tiny)).clamp_(min=0)
    return p


def _gradients(
    p: Tensor, grad: Tensor, alpha: float | Tensor, dim: int, learned: bool
) -> tuple[Tensor, Tensor | None]:
    """The gradients of x and, if it is learned, of alpha (summed over ``dim`` only), both in the working dtype.

    With ``s = p ** (2 - alpha)`` on the support, dp/dx is ``diag(s) - s s^T / sum(s)`` and dp/dalpha is
    ``c - s sum(c) / sum(s)``, where ``c`` is what alpha does to ``p`` while tau is held (see `_bend`).
    """
    p, grad = p.to(_working_dtype(p)), grad.to(_working_dtype(p))
    if isinstance(alpha, Tensor):
        log_p = p.clamp(min=torch.finfo(p.dtype).tiny).log_()
        s = (log_p * (1 - _a(alpha, p.dtype))).exp_().mul_(p.sign())
    else:
        s = {1: torch.clone, 1.5: torch.sqrt, 2: torch.sign}[alpha](p)
    grad_x = s * grad
    mean = grad_x.sum(dim, keepdim=True) / s.sum(dim, keepdim=True).clamp_(min=torch.finfo(p.dtype).tiny)
    grad_x = grad_x.addcmul_(s, mean, value=-1)
    if not learned:
        return grad_x, None
    assert isinstance(alpha, Tensor)
    return grad_x, _bend(p, log_p, s, _a(alpha, p.dtype)).mul_(grad - mean).sum(dim, keepdim=True)


def _bend(p: Tensor, log_p: Tensor, s: Tensor, a: Tensor) -> Tensor:
    """``(p - s - a p log p) / a^2``, and by its series where that is 0 / 0: ``-p log(p)^2 (1/2 + v/6 + v^2/24 ...)``."""
    v = -a * log_p
    series = torch.zeros_like(v)
    for k in range(10, 1, -1):
        series.mul_(v).add_(1 / math.factorial(k))
    return torch.where(v < 0.2, series.mul_(log_p).mul_(log_p).mul_(-p), (p + p * v - s) / a**2)


def _a(alpha: Tensor, dtype: torch.dtype) -> Tensor:
    return (alpha.to(dtype) - 1).clamp(_SMALLEST_A, 1)


def _working_dtype(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _at_once(x: Tensor) -> bool:
    """Whether the whole tensor is one block and takes a fixed number of steps: a graph, or a device one should not wait for."""
    return torch.compiler.is_compiling() or x.device.type != "cpu"


def _steps(x: Tensor) -> int:
    return _FIXED_STEPS if _at_once(x) else _EAGER_STEPS


def _converged(excess: Tensor) -> bool:
    return not _at_once(excess) and bool(excess.amax() <= 4 * torch.finfo(excess.dtype).eps)


def _fold(x: Tensor, dim: int) -> Tensor:
    """x as (outer, n, inner), n being the axis ``dim``: reducing the middle axis is as fast as the last, without a transpose."""
    return x.reshape(math.prod(x.shape[:dim]), x.shape[dim], math.prod(x.shape[dim + 1 :]))


def _fold_alpha(alpha: float | Tensor, x: Tensor, dim: int) -> float | Tensor:
    if not isinstance(alpha, Tensor):
        return alpha
    return _fold(alpha.expand(x.shape[:dim] + (1,) + x.shape[dim + 1 :]), dim)


def _pick(alpha: float | Tensor, block: _Block) -> float | Tensor:
    return alpha[block] if isinstance(alpha, Tensor) else alpha


def _blocks(rows: Tensor) -> Iterator[_Block]:
    """Cut (outer, n, inner) into blocks that each fit the cache; no block of an empty tensor."""
    outer, n, inner = rows.shape
    if rows.numel() == 0:
        return
    width = min(inner, max(1, _BLOCK // n))
    height = max(1, _BLOCK // (n * width))
    for top in range(0, outer, height):
        for left in range(0, inner, width):
            yield slice(top, top + height), slice(None), slice(left, left + width)
