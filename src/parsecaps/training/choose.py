"""Resolves the `auto` settings of a configuration for a data set, each with the reason."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from parsecaps.config import Config
from parsecaps.data.cases import DataSet, Division
from parsecaps.data.reading import read_image
from parsecaps.data.splits import rows_of
from parsecaps.files.untrusted import checked
from parsecaps.models import PretrainedModel, find_model
from parsecaps.models.parsecaps import LEAST_IMAGE
from parsecaps.nn.trunk import NO_TRUNK, TRUNKS, describe_trunk
from parsecaps.training.terms import find_terms, loss_weight

IMAGE_SIZES = (64, 96, 112, 128, 224)  # of `medical`; the grid of capsules is about the same for all
TRUNK = "trunk"  # the preset with one, and its setting
FEW_IMAGES = 5000  # training images up to which the recipe for few is chosen
LARGEST_OF_FEW = 112  # pixels
LARGEST_DIGIT = 40  # images up to this size are for `digits`
UNNAMED_CONCEPTS = 8
SKEWED = 1.5  # how many times as large as the smallest the largest class is
_SAMPLE = 32  # images that are looked at
_IMAGES_SEEN = 100_000  # in all epochs together
_CONSISTENCY = 4.0  # the weight of that loss
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
    """A sample of the images: their median sides, and how many of those seen have colour."""

    shorter: int
    longer: int
    coloured: int
    seen: int

    @property
    def has_colour(self) -> bool:
        """Whether more than a tenth of the images have colour."""
        return self.coloured * 10 > self.seen


def choose(
    config: Config,
    data: DataSet,
    division: Division,
    *,
    processes: int = 1,
    trunk: Mapping[str, Any] | None = None,
    on_gpu: bool = False,
) -> tuple[Config, list[Choice]]:
    """The configuration with no `auto` left, and the reasons; `trunk` are the settings of weights to start from."""
    train = rows_of(division, "train")
    if not train:
        split = "" if config.data.split is None else f" --split {config.data.split}"
        raise ValueError(f"no case is in the training part; see who is, with parsecaps data check {data.root}{split}")
    choosing = _Choosing(config)
    look = look_at(data, train)
    if trunk and config.model.preset == "auto":
        choosing.add_settings(trunk, "those of the weights", f"started from {config.model.start}")
    _choose_network(choosing, data, look, len(train))
    _choose_recipe(choosing, data, look, len(train))
    _choose_losses(choosing, data, train)
    _choose_length(choosing, data, division, len(train), processes)
    bf16 = on_gpu and torch.cuda.is_bf16_supported()
    choosing.pick("training.precision", "bf16" if bf16 else 32, "what the device does well")
    return choosing.config, choosing.choices


class _Choosing:
    def __init__(self, config: Config) -> None:
        self.config, self.choices = config, list[Choice]()

    def pick(self, key: str, value: Any, why: str, *, anyway: bool = False) -> Any:
        """The value of a setting: as it was given unless `anyway`, or this one with the reason for it."""
        section, _, name = key.partition(".")
        settings, loss = getattr(self.config, section), name.removeprefix("losses.")
        given = getattr(settings, name) if loss == name else settings.loss(loss).weight
        if given != "auto" and not anyway:
            return given
        self.config = self.config.change(section, **({name: value} if loss == name else {"losses": {loss: value}}))
        self.note(key, str(value).lower() if isinstance(value, bool) else str(value), why)
        return value

    def note(self, what: str, value: str, why: str) -> None:
        self.choices.append(Choice(what, value, why))

    def add_settings(self, settings: Mapping[str, Any], shown: str, why: str) -> None:
        given = self.config.model.settings
        if new := {name: value for name, value in settings.items() if name not in given}:
            self.config = self.config.change("model", settings={**new, **given})
            self.note("model.settings", shown, why)


def look_at(data: DataSet, rows: Sequence[int]) -> Look:
    """Open a few of the images, evenly spread over these rows; those that cannot be read are skipped."""
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
        sides.append(sorted(pixels.shape[:2]))
        coloured += has_colour(pixels)
    if not sides:
        raise ValueError(
            f"none of {len(some)} images of {data.root} could be read; run parsecaps data check {data.root}"
        )
    shorter, longer = np.median(sides, axis=0).astype(int).tolist()
    return Look(shorter, longer, coloured, len(sides))


def has_colour(pixels: np.ndarray) -> bool:
    """Whether the channels of an image (H, W) or (H, W, 3) differ by more than a JPEG's rounding."""
    if pixels.ndim == 2:
        return False
    spread = pixels.max(2).astype(np.float64) - pixels.min(2)
    return bool(spread.mean() > 0.02 * max(1.0, float(pixels.max())))


