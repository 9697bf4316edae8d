"""Squash, the activation ``g`` that turns the length of a capsule into a number below 1.

Whether a network is being exported is said here too, for the functions that then take other operations.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor

SquashForm = Literal["exponential", "quadratic"]


def squash(s: Tensor, form: SquashForm = "exponential", dim: int = -1) -> Tensor:
    """Shorten each vector to a length in [0, 1) and keep its direction, so that length can mean presence.

    The activation ``g`` of Sec. 3.2.2. "quadratic" is the paper's, ``|s|^2 / (1 + |s|^2) * s / |s|``, with slope 0 at
    ``s = 0``. Deviation: the default "exponential", ``(1 - exp(-|s|)) * s / |s|``, has slope 1 there, so that short
    vectors learn. Half precision is computed in float32 and returned as it came.

    Shapes:
        - s: any; the axis ``dim`` holds the vector
        - output: as ``s``

    >>> squash(torch.tensor([3.0, 4.0]), form="quadratic")
    tensor([0.5769, 0.7692])
    >>> squash(torch.tensor([0.0, 0.001]))
    tensor([0.0000, 0.0010])
    """
    x = widened(s)
    if check_form(form) == "quadratic" and not is_exporting():
        length: Tensor = torch.linalg.vector_norm(x, 2, dim, keepdim=True)
        return (x * (length / (length.square() + 1))).to(s.dtype)
    square = x.square().sum(dim, keepdim=True)
    # never 0, where the square root has no slope; a sum with so small a number would be left out of exported graphs
    length = torch.sqrt(square.clamp(min=torch.finfo(x.dtype).tiny))
    if form == "quadratic":
        scale = length / (1 + square)
    elif is_exporting():  # few runtimes have expm1, and exp(x) - 1 loses its digits near 0; tanh does not
        half = torch.tanh(length / 2)
        scale = half / (length / 2 * (1 + half))
    else:
        scale = -torch.expm1(-length) / length
    return (x * scale).to(s.dtype)


def widened(x: Tensor) -> Tensor:
    """In float32, unless it is wider."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def check_form(form: SquashForm) -> SquashForm:
    """The form, if it is one; for layers, to refuse a wrong one when they are built."""
    if form not in get_args(SquashForm):
        raise ValueError(f"squash form is {form!r}; choose one of {', '.join(get_args(SquashForm))}")
    return form


_tracing = False


@contextmanager
def tracing_for_export() -> Iterator[None]:
    """What runs inside is written down by a tracer; `torch.export` says so itself, others do not."""
    global _tracing
    before, _tracing = _tracing, True
    try:
        yield
    finally:
        _tracing = before


def is_exporting() -> bool:
    """Whether to compute by a few operations that every runtime has."""
    return _tracing or torch.compiler.is_exporting()
