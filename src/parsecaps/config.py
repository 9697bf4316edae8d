"""Every setting with its default, its bounds and its meaning; and how files and `key=value` lines change them.

`auto` values are chosen from the data (`training.choose`) before a run keeps its configuration. "Few images" are up to
5,000 training images for the preset `medical`. The page "Settings" of the documentation is made from this file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from parsecaps.files.untrusted import parse_yaml, shown

SMALLEST_IMAGE, LARGEST_IMAGE = 28, 4096  # pixels a side

Auto = Literal["auto"]
Balance = Literal["none", "weights", "sampling"]
Precision = Literal[32, "bf16"]
OptimizerName = Literal["muon", "adamw", "adam", "sgd", "rmsprop"]
ScheduleName = Literal["cosine", "steps"]
Device = Literal["auto", "cpu", "cuda"]
Risk = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
LossWeight = Annotated[float, Field(ge=0)] | Auto  # auto: what the model was published with (`losses` of its class)
ImageSize = Annotated[int, Field(ge=SMALLEST_IMAGE, le=LARGEST_IMAGE)]


class Section(BaseModel):
    """A group of settings; no other keys than these, and no change after it is made."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, coerce_numbers_to_str=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class DataSection(Section):
    """What to train on, and who trains, chooses and tests: see `parsecaps data check` and `parsecaps data split`."""

    path: str = ""
    """A folder, a manifest, `phantom:n=2000,size=64` or `NAME:PATH`; the argument DATA of the command."""
    source: str | None = None
    """What `path` is, as `parsecaps data sources` lists it; without it, the layout tells."""
    also: tuple[str, ...] = ()
    """Further data sets to learn from, each with a head of its own; `parsecaps pretrain` sets it."""
    licences: tuple[str, ...] = ()
    """The licences of all data sets, in their order, for the model card; `parsecaps pretrain` sets it."""
    split: str | None = None
    """A split file, as `parsecaps data split` writes it."""
    test_fold: tuple[int, ...] = ()
    """Test on these folds of the data set's author, as in `[3]`."""
    test_part: Literal["val", "test"] | None = None
    """With `val`, test on the official validation part; a share `val` of the official training part chooses."""
    folds: int = Field(default=0, ge=0, le=1000)
    """Cross-validation with this many folds by patient, each a run, so that every patient is tested once."""
    fold: PositiveInt | None = None
    """Of a cross-validation, train only this fold."""
    val: float = Field(default=0.15, ge=0, lt=1)
    """Share of the patients that choose the epoch and the temperature, unless there are official parts."""
    test: float = Field(default=0.2, ge=0, lt=1)
    """Share of the patients to test on."""
    seed: Seed = 0
    """Seed of the split."""
    skip_bad: bool = False
    """Leave bad files and rows out instead of refusing the data."""
    allow_leaks: bool = False
    """Train although parts leak; the warning stays in the run."""


class ModelSection(Section):
    """The network, and where its first weights come from."""

    kind: str = "ParseCaps"
    """The network: ParseCaps, or one to compare with."""
    start: str | None = None
    """The weights to start from: a run, a model folder, `hf://owner/name`, or `imagenet`."""
    preset: str = "auto"
    """`medical`, `digits`, `tiny`, `medical-paper` or `digits-paper`; auto is `digits` up to 40 px, else `medical`."""
    image_size: ImageSize | Auto = "auto"
    """Pixels a side. Auto is the largest of 64, 96, 112, 128 and 224 up to the files' usual side (the longer one where
    images are padded, else the shorter one), at most 112 for few images; digits as they are, from 28."""
    head: Literal["parallel", "bottleneck"] = "parallel"
    """`parallel`: concepts stand beside the diagnosis, as in the paper. `bottleneck`: the concepts alone decide."""
    num_concepts: Annotated[int, Field(ge=0, le=10_000)] | Auto = "auto"
    """Auto is those of the data, or 8 without names where the data name none; 0 ignores concepts."""
    settings: dict[str, Any] = {}
    """Any other argument of the network, as in `model.settings.dropout=0.2`; see below."""