def _choose_network(choosing: _Choosing, data: DataSet, look: Look, images: int) -> None:
    model = choosing.config.model
    try:
        kind = find_model(model.kind)
    except ValueError as error:
        raise ValueError(f"model.kind: {error}") from None
    presets = kind.presets
    if model.head != "parallel" and "head" not in kind.settings():
        given = f"model.head is {model.head!r}, but {model.kind} has one way to its classes"
        raise ValueError(f"{given}; set model.head=parallel")
    kinds = kind.settings()
    for name, value in model.settings.items():
        if name in kinds:
            checked(kinds[name], value, f"model.settings.{name}", "give one (docs/settings.md)", strict=True)
    preparation = choosing.config.preparation
    whole = look.longer if preparation.square == "pad" else look.shorter  # of the square that an image becomes
    used = round(whole * preparation.centre)
    wide = f"images are {used} px wide" + (", what is used of them" if used < whole else "")
    side = used if model.image_size == "auto" else model.image_size
    reason = wide if side == used else f"images are {side} px wide"
    preset = "digits" if side <= LARGEST_DIGIT else "medical"
    if TRUNK in presets and model.settings.get(TRUNK, NO_TRUNK) != NO_TRUNK:
        preset, reason = TRUNK, "the layers for a trunk"
    preset = choosing.pick("model.preset", preset, reason)
    if preset not in presets:
        raise ValueError(f"model.preset is {preset!r}; choose one of {', '.join(presets)}")
    trunk = {**presets[preset], **choosing.config.model.settings}.get(TRUNK, NO_TRUNK)
    if trunk in TRUNKS:
        why = "learned from nothing" if TRUNKS[trunk].weights is None else "fine-tuned at 0.3 of the learning rate"
        choosing.note(TRUNK, describe_trunk(trunk), why)
    if preset.startswith("digits"):
        size, why = min(max(28, side), 64), wide
    elif preset.startswith("medical"):
        few = _is_few(choosing.config, images)
        sizes = [each for each in IMAGE_SIZES if each <= (LARGEST_OF_FEW if few else side)]
        size, why = max((each for each in sizes if each <= side), default=IMAGE_SIZES[0]), wide
        size = max(size, LEAST_IMAGE.get(preset, size))
        if few and side > LARGEST_OF_FEW:
            why = f"{wide}, and {images:,} training images teach no finer detail"
        published = presets[preset].get("image_size", size)
        if size > published:
            size, why = published, f"{wide}; {model.kind} was published for {published}"
    else:
        size, why = presets[preset]["image_size"], f"that of {preset}"
    if size > kind.largest_image:
        size, why = kind.largest_image, f"{wide}, and {model.kind} has too many weights for more"
    choosing.pick("model.image_size", size, why)
    colour = f"{look.coloured} of {look.seen} images have colour"
    choosing.pick("preparation.channels", 3 if look.has_colour else 1, colour)
    _choose_concepts(choosing, data)


def _choose_concepts(choosing: _Choosing, data: DataSet) -> None:
    kind, named = choosing.config.model.kind, len(data.concepts)
    unnamed, why = UNNAMED_CONCEPTS, "the data name none; unnamed ones, for the reconstruction"
    if not find_model(kind).has_capsules:
        unnamed, why = 0, f"the data name none, and {kind} does not reconstruct"
    if not find_model(kind).names_concepts:
        named, unnamed, why = 0, 0, f"{kind} has no place for concepts"
    why = "those of the data" if named else why
    number = choosing.pick("model.num_concepts", named or unnamed, why)
    if find_model(kind).needs_concepts and not (named and number):
        having, advice = "the data name none", "give data with concepts (docs/data.md), or another model.kind"
        if named:
            having, advice = "model.num_concepts is 0", f"leave it out to learn all {named}"
        raise ValueError(f"model.kind is {kind}, which decides by concepts, but {having}; {advice}")
    if named and number not in (0, named):
        raise ValueError(f"model.num_concepts is {number}, but the data have {named}; give {named}, 0 or auto")


def _is_few(config: Config, images: int) -> bool:
    # studies/few_images.py measured the recipe for few images on these
    return images <= FEW_IMAGES and config.model.preset in ("medical", TRUNK)


def _choose_recipe(choosing: _Choosing, data: DataSet, look: Look, images: int) -> None:
    few, many = _is_few(choosing.config, images), f"{images:,} training images"
    changes = choosing.config.augmentation is not None
    if few and find_model(choosing.config.model.kind).has_capsules:
        choosing.add_settings({"whole_values": True}, "whole_values", "few images: each head tells of the whole parent")

    def pick(key: str, value: Any, otherwise: Any, why: str) -> None:
        choosing.pick(key, value if few else otherwise, f"few images: {why}" if few else many)

    if changes:
        written = data.source in _HANDWRITING
        why = "left and right may be exchanged; if not, set it to false"
        choosing.pick("augmentation.flip", not written, "mirrored, a digit is another one" if written else why)
        if look.has_colour:
            pick("augmentation.rotation", 180.0, 15.0, "in colour, so without an upright; if they have one, set 15")
        pick("augmentation.rotation", 15.0, 15.0, "grey, so with an upright; if they have none, set 180")
        light = "lamps, stains and cameras differ" if look.has_colour else "images are grey"
        pick("augmentation.colour", 0.2 if look.has_colour else 0.0, 0.0, light)
        pick("augmentation.resampling", "bicubic", "bilinear", "as sharp as the images to come")
    if data.members:
        choosing.pick("training.mixup", 0.0, "images of several data sets are not mixed")
    pick("training.mixup", 0.4, 0.0, "mixtures of two are new ones")
    if changes and any(case.label < 0 and np.isnan(case.concepts).all() for case in data.cases):
        choosing.pick("training.losses.consistency", _CONSISTENCY, "what images without any label teach")
    if not changes:
        choosing.pick("training.losses.consistency", 0.0, "without augmentation all views of an image are the same")
    pick("training.losses.consistency", _CONSISTENCY, 0.0, "two views of an image must get the same answer")
    pick("training.ema", 0.99, 0.0, "averaged weights are steadier")
    pick("training.keep", "last", "best", "few validation patients cannot choose an epoch")


