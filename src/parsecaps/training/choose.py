"""The sensible thing for a data set: what is `auto` in a configuration becomes a value, with the reason for it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from parsecaps.config import AugmentationSection, Config
from parsecaps.data.cases import DataSet
from parsecaps.data.reading import read_image
from parsecaps.data.split_file import Division
from parsecaps.data.splits import rows_of
from parsecaps.models import MODELS

T = TypeVar("T")

IMAGE_SIZES = (64, 96, 112, 128, 224)  # of `medical`; the grid of capsules is about the same for all
LARGEST_DIGIT = 40  # images up to this size are for `digits`
UNNAMED_CONCEPTS = 8
SKEWED = 1.5  # how many times as large as the smallest the largest class is
_SAMPLE = 32  # images that are looked at
_IMAGES_SEEN = 100_000  # in all epochs together
_HANDWRITING = ("mnist", "affnist", "affnist-like")


class Choice(NamedTuple):
    """A setting, its value and the reason for it."""

    what: str
    value: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.value} ({self.why})"


@dataclass(frozen=True)
class Look:
    """What a sample of the images is like: the usual shorter side, and how many of those seen have colour."""

    side: int
    coloured: int
    seen: int


def choose(
    config: Config,
    data: DataSet,
    division: Division,
    *,
    processes: int = 1,
    trunk: Mapping[str, Any] | None = None,
) -> tuple[Config, list[Choice]]:
    """The configuration with no `auto` left, and what was chosen and why.

    `trunk` are the settings of the network whose weights are to be started from: unless a preset is named, the new
    network is built like it.
    """
    train = rows_of(division, "train")
    if not train:
        raise ValueError("no case is in the training part; check the split")
    look = look_at(data, train)
    choices: list[Choice] = []

    def pick(what: str, given: T | str, value: T, why: str) -> T:
        if given != "auto":
            return given  # type: ignore[return-value]
        choices.append(Choice(what, _text(value), why))
        return value

    if trunk and config.model.preset == "auto":
        config = config.change("model", settings={**trunk, **config.model.settings})
        choices.append(Choice("model.settings", "those of the weights", f"started from {config.model.start}"))
    preset, size = _network(config, look, pick)
    colour = look.coloured * 10 > look.seen
    channels = pick(
        "preparation.channels",
        config.preparation.channels,
        3 if colour else 1,
        f"{look.coloured} of {look.seen} images have colour",
    )
    num_concepts = _concepts(config, data, pick)
    choices.append(_losses(config, data, train, num_concepts))
    training = config.training
    epochs = pick("training.epochs", training.epochs, _epochs(len(train)), f"{len(train):,} training images")
    batch_size = pick(
        "training.batch_size", training.batch_size, 16 if len(train) < 10_000 else 64, f"{len(train):,} training images"
    )
    fitting = max(1, len(train) // processes) * processes
    if batch_size > fitting:
        choices.append(
            Choice("training.batch_size", str(fitting), f"{batch_size} is more than there are training images")
        )
        batch_size = fitting
    counts = Counter(data.cases[i].label for i in train if data.cases[i].label >= 0)
    skew = max(counts.values(), default=1) / max(1, min(counts.values(), default=1))
    skewed = "weights" if skew > SKEWED else "none"
    reason = f"the largest class has {skew:.1f} times as many training images as the smallest"
    if data.members:
        skewed, reason = "sampling", f"{len(data.members)} data sets, each class drawn as often as any other"
    balance = pick("training.class_balance", training.class_balance, skewed, reason)
    can_wait = max(10, epochs // 2) if "val" in division and training.keep == "best" else 0
    reason = "epochs without a better validation" if can_wait else "validation does not choose the epoch"
    patience = pick("training.patience", training.patience, can_wait, reason)
    bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    precision: Any = pick("training.precision", training.precision, "bf16" if bf16 else 32, "what the device does well")
    chosen = config.change("model", preset=preset, image_size=size, num_concepts=num_concepts)
    chosen = chosen.change("preparation", channels=channels)
    if config.augmentation is not None:
        chosen = chosen.change("augmentation", flip=_flip(config.augmentation, data, pick))
    settled = {"epochs": epochs, "batch_size": batch_size, "class_balance": balance, "patience": patience}
    return chosen.change("training", **settled, precision=precision), choices


def look_at(data: DataSet, rows: Sequence[int]) -> Look:
    """Open a few of the images, evenly spread over these rows; those that cannot be read are passed over."""
    some = [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, _SAMPLE).astype(int))]
    sides, coloured = [], 0
    for row in some:
        if data.draw is not None:
            pixels = np.moveaxis(data.draw([row])[0], 0, -1)
        else:
            try:
                pixels = read_image(data.cases[row].image, data.cases[row].frame).pixels
            except (OSError, ValueError):
                continue
        sides.append(min(pixels.shape[:2]))
        coloured += has_colour(pixels)
    if not sides:
        raise ValueError(f"none of {len(some)} images of {data.root} could be read; see parsecaps data check")
    return Look(int(np.median(sides)), coloured, len(sides))


def has_colour(pixels: np.ndarray) -> bool:
    """Whether the channels of an image (H, W) or (H, W, 3) differ by more than a JPEG's rounding."""
    if pixels.ndim == 2:
        return False
    spread = pixels.max(2).astype(np.float64) - pixels.min(2)
    return bool(spread.mean() > 0.02 * max(1.0, float(pixels.max())))