class PreparationSection(Section):
    """How an image becomes a square, as in `data.preparation.Preparation`; its size is the model's."""

    channels: Literal[1, 3] | Auto = "auto"
    """1 is grey, 3 is colour; auto is 3 if more than a tenth of a sample of images have colour."""
    square: Literal["pad", "crop", "stretch"] = "pad"
    """How an image becomes a square: `pad`, `crop` or `stretch`."""
    scaling: Literal["range", "percentile"] = "range"
    """By the format's own black and white (`range`), or by the image's minimum and 99.5th percentile (`percentile`)."""
    centre: float = Field(default=1.0, gt=0, le=1)
    """The part of each side, around the middle, that is used."""


class AugmentationSection(Section):
    """Random changes of the training images, as in `data.batches.Augmentation`; `augmentation: null` turns all off."""

    flip: bool | Auto = "auto"
    """Mirror images; auto is yes, but not for handwriting."""
    rotation: Annotated[float, Field(ge=0, le=360)] | Auto = "auto"
    """Degrees; auto is 180 for few images in colour, which have no upright, else 15."""
    scale: float = Field(default=0.1, ge=0, lt=1)
    """Share by which an image may grow or shrink."""
    shear: float = Field(default=0.05, ge=0, le=100)
    """Share."""
    shift: float = Field(default=0.03, ge=0, le=100)
    """Share of the width."""
    padding: int = Field(default=0, ge=0, le=LARGEST_IMAGE)
    """Pixels by which an image may move."""
    gamma: float = Field(default=0.25, ge=0, le=100)
    """Change of gamma."""
    contrast: float = Field(default=0.15, ge=0, le=100)
    """Change of contrast."""
    brightness: float = Field(default=0.05, ge=0, le=100)
    """Change of brightness."""
    colour: Annotated[float, Field(ge=0, lt=1)] | Auto = "auto"
    """Share by which each channel is scaled, as by another lamp; auto is 0.2 for few images in colour, else 0."""
    resampling: Literal["bilinear", "bicubic"] | Auto = "auto"
    """How moved pixels are computed; bilinear blurs. Auto is `bicubic` for few images, else `bilinear`."""


class LossArguments(Section):
    """The weight of a loss, and whatever else the class of the loss takes."""

    model_config = ConfigDict(extra="allow")

    weight: LossWeight = "auto"


