"""All that a run needs to go on as if it had never been stopped, in one file that is there whole or not at all."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from parsecaps.training.module import TrainingModule

_FORMAT = 5  # another number for another layout


@dataclass
class Position:
    """Where a run stands: the epoch and the batch to come, and what came of the epochs before.

    `history` has a row per finished epoch. Which epoch is best, and how long there has been no better one, follow
    from it alone. Unless validation `chooses`, the last epoch counts as the best.
    """

    epoch: int = 0
    batch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    done: bool = False
    chooses: bool = True

    @property
    def best(self) -> int:
        """The index of the best epoch: by balanced accuracy on validation, then by its loss; else the last one."""
        if not self.chooses or "val_loss" not in self.history[-1]:
            return len(self.history) - 1
        scores = [(row["val_balanced_accuracy"], -row["val_loss"]) for row in self.history]
        return max(range(len(scores)), key=scores.__getitem__)


def save_checkpoint(path: Path, module: TrainingModule, optimizer: torch.optim.Optimizer, position: Position) -> None:
    """Write everything; a reader finds the file before or the file after, never half of one."""
    sums = module.train_tally.summed() if position.batch else module.train_tally
    if module.global_rank != 0:
        return
    write_tensors(
        path,
        {
            "format": _FORMAT,
            "position": asdict(position),
            "step": module.step,
            "first_loss": module.first_loss,
            "model": module.model.state_dict(),
            "objective": module.objective.state_dict(),
            "average": module.average,
            "optimizer": optimizer.state_dict(),
            "sums": [sums.sums, sums.confusion],
        },
    )


def load_checkpoint(path: Path, module: TrainingModule) -> tuple[Position, dict[str, Any]]:
    """Put the weights and counters back; gives the position, and the optimizer's state for when there is one."""
    stored = read_tensors(path)
    if stored.get("format") != _FORMAT:
        raise ValueError(f"{path} was written by another version of parsecaps; train again")
    module.model.load_state_dict(stored["model"])
    module.objective.load_state_dict(stored["objective"])
    module.average = stored["average"]
    module.step, module.first_loss = stored["step"], stored["first_loss"]
    return Position(**stored["position"]), {"optimizer": stored["optimizer"], "sums": stored["sums"]}


def restore_running(module: TrainingModule, optimizer: torch.optim.Optimizer, running: Mapping[str, Any]) -> None:
    """Put back what Lightning makes anew: the optimizer's state, and what the epoch has added up so far."""
    if len(running["optimizer"]["param_groups"]) != len(optimizer.param_groups):
        raise ValueError(
            "the checkpoint was written with another optimizer than training.optimizer in the run's config.yaml; "
            "set it there as it was (adamw, if the run is older than that setting)"
        )
    optimizer.load_state_dict(running["optimizer"])
    if module.global_rank == 0:  # which has the sums of all processes
        module.train_tally.sums, module.train_tally.confusion = running["sums"]


def write_tensors(path: Path, content: Mapping[str, Any]) -> None:
    """`torch.save`, under another name first; strides are kept, without which results differ in the last bit."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(unfinished, "wb") as file:
            torch.save(dict(content), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_tensors(path: Path) -> dict[str, Any]:
    """What `write_tensors` wrote; tensors and plain values only, no code is run."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; there is nothing to resume, train again")
    try:
        content: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # whatever a damaged file makes of the reader
        reason = " ".join(str(error).split())[:100]
        raise ValueError(f"{path} cannot be read ({reason}); train again") from None
    return content
