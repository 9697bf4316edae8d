"""The training objective: a list of weighted terms, their total, and their means over an epoch."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn

from parsecaps.functional.losses import among_own
from parsecaps.training.terms import TERMS, Classification, Loss, Need, Term, TermContext, find_terms
from parsecaps.types import Batch, Output


class Objective(nn.Module):
    """`L_class + 0.5 L_presentation + 0.1 L_triplet + 0.0005 L_reconstruction`, where an image has them (Sec. 3.3).

    An image with a known concept counts in the presentation and the triplet loss; one without counts in the
    reconstruction loss, if the model was asked to reconstruct; one with a known label counts in the classification
    loss. Each loss is a mean over the images that count in it. What is unknown, or what the model does not give, costs
    0. Deviations: `Diversity`, `Consistency` and `Intervention`. Terms may have parameters, which are trained too.

    >>> from parsecaps.training.terms import Classification
    >>> output = Output(logits=torch.tensor([[2.0, 0.0], [0.0, 5.0]]))
    >>> batch = Batch(image=torch.zeros(2, 1, 28, 28), label=torch.tensor([0, -1]))
    >>> objective = Objective([Classification()])
    >>> objective.total(objective(output, batch))
    tensor(0.1269)
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        super().__init__()
        self.terms: Mapping[str, Term] = nn.ModuleDict({term.name: term for term in terms})  # type: ignore[assignment]

    @classmethod
    def build(cls, context: TermContext) -> "Objective":
        """All terms that a training has, as the settings want them."""
        for name in context.training.losses:
            find_terms(name)
        terms = []
        for term in TERMS:
            if term.applies(context):
                try:
                    terms.append(term.build(context))
                    terms[-1].models = [context.model]
                except TypeError as error:  # an argument that it does not take
                    advice = "see the losses in the settings"
                    raise ValueError(f"training.losses.{term.name}: {error}; {advice}") from None
        return cls(terms)

    @property
    def needs(self) -> set[Need]:
        """What the terms that count need."""
        return set().union(*(term.needs for term in self.terms.values() if term.weight))

    @property
    def class_sets(self) -> Tensor | None:
        """The number of each class's data set, where there are several."""
        return next((each.class_sets for each in self.terms.values() if isinstance(each, Classification)), None)

    def forward(self, output: Output, batch: Batch) -> dict[str, Loss]:
        return {name: term(output, batch) for name, term in self.terms.items()}

    def total(self, losses: Mapping[str, Loss]) -> Tensor:
        """The weighted sum of the means."""
        return torch.stack([self.terms[name].weight * loss.mean for name, loss in losses.items()]).sum()

    def shared_total(self, losses: Mapping[str, Loss]) -> Tensor:
        """The total of this process, such that its mean over all processes is the total of their batches together."""
        everywhere = torch.stack([loss.images for loss in losses.values()])
        distributed.all_reduce(everywhere)
        world, counts = distributed.get_world_size(), zip(losses.items(), everywhere, strict=True)
        return self.total({name: Loss(loss.sum * world, count) for (name, loss), count in counts})


class EpochMeans:
    """Losses and a confusion matrix summed over the batches of an epoch, on the device.

    Shapes:
        - sums: for each term (2,), the sum of its loss and the images that count in it
        - confusion: (num_classes, num_classes), true class down, predicted class across
    """

    def __init__(self, objective: Objective, num_classes: int, device: torch.device | None = None) -> None:
        self.objective = objective
        self.sums = {name: torch.zeros(2, device=device) for name in objective.terms}
        self.confusion = torch.zeros(num_classes, num_classes, device=device)

    @torch.no_grad()
    def add(self, logits: Tensor, losses: Mapping[str, Loss], label: Tensor) -> None:
        """Count a batch; of several data sets, an image's classes are those of its own."""
        for name, loss in losses.items():
            self.sums[name] += torch.stack([loss.sum.float(), loss.images])
        if (sets := self.objective.class_sets) is not None:
            logits = among_own(logits, label, sets)
        cell = label.clamp(min=0) * len(self.confusion) + logits.argmax(1)
        self.confusion.view(-1).index_add_(0, cell, (label >= 0).float())

    def over_processes(self) -> "EpochMeans":
        """The sums of all processes."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return self
        whole = EpochMeans(self.objective, len(self.confusion))
        whole.sums, whole.confusion = {k: v.clone() for k, v in self.sums.items()}, self.confusion.clone()
        for tensor in (*whole.sums.values(), whole.confusion):
            distributed.all_reduce(tensor)
        return whole

    def state_dict(self) -> dict[str, Any]:
        return {"sums": self.sums, "confusion": self.confusion}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, total in self.sums.items():
            total.copy_(state["sums"][name])
        self.confusion.copy_(state["confusion"])

    def values(self) -> dict[str, float]:
        """The loss and its terms, accuracy, and balanced accuracy: the mean over the classes that were there."""
        means = {name: float(total) / max(float(count), 1e-12) for name, (total, count) in self.sums.items()}
        confusion = self.confusion.double().cpu()
        seen, right = confusion.sum(1), confusion.diagonal()
        there = seen > 0
        return {
            "loss": sum(self.objective.terms[name].weight * mean for name, mean in means.items()),
            **means,
            "accuracy": float(right.sum() / seen.sum().clamp(min=1)),
            "balanced_accuracy": float((right[there] / seen[there]).mean()) if bool(there.any()) else 0.0,
        }