class TrainingSection(Section):
    """How to train. `batch_size` is that of all processes together; `patience`, `ema` and the weights are off at 0."""

    epochs: PositiveInt | Auto = "auto"
    """Auto is 100,000 images in all, from 10 to 100 epochs; for few images, which come in two views, at most 40."""
    batch_size: PositiveInt | Auto = "auto"
    """Of all processes together; auto is 16, or 64 from 10,000 training images."""
    optimizer: OptimizerName = "muon"
    """`muon`: linear maps learn in orthogonal steps, all else by AdamW. `adamw` for everything, as in the paper.
    `adam`, `sgd` (momentum 0.9) and `rmsprop` (0.9), as older networks were published with."""
    learning_rate: float = Field(default=1.5e-3, gt=0)
    """Of all optimizers."""
    start_rate: float = Field(default=1.0, ge=0, le=1)
    """Of the layers that come from other weights, as a share of `learning_rate`; 0 keeps them as they are."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Not of biases, scales, priors and prototypes. With `adam`, `sgd` and `rmsprop` it is a part of the gradient."""
    warm_up_epochs: NonNegativeInt = 5
    """Linear, at most a quarter of the epochs; then the schedule, step by step."""
    schedule: ScheduleName = "cosine"
    """`cosine` to zero at the end; or `steps`: the rate is multiplied by `decay` every `decay_epochs`."""
    decay: float = Field(default=0.5, gt=0, le=1)
    """Of the schedule `steps`."""
    decay_epochs: float = Field(default=10.0, gt=0)
    """Of the schedule `steps`, counted from the first step of the run; may be a fraction, such as 4.26."""
    lowest_rate: float = Field(default=0.0, ge=0)
    """The learning rate falls no further than this."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Longer gradients are shortened to this."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Of the classification loss."""
    mixup: Annotated[float, Field(ge=0)] | Auto = "auto"
    """With 0.4, each image and its labels are mixed with another of its batch, in shares from Beta(0.4, 0.4). Training
    losses are then those of mixtures. Auto is 0.4 for few images, else 0."""
    losses: dict[str, LossWeight | LossArguments] = {}
    """Weights of losses, as in `training.losses.triplet=0.2`, and their arguments; see below. Auto is as published."""
    class_balance: Balance | Auto = "auto"
    """`weights`, `sampling` or `none`; auto is `weights` where the largest class has more than 1.5 times as many
    training images as the smallest."""
    concept_balance: float = Field(default=0.0, ge=0, le=1)
    """From 0, where each label of a concept weighs the same in its loss, to 1, where presence and absence do."""
    patience: NonNegativeInt | Auto = "auto"
    """Epochs without a better validation before it stops: auto is half of all, at least 10; 0 never stops."""
    keep: Literal["best", "last"] | Auto = "auto"
    """`best` by validation, or `last`; auto is `last` for few images, and then nothing stops early."""
    ema: Annotated[float, Field(ge=0, lt=1)] | Auto = "auto"
    """Decay of an average of the weights, which is validated and kept; auto is 0.99 for few images, else 0 (off)."""
    precision: Precision | Auto = "auto"
    """Auto is `bf16` on a GPU that has it, else `32`."""
    compile: bool = False
    """Use `torch.compile`: some minutes at first, then faster."""
    devices: int = Field(default=1, ge=1, le=64)
    """Processes on this machine, each with a GPU where there are some."""
    seed: Seed = 0
    """Of the weights, the order, augmentation and dropout."""
    checkpoint_seconds: float = Field(default=60.0, ge=0)
    """Between two checkpoints within an epoch; there is one after each epoch too."""

    def loss(self, name: str) -> LossArguments:
        """The weight of a loss as it is set, and its arguments."""
        given = self.losses.get(name, "auto")
        return given if isinstance(given, LossArguments) else LossArguments(weight=given)