def reconstructs(data: DataSet, rows: Sequence[int], config: Config) -> bool:
    """Whether some image has no known concept, and so is to be reconstructed."""
    if not config.model.num_concepts or not config.training.reconstruction_weight:
        return False
    if not MODELS[config.model.kind].has_capsules:
        return False
    return any(np.isnan(data.cases[i].concepts).all() for i in rows)


def absolute(path: str) -> str:
    """The data set's name such that it can be found from another folder too.

    >>> absolute("phantom:n=200")
    'phantom:n=200'
    """
    if Path(path).exists():
        return str(Path(path).resolve())
    source, colon, place = path.partition(":")
    return f"{source}:{Path(place).resolve()}" if colon and place and Path(place).exists() else path


def _network(config: Config, look: Look, pick: Any) -> tuple[str, int]:
    model = config.model
    if model.kind not in MODELS:
        raise ValueError(f"model.kind is {model.kind!r}; choose one of {', '.join(MODELS)}")
    presets = MODELS[model.kind].presets
    used = round(look.side * config.preparation.centre)
    wide = f"images are {used} px wide" + (", what is used of them" if used < look.side else "")
    side = used if model.image_size == "auto" else model.image_size
    small = side <= LARGEST_DIGIT
    reason = wide if side == used else f"images are {side} px wide"
    preset = pick("model.preset", model.preset, "digits" if small else "medical", reason)
    if preset not in presets:
        raise ValueError(f"model.preset is {preset!r}; choose one of {', '.join(presets)}")
    if preset.startswith("digits"):
        size, why = min(max(28, side), 64), wide
    elif preset.startswith("medical"):
        size, why = max((each for each in IMAGE_SIZES if each <= side), default=IMAGE_SIZES[0]), wide
    else:
        size, why = presets[preset]["image_size"], f"that of {preset}"
    return preset, pick("model.image_size", model.image_size, size, why)


def _concepts(config: Config, data: DataSet, pick: Any) -> int:
    named = len(data.concepts)
    unnamed, why = UNNAMED_CONCEPTS, "the data name none; unnamed ones, for the reconstruction"
    if not MODELS[config.model.kind].has_capsules:
        unnamed, why = 0, f"the data name none, and {config.model.kind} does not reconstruct"
    why = "those of the data" if named else why
    number: int = pick("model.num_concepts", config.model.num_concepts, named or unnamed, why)
    if named and number not in (0, named):
        raise ValueError(f"model.num_concepts is {number}, but the data have {named}; give {named}, 0 or auto")
    return number


def _losses(config: Config, data: DataSet, train: Sequence[int], num_concepts: int) -> Choice:
    with_concepts = sum(not np.isnan(data.cases[i].concepts).all() for i in train) if data.concepts else 0
    losses = ["classification"]
    if with_concepts and num_concepts:
        losses += ["presentation", "triplet"] if MODELS[config.model.kind].has_capsules else ["presentation"]
    if reconstructs(data, train, config.change("model", num_concepts=num_concepts)):
        losses.append("reconstruction")
    if num_concepts and config.training.diversity_weight and not data.concepts:
        losses.append("diversity")
    if config.training.consistency_weight:
        _check_changes(config)
        losses.append("consistency")
    return Choice("losses", ", ".join(losses), f"{with_concepts:,} of {len(train):,} training images have concepts")


def _check_changes(config: Config) -> None:
    if config.augmentation is None:
        asked = f"training.consistency_weight is {config.training.consistency_weight}"
        raise ValueError(f"{asked}, but with augmentation off all views of an image are the same; set it to 0")


def _epochs(images: int) -> int:
    return min(100, max(10, round(_IMAGES_SEEN / images)))


def _flip(augmentation: AugmentationSection, data: DataSet, pick: Any) -> bool:
    written = data.source in _HANDWRITING
    why = "mirrored, a digit is another one" if written else "left and right may be exchanged; if not, set it to false"
    flip: bool = pick("augmentation.flip", augmentation.flip, not written, why)
    return flip


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
