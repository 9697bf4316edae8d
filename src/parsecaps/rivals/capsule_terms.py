"""The losses of capsule networks without concepts: margins of the lengths of class capsules, and a picture of one."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from parsecaps.functional import margin_loss
from parsecaps.functional.losses import class_weight
from parsecaps.models import PretrainedModel
from parsecaps.training.losses import Loss, Term, TermContext, mixture, sum_of, to_tensor
from parsecaps.types import Batch, Output


class Margin(Term):
    """The capsule of an image's class is long and the others are short, over the images whose class is known.

    Rare classes may weigh more, as in the classification loss.
    """

    name = "margin"
    class_weights: Tensor | None
    class_sets: Tensor | None

    def __init__(
        self,
        weight: float,
        margins: tuple[float, float, float] = (0.9, 0.1, 0.5),
        class_weights: Sequence[float] | None = None,
        class_sets: Sequence[int] | None = None,
    ) -> None:
        super().__init__(weight)
        if not margins[0] > margins[1]:
            raise ValueError(f"margins are {margins}; give the first, of a long capsule, above the second")
        self.margins = margins
        self.register_buffer("class_weights", to_tensor(class_weights))
        sets = None if class_sets is None else torch.tensor(class_sets)
        self.register_buffer("class_sets", sets, persistent=False)

    @classmethod
    def build(cls, context: TermContext) -> Self:
        weights, sets = context.class_weights, context.class_sets
        return cls(class_weights=weights, class_sets=sets, **context.arguments(cls.name))

    def forward(self, output: Output, batch: Batch) -> Loss:
        mixed = mixture(batch)
        mean = margin_loss(output.logits, batch.label, self.margins, self.class_weights, sets=self.class_sets, **mixed)
        return sum_of(mean, class_weight(batch.label, self.class_weights, **mixed))


class ClassReconstruction(Term):
    """Mean squared error, over the pixels, of the picture that a decoder makes of the capsule of the image's class.

    The decoder gets the capsule of the label, which a model's own forward pass never sees. Images without a label take
    no part, and a model without a decoder has no such loss.
    """

    name = "class_reconstruction"
    needs = frozenset({"decoder"})

    def __init__(self, weight: float, model: PretrainedModel) -> None:
        super().__init__(weight)
        self._model = [model]  # in a list: not a second owner of the weights

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        return super().applies(context) and getattr(context.model, "decoder", None) is not None

    @classmethod
    def build(cls, context: TermContext) -> Self:
        return cls(model=context.model, **context.arguments(cls.name))

    def forward(self, output: Output, batch: Batch) -> Loss:
        assert output.class_capsules is not None
        known = batch.label >= 0
        picture = self._model[0].decode(output.class_capsules, batch.label.clamp(min=0))  # type: ignore[operator]
        error = (picture.float() - batch.image).square().mean((1, 2, 3))
        return Loss(torch.where(known, error, 0).sum(), known.sum().float())
