"""What a network can take from another one: every tensor that fits, and those that can be made to fit.

A head that knows a class or concept by name takes what the other network knew of the same name, in whatever order the
names stand. Everything else is matched by the names of the layers. The mean and standard deviation of the pixels are
never taken: they belong to the images.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from parsecaps.models.pretrained import PretrainedModel

_OWN_IMAGES = "standardise."
_HEADS = ("classes", "concepts")
_TASK = ("num_classes", "num_concepts", "in_channels", "image_size", "head", "dropout")  # no part of the trunk
_INITIAL = re.compile(r"(initial\.layers\.)(\d+)(\..+)")

Names = Mapping[str, Sequence[str]]  # of the "classes" and of the "concepts"


@dataclass(frozen=True)
class Transfer:
    """The names of a network's tensors by where their values come from, and what was done to fit those `adapted`."""

    taken: tuple[str, ...]
    adapted: Mapping[str, str]
    new: tuple[str, ...]


def trunk_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Those settings of a model that make the shapes of its trunk, whatever it is used for."""
    return {name: value for name, value in config.items() if name not in _TASK}


def transfer(model: PretrainedModel, tensors: Mapping[str, Tensor], there: Names, here: Names) -> Transfer:
    """Give a model what it can use of the tensors of another one; what it cannot stays as it is.

    `there` and `here` are the names of the classes and concepts of both, empty where they are not known.
    """
    own, axes = model.state_dict(), model.axes()
    theirs, place = _plain_names(tensors), _plain_names({name: name for name in own})
    taken, adapted = [], {}
    shared = {head: set(there.get(head, ())) & set(here.get(head, ())) for head in _HEADS}
    drawn = "concepts" if model.names_concepts else "classes"  # what the decoder makes a picture of
    same = list(there.get(drawn, ())) == list(here.get(drawn, ()))
    decoder = [name for name in own if name.startswith("decoder.")]
    draws_alike = same and all(name in tensors and tensors[name].shape == own[name].shape for name in decoder)
    for plain, name in place.items():
        head = name.partition(".")[0]
        if plain not in theirs or name.startswith(_OWN_IMAGES) or (head in _HEADS and not shared[head]):
            continue
        if head == "decoder" and not draws_alike:  # of just these concepts or classes, in just this size
            continue
        target, value = own[name], theirs[plain].to(own[name].dtype)
        fitted, how = _fit(value, target, axes.get(name, ()), there, here)
        if fitted is None:
            continue
        target.copy_(fitted)
        taken.append(name)
        if how:
            adapted[name] = how
    known = set(taken)
    new = tuple(name for name in own if name not in known and not name.startswith(_OWN_IMAGES))
    return Transfer(tuple(name for name in taken if name not in adapted), adapted, new)


def _fit(value: Tensor, target: Tensor, axes: Sequence[str], there: Names, here: Names) -> tuple[Tensor | None, str]:
    """A tensor in the shape of another one and how it got there; None where nothing brings it there."""
    how = []
    if value.dim() != target.dim():
        return None, ""
    if value.dim() == 4 and {value.shape[1], target.shape[1]} == {1, 3}:
        to_grey = target.shape[1] == 1
        value = value.sum(1, keepdim=True) if to_grey else value.expand(-1, 3, -1, -1) / 3
        how.append("grey from colour" if to_grey else "colour from grey")
    for axis, what in enumerate(axes):
        if what == "capsules" and value.shape[axis] != target.shape[axis]:
            before, after = (round(each.shape[axis] ** 0.5) for each in (value, target))
            value = _regrid(value, axis, before, after)
            how.append(f"top capsules {after} x {after} from {before} x {before}")
    for axis, what in enumerate(axes):
        if what in _HEADS and list(there[what]) != list(here[what]):
            if not set(there[what]) & set(here[what]):
                return None, ""
            value = _rows_by_name(value, target, axis, there[what], here[what])
            how.append(f"{len(set(there[what]) & set(here[what]))} of {len(here[what])} {what} by name")
    return (value, ", ".join(how)) if value.shape == target.shape else (None, "")


def _rows_by_name(value: Tensor, target: Tensor, axis: int, there: Sequence[str], here: Sequence[str]) -> Tensor:
    """The rows along an axis in the order of the names here; rows of names that are not there are the target's own.

    Where another axis does not fit yet, these are zero.
    """
    shape = [*value.shape]
    shape[axis] = len(here)
    rows = target.clone() if list(target.shape) == shape else value.new_zeros(shape)
    for place, name in enumerate(here):
        if name in there:
            rows.select(axis, place).copy_(value.select(axis, list(there).index(name)))
    return rows


def _regrid(value: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Weights over a square grid of capsules on another grid; what equal capsules add up to stays the same."""
    moved = value.movedim(axis, -1)
    grid = moved.reshape(-1, 1, before, before)
    fitted = F.interpolate(grid, (after, after), mode="bilinear", antialias=after < before) * (before / after) ** 2
    fitted += (grid.sum((2, 3), keepdim=True) - fitted.sum((2, 3), keepdim=True)) / after**2  # borders count more
    return fitted.reshape(*moved.shape[:-1], after**2).movedim(-1, axis)


def _plain_names(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors, with the layers of the initial block counted from 0: a large image is averaged before the first."""
    numbers = [int(found[2]) for name in tensors if (found := _INITIAL.fullmatch(name))]
    first = min(numbers, default=0)
    return {
        f"{found[1]}{int(found[2]) - first}{found[3]}" if (found := _INITIAL.fullmatch(name)) else name: value
        for name, value in tensors.items()
    }
