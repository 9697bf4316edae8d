"""Attribution along a path: from a picture with nothing in it to this one, every route credited with what it brought.

The primary capsules move from those of a neutral image to those of the image, and every cell chooses anew at each point
of the path; where a context chooses, its choices stay those of the image. The gradient times the change of a message,
integrated over the path, gives in each cell the whole difference between the two presences. So each child is credited
both for being chosen and for what it then said.

The integral is a sum over panels of three points, with parabolas through gradients and messages. Panels are short where
the outputs bend (`place_panels`). Where the residual, what the contributions miss of a target's change, exceeds
`TOLERANCE`, a path with more panels takes over.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from einops import einsum, rearrange
from torch import Tensor

from parsecaps.functional.squash import is_exporting
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.recorder import RecordedWay, record_stages
from parsecaps.nn.routes import About, RouteLayer, RouteTree
from parsecaps.types import Output

PANELS = 10
TOLERANCE = 0.02  # largest residual, as a part of the target's change
_SMALL_CHANGE = 0.5  # smaller changes count as this
_REFINEMENTS = 3  # each doubles the panels
_SCAN = 33  # points at which outputs are computed to place the panels
_HALF_LEVEL = 1 / 510  # of a byte: colours closer than that are one
_EVEN = 0.02  # part of the mean bend that every interval has at least
# integral of l_j times the derivative of l_k over one panel, with l the Lagrange polynomials of its three points
_PANEL = ((-1 / 2, 2 / 3, -1 / 6), (-2 / 3, 0.0, 2 / 3), (1 / 6, -2 / 3, 1 / 2))


class Target(NamedTuple):
    """The presence of a concept, or the logit of a class, by its number; in an exported graph it may be a tensor."""

    about: About
    index: int  # type: ignore[assignment]  # the name is also that of a method of tuples


def neutral_image(image: Tensor) -> Tensor:
    """A picture (B, channels, H, W) with nothing in it: everywhere the median colour of `image`.

    A border of one colour stays as it is, such as the bars that make an image square: its absence is no evidence.
    """
    median = image.flatten(2).median(2).values[:, :, None, None]
    above, beside = _in_border(image, -1), _in_border(image, -2)
    return torch.where((above.unsqueeze(2) | beside.unsqueeze(1)).unsqueeze(1), image, median)


def _in_border(image: Tensor, axis: int) -> Tensor:
    """The rows (axis -1) or columns (-2) of one colour at both ends of an image: (B, H or W)."""
    varies = (image.amax(axis) - image.amin(axis) > _HALF_LEVEL).any(1)
    seen = varies.long().cumsum(-1)
    return (seen == 0) | ((seen == seen[:, -1:]) & ~varies)


def target_values(output: Output, targets: Sequence[Target]) -> Tensor:
    """The presence or the logit of each target: (B, T)."""
    columns = []
    for target in targets:
        found = output.logits if target.about == "classes" else output.presence
        if found is None:
            raise ValueError("the model has no concepts to explain; ask for its classes")
        columns.append(found[:, target.index])
    return torch.stack(columns, 1)


def has_tree(model: PretrainedModel) -> bool:
    """Whether a model has a tree of cells, so that a parse tree can be read from it."""
    return model.route_form == "tree"


def has_routes(model: PretrainedModel) -> bool:
    """Whether a model sends messages from capsules to capsules, so that maps can follow them."""
    return model.route_form is not None


def describe_routes(model: PretrainedModel) -> str:
    """What a model without a tree has instead, in words."""
    kind = type(model).__name__
    if has_routes(model):
        return f"{kind} has one layer of routes, to its classes, and no tree of cells"
    return f"{kind} has no routes to follow"


def trace(model: PretrainedModel, image: Tensor) -> RouteTree:
    """Run a model that is in evaluation mode once on `image` (B, channels, size, size), and keep its tree of routes.

    >>> from parsecaps.models import ParseCaps
    >>> trace(ParseCaps.from_preset("tiny", num_classes=2).eval(), torch.rand(1, 1, 32, 32)).widths
    (16, 8, 4, 2, 2)
    """
    if model.training:
        kind = type(model).__name__
        raise ValueError(f"this {kind} is in training mode, in which it answers by chance; call eval() first")
    routes = model.routes(image) if has_tree(model) else None
    if not isinstance(routes, RouteTree):
        advice = "ask for its maps alone" if has_routes(model) else "choose a gradient map"
        raise ValueError(f"{describe_routes(model)}; {advice}")
    return routes


def trace_layer(model: PretrainedModel, image: Tensor) -> RouteLayer:
    """Run a model whose routes are one layer on `image` (B, channels, size, size), and keep them."""
    routes = model.routes(image)
    assert isinstance(routes, RouteLayer)
    return routes


@dataclass(frozen=True, eq=False)
class LeafAttribution:
    """What each primary capsule brought to one target; sums to `after - before` up to the residual.

    Shapes:
        - relevance: (B, n_1)
        - direction: (B, n_1, d_1), the mean gradient along the path
        - before, after: (B,), the presence or logit of the neutral image and of the image
    """

    relevance: Tensor
    direction: Tensor
    before: Tensor
    after: Tensor


class AttributionPath:
    """The path of one trace, read by maps and trees for any number of targets; all its points are one batch.

    `scan` are the outputs of another path by which the panels are placed.
    """

    def __init__(
        self, trace: RouteTree, panels: int = PANELS, refinements: int = _REFINEMENTS, scan: Tensor | None = None
    ) -> None:
        self.trace, self.panels = trace, panels
        self.points = 2 * panels + 1
        self.refinements = 0 if is_exporting() else refinements  # an exported graph is the same for all images
        with torch.no_grad():
            self.start = trace.leaves(neutral_image(trace.image))
            self.scan = self._scan() if scan is None else scan
            self.parts = place_panels(self.scan, panels)  # (points, B)
            leaves = self._at(self.parts)
        self.leaves = leaves.requires_grad_()
        with torch.enable_grad(), record_stages(cell.module for cell in trace.cells) as cells:
            self.values = trace.read_out(trace.run_cells(self.leaves))
        self.cells = tuple(cells)
        self._gradients: dict[Target, tuple[Tensor, ...]] = {}
        self._residuals: dict[Target, Tensor] = {}

    @cached_property
    def finer(self) -> "AttributionPath":
        return AttributionPath(self.trace, 2 * self.panels, self.refinements - 1, self.scan)

    def leaf_attribution(self, target: Target) -> LeafAttribution:
        path = self._fine_enough(target)
        gradient, leaves = path._by_point(path._gradients[target][0]), path._by_point(path.leaves)
        direction = einsum(path.integral @ path.parts, gradient, "s b, s b n d -> b n d")
        relevance = (direction * (leaves[-1] - leaves[0])).sum(-1)
        values = path._by_point(path._value(target))
        return LeafAttribution(relevance, direction, values[0], values[-1])

    @torch.no_grad()
    def route_relevance(self, target: Target) -> tuple[tuple[Tensor, ...], ...]:
        """What each child brought to each parent, for each cell by its ways, in the form that messages are kept in."""
        path = self._fine_enough(target)
        return path.relevance_by(path._gradients[target])

    def relevance_by(self, gradients: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], ...]:
        """`route_relevance` of the target whose `gradients` these are, on this path."""
        remaining = iter(gradients[1:])

        def brought(way: RecordedWay) -> Tensor:
            along = way.messages.along(self._directions(next(remaining)).flatten(0, 1))
            return self._by_point(along).sum(0)

        return tuple(tuple(brought(way) for way in cell.ways) for cell in self.cells)

    def residual(self, target: Target) -> Tensor:
        """What contributions miss of a target's change in the worst layer, as a part of it (at least of 0.5): (B,)."""
        return self._fine_enough(target)._residuals[target]

    @torch.no_grad()
    def _residual(self, target: Target) -> Tensor:
        """`residual` of a target whose gradients are found, on this path."""
        values = self._by_point(self._value(target))
        change = values[-1] - values[0]
        remaining = iter(self._gradients[target])

        def contributed(x: Tensor) -> Tensor:
            return (self._directions(next(remaining)) * self._by_point(x)).sum((0, 2, 3))

        layers = [contributed(self.leaves)]
        layers += [torch.stack([contributed(way.total) for way in cell.ways]).sum(0) for cell in self.cells]
        return (torch.stack(layers) - change).abs().amax(0) / change.abs().clamp_min(_SMALL_CHANGE)

    def gradients(self, target: Target) -> tuple[Tensor, ...]:
        """The gradients of a target at the leaves and at the sum of each way of each cell, at all points."""
        self.find_gradients([target])
        return self._gradients[target]

    def find_gradients(self, targets: Sequence[Target]) -> None:
        """Find the gradients of several targets at once, also on the finer path where a residual is too large here.

        Where concepts alone decide, those of a class are a weighted sum of those of the concepts, if these are found.
        """
        wanted = [target for target in dict.fromkeys(targets) if target not in self._gradients]
        found = {*self._gradients, *wanted}
        sums = {target: weights for target in wanted if (weights := self.concept_weights(target, found))}
        single = [target for target in wanted if target not in sums]
        self._gradients.update(zip(single, self._backward(single) if single else [], strict=True))
        for target, weights in sums.items():
            parts = [[weight * g for g in self._gradients[concept]] for concept, weight in weights.items()]
            self._gradients[target] = tuple(torch.stack(each).sum(0) for each in zip(*parts, strict=True))
        self._residuals.update((target, self._residual(target)) for target in wanted)
        if rough := [target for target in targets if not self._suffices(target)]:
            self.finer.find_gradients(rough)

    def _fine_enough(self, target: Target) -> "AttributionPath":
        """The path with the fewest panels on which contributions to a target add up, or the last one."""
        self.find_gradients([target])
        return self if self._suffices(target) else self.finer._fine_enough(target)

    def _suffices(self, target: Target) -> bool:
        """Whether contributions to a target with known gradients add up, or there is no finer path."""
        return not self.refinements or bool((self._residuals[target] <= TOLERANCE).all())

    def _backward(self, targets: Sequence[Target]) -> list[tuple[Tensor, ...]]:
        """One backward pass for all targets down to the first cell, whose windows are large: there one for each."""
        with torch.enable_grad():
            values = torch.stack([self._value(target) for target in targets], 1)  # (points * B, T)
        first, *others = self.cells
        above = [first.outcome, *(way.total for cell in others for way in cell.ways)]
        below = [self.leaves, *(way.total for way in first.ways)]
        each = torch.eye(len(targets)).to(values).unsqueeze(1).expand(-1, len(values), -1)
        at_first, *at_others = _gradients_at(above, values, each)
        if is_exporting():  # a pass for each would be so many times the graph
            return list(zip(*_gradients_at(below, first.outcome, at_first), *at_others, strict=True))
        found = [torch.autograd.grad(first.outcome, below, one, retain_graph=True) for one in at_first]
        return [(*low, *high) for low, high in zip(found, zip(*at_others, strict=True), strict=True)]

    def concept_weights(self, target: Target, found: Container[Target]) -> dict[Target, Tensor] | None:
        """How a class is made of concepts, where they alone decide and all are among the `found`; None otherwise."""
        if target.about == "concepts" or self.trace.reasoning is None:
            return None
        self._value(target)
        weights = _pick(self.trace.reasoning.weight, 0, target.index).unbind()
        concepts = {Target("concepts", j): weight for j, weight in enumerate(weights)}
        return concepts if all(concept in found for concept in concepts) else None

    @cached_property
    def integral(self) -> Tensor:
        """(points, points): the integral of `g dx` is the sum over j and k of `integral[j, k] g_j x_k`."""
        matrix = np.zeros((self.points, self.points))
        for first in range(0, self.points - 1, 2):
            matrix[first : first + 3, first : first + 3] += _PANEL
        return torch.tensor(matrix).to(self.leaves)

    def _directions(self, gradient: Tensor) -> Tensor:
        """The gradients summed with the weights of the integral: (points * B, ...) -> (points, B, ...)."""
        return einsum(self.integral, self._by_point(gradient), "j k, j ... -> k ...")

    def _scan(self) -> Tensor:
        """All presences and logits at evenly spaced points, as multiples of what may be missed: (points, B, values)."""
        even = torch.linspace(0, 1, _SCAN, dtype=self.start.dtype, device=self.start.device)
        found = self.trace.read_out(self.trace.run_cells(self._at(even.unsqueeze(1))))
        values = rearrange(torch.cat(list(found.values()), 1), "(s b) v -> s b v", s=_SCAN)
        return values / (TOLERANCE * (values[-1] - values[0]).abs().clamp_min(_SMALL_CHANGE))

    def _at(self, parts: Tensor) -> Tensor:
        """The leaves at these parts (S, B or 1) of the path: (S * B, n_1, d_1)."""
        return (self.start + parts[..., None, None] * (self.trace.layers[0] - self.start)).flatten(0, 1)

    def _value(self, target: Target) -> Tensor:
        """The presence or logit at all points: (points * B,)."""
        if target.about not in self.values:
            raise ValueError("the model has no concepts to explain; ask for its classes")
        values = self.values[target.about]
        if isinstance(target.index, int) and not 0 <= target.index < values.shape[1]:
            last = values.shape[1] - 1
            raise ValueError(f"{target.index} is none of the model's {target.about}; choose from 0 to {last}")
        return _pick(values, 1, target.index)

    def _by_point(self, x: Tensor) -> Tensor:
        return rearrange(x.detach(), "(s b) ... -> s b ...", s=self.points)


