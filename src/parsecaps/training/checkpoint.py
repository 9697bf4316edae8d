"""The state that a run resumes from, in one file that is written atomically."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from parsecaps.files.untrusted import checked
from parsecaps.files.writing import write_binary
from parsecaps.models.pretrained import check_finite

FORMAT = 6  # another number for another layout


@dataclass
class Position:
    """Where a run stands: the next epoch, batch and step, and a row of `history` per finished epoch.

    Which epoch is best follows from the history alone. Unless validation `chooses`, the last epoch counts as the best.
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
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise ValueError(f"{path} was written by another version of parsecaps; {_train_again(path)}")
    return stored


def read_position(stored: Mapping[str, Any], path: Path) -> Position:
    """The position that a checkpoint holds; refused where its parts do not fit together."""
    position = checked(Position, stored.get("position"), path, "train again")
    needed = {"epoch", "seconds", "train_loss", "train_accuracy"}
    for row in position.history:
        needed |= {name for name in position.history[0] if name.startswith("val_")}
        needed |= {"val_balanced_accuracy"} if "val_loss" in row else set()
    lacking = [name for row in position.history for name in needed - row.keys()]
    counts = min(position.epoch, position.batch, position.step)
    if lacking or counts < 0 or position.epoch != len(position.history) or (position.done and not position.epoch):
        raise ValueError(f"{path}: its position and history do not fit together; {_train_again(path)}")
    return position


def load_weights(model: nn.Module, path: Path) -> None:
    """Give a model the weights that a run kept of its best epoch; refused where they do not fit or are not finite."""
    weights = read_tensors(path)
    try:
        model.load_state_dict(weights)
    except (AttributeError, RuntimeError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path} does not fit config.yaml ({reason}); put it back") from None
    check_finite(model.state_dict(), path, "train again with a lower training.learning_rate")


def write_tensors(path: Path, content: Mapping[str, Any]) -> None:
    """`torch.save`, under another name first; strides are kept, without which results differ in the last bit."""
    with write_binary(path, private=True) as file:
        torch.save(dict(content), file)


def read_tensors(path: Path) -> dict[str, Any]:
    """What `write_tensors` wrote; tensors and plain values only, no code is run."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; there is nothing to resume; {_train_again(path)}")
    try:
        content: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # whatever a damaged file makes of the reader
        reason = " ".join(str(error).split())[:100]
        raise ValueError(f"{path} cannot be read ({reason}); {_train_again(path)}") from None
    return content


def _train_again(path: Path) -> str:
    return f"train again with parsecaps train --config {path.parents[1] / 'config.yaml'}"
