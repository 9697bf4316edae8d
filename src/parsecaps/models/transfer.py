"""Transfer of weights between networks: heads by names of classes and concepts, other layers by their own."""

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
    """The names of a network's tensors by where their values come from, and how those `adapted` were made to fit."""

    taken: tuple[str, ...]
    adapted: Mapping[str, str]
    new: tuple[str, ...]


def trunk_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model that determine the shapes of its trunk."""
    return {name: value for name, value in config.items() if name not in _TASK}


def transfer(model: PretrainedModel, tensors: Mapping[str, Tensor], there: Names, here: Names) -> Transfer:
    """Copy what fits of the tensors of another model; `there` and `here` name the classes and concepts of both."""
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
        value = theirs[plain].to(own[name].dtype)
        fitted, how = _fit(value, own[name], axes.get(name, ()), there, here)
        if fitted is not None:
            own[name].copy_(fitted)
            if how:
                adapted[name] = how
            else:
                taken.append(name)
    known = {*taken, *adapted}
    new = tuple(name for name in own if name not in known and not name.startswith(_OWN_IMAGES))
    return Transfer(tuple(taken), adapted, new)


def _fit(value: Tensor, target: Tensor, axes: Sequence[str], there: Names, here: Names) -> tuple[Tensor | None, str]:
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
            if not (shared := set(there[what]) & set(here[what])):
                return None, ""
            value = _rows_by_name(value, target, axis, there[what], here[what])
            how.append(f"{len(shared)} of {len(here[what])} {what} by name")
    return (value, ", ".join(how)) if value.shape == target.shape else (None, "")


def _rows_by_name(value: Tensor, target: Tensor, axis: int, there: Sequence[str], here: Sequence[str]) -> Tensor:
    # rows of names that are not there are the target's own, or zero where another axis does not fit yet
    shape = [*value.shape]
    shape[axis] = len(here)
    rows = target.clone() if list(target.shape) == shape else value.new_zeros(shape)
    for place, name in enumerate(here):
        if name in there:
            rows.select(axis, place).copy_(value.select(axis, list(there).index(name)))
    return rows


def _regrid(value: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Resample weights over a square grid of capsules; what equal capsules add up to stays the same."""
    moved = value.movedim(axis, -1)
    grid = moved.reshape(-1, 1, before, before)
    fitted = F.interpolate(grid, (after, after), mode="bilinear", antialias=after < before) * (before / after) ** 2
    fitted += (grid.sum((2, 3), keepdim=True) - fitted.sum((2, 3), keepdim=True)) / after**2  # borders count more
    return fitted.reshape(*moved.shape[:-1], after**2).movedim(-1, axis)


def _plain_names(tensors: Mapping[str, Any]) -> dict[str, Any]:
    # the layers of the initial block are counted from 0: a large image is averaged before the first
    numbers = [int(found[2]) for name in tensors if (found := _INITIAL.fullmatch(name))]
    first = min(numbers, default=0)
    return {
        f"{found[1]}{int(found[2]) - first}{found[3]}" if (found := _INITIAL.fullmatch(name)) else name: value
        for name, value in tensors.items()
    }