def place_panels(values: Tensor, panels: int) -> Tensor:
    """Ends and middles of panels on [0, 1], shorter where values bend.

    The density of panels is the square root of the largest second difference, constant between two given points.

    Shapes:
        - values: (S, B, V) at points of equal distances
        - output: (2 * panels + 1, B), from 0 to 1

    >>> place_panels(torch.zeros(5, 1, 1), 2).flatten()
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    intervals = len(values) - 1
    bend = (values[2:] - 2 * values[1:-1] + values[:-2]).abs().amax(-1)  # (S - 2, B), at inner points
    bend = torch.cat([bend[:1], bend, bend[-1:]])
    bend = (bend[1:] + bend[:-1]) / 2  # of intervals
    density = (bend + _EVEN * bend.mean(0) + 1e-6).sqrt()
    reached = (density.cumsum(0) / density.sum(0)).unsqueeze(0)  # (1, S - 1, B), at the ends of the intervals
    gained = density / density.sum(0)
    wanted = torch.linspace(0, 1, panels + 1).to(values)[1:-1, None, None]
    inner = ((wanted - reached + gained) / gained).clamp(0, 1).sum(1) / intervals  # (panels - 1, B)
    ends = torch.cat([torch.zeros_like(gained[:1]), inner, torch.ones_like(gained[:1])])
    middles = (ends[1:] + ends[:-1]) / 2
    return torch.cat([torch.stack([ends[:-1], middles], 1).flatten(0, 1), ends[-1:]])


def _gradients_at(inputs: Sequence[Tensor], outputs: Tensor, each: Tensor) -> tuple[Tensor, ...]:
    """For each of several gradients at the outputs (T, ...), those at the inputs: one (T, ...) for each input."""
    return torch.vmap(lambda one: torch.autograd.grad(outputs, inputs, one, retain_graph=True))(each)


def _pick(x: Tensor, dim: int, index: int | Tensor) -> Tensor:
    return x.select(dim, index) if isinstance(index, int) else x.index_select(dim, index.view(1)).squeeze(dim)
