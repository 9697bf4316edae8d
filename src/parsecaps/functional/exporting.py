"""Whether a network is being written down as a graph to run elsewhere, where loops that end by values cannot go."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

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
