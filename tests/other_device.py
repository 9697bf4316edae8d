"""A stand-in for a GPU: it computes on the CPU, and refuses what a GPU would refuse."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("lazy")  # any that needs no library of its own
_COPIES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}  # between devices
_TAKES_PLACES = {torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default}  # from the CPU as well


@contextmanager
def other_device() -> Iterator[torch.device]:
    """Inside, tensors can be moved to `DEVICE` and made there; two devices in one operation are an error."""
    without = torch.no_grad()  # inference tensors cannot be wrapped
    enter, leave = (lambda _: without.__enter__()), (lambda _, *error: without.__exit__(*error))
    with (
        _Operations(),
        _Functions(),
        mock.patch.multiple(torch.inference_mode, __enter__=enter, __exit__=leave),
    ):
        yield DEVICE


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Functions(TorchFunctionMode):
    """Those that make tensors of lists without asking a dispatcher."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device") == DEVICE:
            return func(*args, **{**kwargs, "device": None}).to(DEVICE)
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            places = tuple(torch.tensor(each) if isinstance(each, list | range) else each for each in places)
            args = (args[0], places, *args[2:])
        return func(*args, **kwargs)


class _Moved(Tensor):
    """A tensor on `DEVICE`; NumPy cannot read it."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "_Moved":
        where = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        return Tensor._make_wrapper_subclass(cls, inner.size(), **where, dtype=inner.dtype, device=DEVICE)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def tolist(self) -> Any:
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    here = [each for each in tensors if isinstance(each, _Moved)]
    mixed = here and any(each.dim() for each in tensors if not isinstance(each, _Moved))
    if mixed and func not in _COPIES and not (func in _TAKES_PLACES and isinstance(args[0], _Moved)):
        raise RuntimeError(f"{func} of tensors on two devices")
    wanted = kwargs.get("device")
    kwargs = kwargs if wanted is None else {**kwargs, "device": torch.device("cpu")}
    plain = tree_map(lambda each: each.inner if isinstance(each, _Moved) else each, (args, kwargs))
    found = func(*plain[0], **plain[1])
    if func is torch.ops.aten.copy_.default:
        return args[0]
    if not here if wanted is None else torch.device(wanted) != DEVICE:
        return found
    found = tree_map(lambda each: _Moved(each) if isinstance(each, Tensor) else each, found)
    return return_and_correct_aliasing(func, args, kwargs, found)
