"""The plain training loop that the studies share: every model gets the same data, order, schedule and seed."""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from parsecaps.data.augment import Augmentation
from parsecaps.functional import class_loss
from parsecaps.training.schedule import Schedule


class Split(NamedTuple):
    """Images (N, C, H, W) in [0, 1] with labels (N,), and which of them to train and to test on."""

    image: Tensor
    label: Tensor
    train: Tensor
    test: Tensor

    @property
    def mean_and_std(self) -> tuple[Tensor, Tensor]:
        std, mean = torch.std_mean(self.image[self.train[:2000]])
        return mean, std


def train(
    model: nn.Module,
    split: Split,
    schedule: Schedule,
    *,
    seed: int,
    augmentation: Augmentation | None,
    log: Callable[[str], None] = lambda line: None,
) -> float:
    """Train in place; gives the accuracy on the augmented training images of the last epoch, in percent."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = schedule.build_optimizer(model)
    steps = len(split.train) // schedule.batch_size
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: schedule.factor(step, steps))
    mean, std = split.mean_and_std
    start, right = time.perf_counter(), 0
    for epoch in range(schedule.epochs):
        model.train()
        order = split.train[torch.randperm(len(split.train), generator=generator)]
        right = 0
        for rows in torch.split(order, schedule.batch_size)[:steps]:
            image = split.image[rows]
            if augmentation is not None:
                image = augmentation(image, generator)
            logits = model((image - mean) / std).logits
            loss = class_loss(logits, split.label[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), schedule.max_grad_norm)
            optimizer.step()
            scheduler.step()
            right += int((logits.argmax(1) == split.label[rows]).sum())
        log(
            f"epoch {epoch + 1}: train {100 * right / (steps * schedule.batch_size):.1f} %, "
            f"{time.perf_counter() - start:.0f} s"
        )
    return 100 * right / (steps * schedule.batch_size)


@torch.no_grad()
def accuracy(model: nn.Module, split: Split, rows: Tensor | None = None, batch_size: int = 64) -> float:
    """Accuracy on the test part, or on other rows, in percent."""
    model.eval()
    rows = split.test if rows is None else rows
    mean, std = split.mean_and_std
    right = 0
    for batch in torch.split(rows, batch_size):
        logits = model((split.image[batch] - mean) / std).logits
        right += int((logits.argmax(1) == split.label[batch]).sum())
    return 100 * right / len(rows)
