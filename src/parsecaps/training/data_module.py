"""Batches for Lightning, epoch by epoch, from wherever the run stands."""

from collections.abc import Iterator
from dataclasses import dataclass

from lightning.pytorch import LightningDataModule

from parsecaps.data.batches import Batches
from parsecaps.training.checkpoint import Position
from parsecaps.types import Batch


@dataclass(frozen=True)
class Epoch:
    """The batches of one epoch from `start` on, as often as they are asked for."""

    batches: Batches
    number: int = 0
    start: int = 0

    def __len__(self) -> int:
        return len(self.batches) - self.start

    def __iter__(self) -> Iterator[Batch]:
        return self.batches.epoch(self.number, start=self.start)


class TrainingData(LightningDataModule):
    """The training and the validation batches; Lightning asks for them anew in every epoch."""

    def __init__(self, train: Batches, val: Batches | None, position: Position) -> None:
        super().__init__()
        self.train, self.val, self.position = train, val, position

    def train_dataloader(self) -> Epoch:
        return Epoch(self.train, self.position.epoch, self.position.batch)

    def val_dataloader(self) -> Epoch | list[Epoch]:
        return [] if self.val is None else Epoch(self.val)
