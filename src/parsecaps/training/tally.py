"""Losses and right answers, added up over the batches of an epoch."""

import torch
from torch import Tensor, distributed

from parsecaps.functional.losses import class_weight
from parsecaps.training.objective import Losses, Objective, mixture
from parsecaps.types import Batch, Output

PARTS = ("classification", "presentation", "triplet", "reconstruction", "diversity", "mask", "measure", "consistency")


def count_images(batch: Batch, objective: Objective) -> Tensor:
    """How many images, by the weight of their class, each loss is a mean over: (8,), in the order of `PARTS`."""
    labelled = class_weight(batch.label, objective.class_weights, **mixture(batch))
    described = torch.zeros_like(labelled)
    if batch.concepts is not None:
        described = (~batch.concepts.isnan()).any(1).sum().float()
    unlabelled = torch.full_like(labelled, len(batch.label) if batch.concepts is None else 0)
    outlined, measured = (
        torch.zeros_like(labelled) if each is None else (~each.isnan().flatten(1).any(1)).sum().float()
        for each in (batch.mask, batch.measures)
    )
    again = torch.full_like(labelled, len(batch.label) if batch.views > 1 else 0)
    rest = len(batch.label) - described
    return torch.stack([labelled, described, described, rest, unlabelled, outlined, measured, again])


def part_weights(objective: Objective) -> tuple[float, ...]:
    """What each part counts in the total, in the order of `PARTS`."""
    return (
        1.0,
        objective.presentation_weight,
        objective.triplet_weight,
        objective.reconstruction_weight,
        objective.diversity_weight,
        objective.mask_weight,
        objective.measure_weight,
        objective.consistency_weight,
    )


def shared_total(losses: Losses, counts: Tensor, objective: Objective) -> Tensor:
    """The total of this process, such that its mean over the processes is the total of their batches together.

    Each part is a mean over the images that count in it, and their number differs between the processes. The diversity
    of concepts is that within the images of each process.
    """
    everywhere = counts.clone()
    distributed.all_reduce(everywhere)
    factor = counts * distributed.get_world_size() / torch.where(everywhere > 0, everywhere, 1)
    parts = torch.stack(losses[1:])
    return (parts * factor * parts.new_tensor(part_weights(objective))).sum()


class Tally:
    """Sums over an epoch, kept on the device so that nothing waits for them.

    Shapes:
        - sums: (16,), each loss times its count, then the counts
        - confusion: (num_classes, num_classes), true class down, named class across
    """

    def __init__(self, num_classes: int) -> None:
        self.sums = torch.zeros(2 * len(PARTS))
        self.confusion = torch.zeros(num_classes, num_classes)

    def reset(self) -> None:
        self.sums, self.confusion = torch.zeros_like(self.sums), torch.zeros_like(self.confusion)

    def add(self, output: Output, losses: Losses, counts: Tensor, batch: Batch) -> None:
        """Count a batch."""
        if self.sums.device != batch.label.device:
            self.sums, self.confusion = self.sums.to(batch.label.device), self.confusion.to(batch.label.device)
        with torch.no_grad():
            parts = torch.stack(losses[1:]).float()
            self.sums += torch.cat([parts * counts, counts])
            known = (batch.label >= 0).float()
            place = batch.label.clamp(min=0) * len(self.confusion) + output.logits.argmax(1)
            self.confusion.view(-1).index_add_(0, place, known)

    def summed(self) -> "Tally":
        """The sums of all processes."""
        whole = Tally(len(self.confusion))
        whole.sums, whole.confusion = self.sums.clone(), self.confusion.clone()
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(whole.sums)
            distributed.all_reduce(whole.confusion)
        return whole

    def values(self, objective: Objective) -> dict[str, float]:
        """The loss and its parts, accuracy, and balanced accuracy: the mean over the classes that were there."""
        totals, images = self.sums.double().view(2, -1).cpu()
        means = (totals / images.clamp(min=1e-12)).tolist()
        loss = sum(weight * mean for weight, mean in zip(part_weights(objective), means, strict=True))
        confusion = self.confusion.double().cpu()
        seen, right = confusion.sum(1), confusion.diagonal()
        there = seen > 0
        return {
            "loss": loss,
            **dict(zip(PARTS, means, strict=True)),
            "accuracy": float(right.sum() / seen.sum().clamp(min=1)),
            "balanced_accuracy": float((right[there] / seen[there]).mean()) if bool(there.any()) else 0.0,
        }