class Config(Section):
    """All settings of a run."""

    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    preparation: PreparationSection = PreparationSection()
    augmentation: AugmentationSection | None = AugmentationSection()
    training: TrainingSection = TrainingSection()

    def to_yaml(self) -> str:
        """The whole configuration as YAML; `load_config` reads it back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def change(self, section: str, **values: Any) -> "Config":
        """The same configuration with some values of a section changed, checked again; `losses` add to those there."""
        content = self.model_dump()
        if "losses" in values:
            values["losses"] = {**content[section]["losses"], **values["losses"]}
        content[section] |= values
        return Config.model_validate(content)


class EvaluateConfig(Section):
    """How to score runs: on a part of their own data, or on other data."""

    part: Literal["auto", "test", "val", "train"] = "auto"
    """The part to score. Auto is test, or validation without one."""
    data: str | None = None
    """Score all cases of other data, which must have the classes."""
    resamples: NonNegativeInt = 1000
    """Bootstrap resamples of the patients, behind the intervals."""
    risks: tuple[Risk, ...] = (0.05, 0.1, 0.2)
    """At which prediction sets are measured."""
    views: PositiveInt = 1
    """Average over the image and random changes of it, as in training; and how many of these get the same answer."""
    device: Device = "auto"
    """Auto is a GPU where there is one."""


class AnswerConfig(Section):
    """How any image is answered: what predictions, explanations and a server have in common."""

    risk: Risk | None = None
    """Abstain so that about this share of the prediction sets at most leaves out the truth."""
    device: Device = "auto"
    """Auto is a GPU where there is one."""


class PredictConfig(AnswerConfig):
    """How to predict."""

    batch_size: PositiveInt = 32
    """Images that the model sees at a time."""


class ExplainConfig(AnswerConfig):
    """How to explain; docs/explain.md says more."""

    method: Literal["routes", "grad-cam", "integrated-gradients", "occlusion"] = "routes"
    """How maps are made."""
    trees: NonNegativeInt = 3
    """Parse trees per image: the diagnosis, then the most present concepts."""
    strict: bool = False
    """Explain the network as a strict tree."""
    traversals: NonNegativeInt = 0
    """How many numbers of the global capsule move before the decoder."""
    limit: PositiveInt = 100
    """Images at most; of a data set, spread over all of it."""


S = TypeVar("S", bound="Section")
_SHIPPED = files("parsecaps") / "configs"
_OPEN, _LOSSES = "model.settings", "training.losses"  # what lies below is the business of the model, and of each loss
_LONGEST_KEY = 100  # characters of a key that an error shows
_ELSEWHERE = {  # a short name, and settings of version 0.2, which also had a `*_weight` for each loss
    "training.phrase_vectors": f"{_LOSSES}.triplet.phrase_vectors",
    "training.margins": f"{_LOSSES}.margin.margins",
    "training.prototype_warm_up": f"{_LOSSES}.prototype.warm_up",
    "training.prototype_push": f"{_LOSSES}.prototype.push_every",
}


def load_config(
    path: str | Path | None = None, overrides: Sequence[str] = (), *, values: Mapping[str, Any] | None = None
) -> Config:
    """The settings of a training run: the defaults, changed by a YAML file, `section.key=value` lines and `values`.

    The path may be the name of settings of the package (`shipped_configs`), unless a file is called so. A file may
    begin with those of the package: `like: NAME`.

    >>> load_config(None, ["training.epochs=5", "augmentation.flip=false"]).training.epochs
    5
    >>> load_config(None, ["training.epoch=5"])
    Traceback (most recent call last):
    ValueError: --set training.epoch=5: there is no key 'training.epoch'; did you mean 'training.epochs'?
    """
    if path is not None and not Path(path).is_file() and not Path(path).suffix:
        if str(path) not in shipped_configs():
            names = ", ".join(shipped_configs())
            raise FileNotFoundError(f"{path} is missing; give a YAML file, or one of {names}")
        path = Path(str(_SHIPPED / f"{path}.yaml"))
    return load_settings(Config, path, overrides, values=values)


def shipped_configs() -> list[str]:
    """The names of the settings that come with the package.

    >>> "demo" in shipped_configs()
    True
    """
    return sorted(file.name.removesuffix(".yaml") for file in _SHIPPED.iterdir() if file.name.endswith(".yaml"))


def load_settings(
    kind: type[S],
    path: str | Path | None = None,
    overrides: Sequence[str] = (),
    *,
    values: Mapping[str, Any] | None = None,
    base: S | None = None,
) -> S:
    """Settings of a kind: those of `base` or the defaults, changed by a file, by `--set` lines, and by `values`.

    >>> load_settings(EvaluateConfig, None, ["resamples=50"], values={"part": "val"}).resamples
    50
    """
    content = {} if base is None else base.model_dump()
    given_by: dict[str, str] = {}
    read = [] if path is None else _read(Path(path))
    lines = [(key, value, str(path)) for each in read for key, value in _flat(each)]
    lines += [_parsed(line) for line in overrides]
    lines += [(key, value, f"{key}={value}") for key, value in _flat(values or {})]
    for given, value, place in lines:
        key = _ELSEWHERE.get(given) or re.sub(r"^training\.(\w+)_weight$", rf"{_LOSSES}.\1", given)  # as in version 0.2
        _check_known(kind, key, place)
        _put(content, key.split("."), value, place)
        given_by[".".join(key.split(".")[:3])] = place
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise ValueError(_describe(error, given_by, str(path))) from None


def known_keys(kind: type[Section] = Config) -> list[str]:
    """Every key with its section, as in `training.epochs`; the network and losses have further ones of their own."""
    keys = []
    for name, field in kind.model_fields.items():
        kinds = (each for each in (field.annotation, *get_args(field.annotation)) if isinstance(each, type))
        keys += [name, *(f"{name}.{key}" for each in kinds if issubclass(each, Section) for key in each.model_fields)]
    return keys


def _read(path: Path) -> list[dict[str, Any]]:
    """The contents of a file, after those that it is `like`."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; give a YAML file")
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid YAML ({error}); mend it") from None
    if not isinstance(content, dict | None):
        raise ValueError(f"{path} holds no settings; write a line `key: value` for each, in its section if it has one")
    content = content or {}
    if (like := content.pop("like", None)) is None:
        return [content]
    if like not in shipped_configs():
        raise ValueError(f"{path}: like is {shown(like)}; leave it out, or give one of {', '.join(shipped_configs())}")
    return [*_read(Path(str(_SHIPPED / f"{like}.yaml"))), content]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted names of values, with the values; sections may be written as mappings."""
    for name, value in values.items():
        if isinstance(value, Mapping) and f"{prefix}{name}" != _OPEN:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _parsed(line: str) -> tuple[str, Any, str]:
    """A line `key=value` as key, value, and where it stands."""
    key, equals, text = line.partition("=")
    place = f"--set {line}"
    if not equals:
        raise ValueError(f"{place} has no value; write --set key=value")
    try:
        return key.strip(), parse_yaml(text), place
    except ValueError:
        raise ValueError(f"{place}: the value cannot be read; put text with special characters in quotes") from None


def _check_known(kind: type[Section], key: str, place: str) -> None:
    keys, key = known_keys(kind), key if len(key) < _LONGEST_KEY else f"{key[:_LONGEST_KEY]}..."
    if key in keys or any(each in keys and key.startswith(f"{each}.") for each in (_OPEN, _LOSSES)):
        return

    def likeness(known: str) -> float:  # a key without its section, or in another one, is recognised too
        last = SequenceMatcher(None, key.rpartition(".")[2], known.rpartition(".")[2]).ratio()
        return SequenceMatcher(None, key, known).ratio() + last

    below = _OPEN in keys and key.startswith("model.")
    more = f" (other arguments of the network go below {_OPEN})" if below else ""
    raise ValueError(f"{place}: there is no key {key!r}; did you mean {max(keys, key=likeness)!r}?{more}")


def _put(content: dict[str, Any], path: Sequence[str], value: Any, place: str) -> None:
    is_loss = ".".join(path[:2]) == _LOSSES
    for name in path[:-1]:
        below = content.setdefault(name, {})
        if is_loss and name == path[-2] and isinstance(below, float | int | str):
            below = content[name] = {"weight": below}
        if below is None:
            raise ValueError(f"{place}: {name} is off (null) in the file; turn it on first: --set {name}={{}}")
        if not isinstance(below, dict):
            raise ValueError(f"{place}: {name} is {shown(below)} in the file, not a section; leave one of the two out")
        content = below
    there = content.get(path[-1])
    content[path[-1]] = {**there, "weight": value} if is_loss and isinstance(there, dict) and len(path) == 3 else value


def _describe(error: ValidationError, given_by: Mapping[str, str], path: str) -> str:
    first = error.errors()[0]
    keys = accumulate(map(str, first["loc"]), "{}.{}".format)
    key = next((key for key in reversed([*keys]) if key in given_by), "")
    # of a choice between kinds of value, each kind has its own complaint
    messages = dict.fromkeys(each["msg"] for each in error.errors() if each["loc"][:2] == first["loc"][:2])
    reasons = ", or ".join(message[0].lower() + message[1:] for message in messages)
    return f"{given_by.get(key, path)}: {key} is {shown(first['input'])}; {reasons}"