def _choose_losses(choosing: _Choosing, data: DataSet, train: Sequence[int]) -> None:
    kind = find_model(choosing.config.model.kind)
    _settle_weights(choosing, kind, masks=data.has_masks(train))
    config = choosing.config
    num_concepts = config.model.num_concepts
    with_concepts = sum(not np.isnan(data.cases[i].concepts).all() for i in train) if data.concepts else 0
    if kind.needs_concepts and not with_concepts:
        given = f"model.kind is {kind.__name__}, which decides by concepts, but no training image has a known one"
        raise ValueError(f"{given}; label some, or give another model.kind")
    weights = {name: loss_weight(config.training, kind, name) for name in kind.losses}
    if kind.losses is not PretrainedModel.losses:
        used = ", ".join(f"{name} {weight:g}" for name, weight in weights.items() if weight)
        choosing.note("losses", used, f"as published with {kind.__name__}")
        return
    losses = ["classification"]
    if with_concepts and num_concepts:
        of_concepts = ("presentation", "triplet") if kind.has_capsules else ("presentation",)
        losses += [name for name in of_concepts if weights[name]]
        if config.model.head == "bottleneck" and weights["intervention"]:
            losses.append("intervention")
    if num_concepts and kind.has_capsules and weights["reconstruction"] and with_concepts < len(train):
        losses.append("reconstruction")
    if num_concepts and weights["diversity"] and not data.concepts:
        losses.append("diversity")
    if weight := loss_weight(config.training, kind, "consistency"):
        if config.augmentation is None:
            given = f"training.losses.consistency is {weight}"
            raise ValueError(f"{given}, but with augmentation off all views of an image are the same; set it to 0")
        losses.append("consistency")
    why = f"{with_concepts:,} of {len(train):,} training images have concepts"
    choosing.note("losses", ", ".join(losses), why)


def _settle_weights(choosing: _Choosing, kind: type[PretrainedModel], *, masks: bool) -> None:
    """Give every loss its weight. Without masks, one that needs them is off, or refused where it was asked for."""
    training = choosing.config.training
    for name in dict.fromkeys([*kind.losses, *training.losses]):
        weight, given = loss_weight(training, kind, name), training.loss(name)
        lacks = weight and not masks and any("masks" in term.needs for term in find_terms(name))
        if lacks and given.weight != "auto":
            asked = f"training.losses.{name} is {weight}, but the data have no masks of lesions"
            raise ValueError(f"{asked}; set it to 0, or give data with masks (docs/data.md)")
        if lacks:
            weight = 0.0
            choosing.note(f"training.losses.{name}", "0.0", "the data have no masks of lesions")
        settled = {"weight": weight, **given.model_extra} if given.model_extra else weight
        choosing.config = choosing.config.change("training", losses={name: settled})


def _choose_length(choosing: _Choosing, data: DataSet, division: Division, images: int, processes: int) -> None:
    # few images come in two views each, which counts as two
    count, (most, views) = f"{images:,} training images", (40, 2) if _is_few(choosing.config, images) else (100, 1)
    epochs = choosing.pick("training.epochs", min(most, max(10, round(_IMAGES_SEEN / views / images))), count)
    batch_size = choosing.pick("training.batch_size", 16 if images < 10_000 else 64, count)
    fitting = max(1, images // processes) * processes
    if batch_size > fitting:
        reason = f"{batch_size} is more than there are training images"
        choosing.pick("training.batch_size", fitting, reason, anyway=True)
    counts = Counter(data.cases[i].label for i in rows_of(division, "train") if data.cases[i].label >= 0)
    skew = max(counts.values(), default=1) / max(1, min(counts.values(), default=1))
    balance = "weights" if skew > SKEWED else "none"
    reason = f"the largest class has {skew:.1f} times as many training images as the smallest"
    if data.members:
        balance, reason = "sampling", f"{len(data.members)} data sets, each class drawn as often as any other"
    choosing.pick("training.class_balance", balance, reason)
    can_wait = max(10, epochs // 2) if "val" in division and choosing.config.training.keep == "best" else 0
    reason = "epochs without a better validation" if can_wait else "validation does not choose the epoch"
    choosing.pick("training.patience", can_wait, reason)
