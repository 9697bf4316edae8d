"""All that a run needs to go on as if it had never been stopped, in one file that is there whole or not at all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from parsecaps.data.files import write_binary

FORMAT = 6  # another number for another layout


@dataclass
class Position:
    """Where a run stands: the epoch, batch and step to come, and what came of the epochs before.

    `history` has a row per finished epoch. Which epoch is best, and how long there has been no better one, follow
    from it alone. Unless validation `chooses`, the last epoch counts as the best.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
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


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What a run wrote into its last checkpoint; that of another version is refused."""
    stored = read_tensors(path)
    if stored.get("format") != FORMAT:
        raise ValueError(f"{path} was written by another version of parsecaps; train again")
    return stored


def write_tensors(path: Path, content: Mapping[str, Any]) -> None:
    """`torch.save`, under another name first; strides are kept, without which results differ in the last bit."""
    with write_binary(path, private=True) as file:
        torch.save(dict(content), file)


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
