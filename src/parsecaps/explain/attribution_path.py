"""Attribution along a path: from a picture with nothing in it to this one, every route credited with what it brought.

The primary capsules go in small steps from those of a neutral image to those of the image, and every cell chooses
anew at each step. As the message of a child to a parent changes, the presence changes by the gradient times that
change. Summed over the steps these add up, in each cell, to the whole difference between the two presences, with what
each child was chosen for and what it then said both on its account. With the couplings kept as they were, the choices
would count for nothing, and concepts that are told apart by them would not be found.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from parsecaps.explain.trace import Target, Trace, neutral_image
from parsecaps.functional.exporting import is_exporting
from parsecaps.nn.heads import Bottleneck
from parsecaps.nn.recorder import record_stages

STEPS = 8


@dataclass(frozen=True, eq=False)
class LeafAttribution:
    """What each primary capsule brought to one target; sums to `after - before` but for the size of the steps.

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
    """The path of one trace: run once, with a graph, and read by maps and trees for any number of targets.

    The points of the path lie one after the other in one batch: ((steps + 1) * B, ...).
    """

    def __init__(self, trace: Trace, steps: int = STEPS) -> None:
        self.trace, self.points = trace, steps + 1
        with torch.no_grad():
            start = trace.leaves(neutral_image(trace.image))
            parts = torch.linspace(0, 1, self.points, dtype=start.dtype, device=start.device).view(-1, 1, 1, 1)
            leaves = (start + parts * (trace.layers[0] - start)).flatten(0, 1)
        self.leaves = leaves.requires_grad_()
        with torch.enable_grad(), record_stages(trace.tower) as cells:
            self.values = trace.read_out(trace.tower(self.leaves))
        self.cells = tuple(cells)
        self._gradients: dict[Target, tuple[Tensor, ...]] = {}

    def leaf_attribution(self, target: Target) -> LeafAttribution:
        """What each primary capsule brought."""
        gradient = self._by_point(self.gradients(target)[0])  # (points, B, n, d)
        direction = (gradient[1:] + gradient[:-1]).mean(0) / 2
        leaves, values = (self._by_point(x) for x in (self.leaves, self._value(target)))
        relevance = (direction * (leaves[-1] - leaves[0])).sum(-1)
        return LeafAttribution(relevance, direction, values[0], values[-1])

    @torch.no_grad()
    def route_relevance(self, target: Target) -> tuple[tuple[Tensor, ...], ...]:
        """What each child brought to each parent, for each cell by its ways, in the form that the messages are kept in.

        The sum over the steps of `g (m_s+1 - m_s)`, with g the mean of the gradients at both points, is written as one
        sum over the points: each message is measured once, along the difference of the g before and behind it.
        """
        return self.relevance_by(self.gradients(target))

    def relevance_by(self, gradients: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], ...]:
        """`route_relevance` of the target whose `gradients` these are."""
        remaining = iter(gradients[1:])
        found = []
        for cell in self.cells:
            ways = []
            for way in cell.ways:
                gradient = self._by_point(next(remaining))
                between = (gradient[1:] + gradient[:-1]) / 2
                nothing = torch.zeros_like(between[:1])
                direction = torch.cat([nothing, between]) - torch.cat([between, nothing])
                along = way.messages.along(direction.flatten(0, 1))
                ways.append(self._by_point(along).sum(0))
            found.append(tuple(ways))
        return tuple(found)

    def gradients(self, target: Target) -> tuple[Tensor, ...]:
        """The gradients of a target at the leaves and at the sum of each way of each cell, at all points."""
        self.find_gradients([target])
        return self._gradients[target]

    def find_gradients(self, targets: Sequence[Target]) -> None:
        """Find the gradients of several targets at once, which costs less than one target after the other.

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
        if target.about == "concepts" or not isinstance(self.trace.classes, Bottleneck):
            return None
        self._value(target)
        weights = _pick(self.trace.classes.weight.detach(), 0, target.index).unbind()
        concepts = {Target("concepts", j): weight for j, weight in enumerate(weights)}
        return concepts if all(concept in found for concept in concepts) else None

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


def _gradients_at(inputs: Sequence[Tensor], outputs: Tensor, each: Tensor) -> tuple[Tensor, ...]:
    """For each of several gradients at the outputs (T, ...), those at the inputs: one (T, ...) for each input."""
    return torch.vmap(lambda one: torch.autograd.grad(outputs, inputs, one, retain_graph=True))(each)


def _pick(x: Tensor, dim: int, index: int | Tensor) -> Tensor:
    return x.select(dim, index) if isinstance(index, int) else x.index_select(dim, index.view(1)).squeeze(dim)
