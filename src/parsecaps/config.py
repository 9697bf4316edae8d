"""What can be set for a training run: sections of plain values, from a YAML file and `key=value` on the command line.

`auto` means that the value is chosen from the data (`training.choose`); the configuration that a run folder keeps has
no `auto` left. A key that is not known is an error that names the nearest one.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

Auto = Literal["auto"]
Balance = Literal["none", "weights", "sampling"]
Precision = Literal[32, "bf16"]


class Section(BaseModel):
    """A group of settings; no other keys than these, and no change after it is made."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, allow_inf_nan=False)


class DataSection(Section):
    """What to train on, and who trains, chooses and tests: see `parsecaps data check` and `parsecaps data split`."""

    path: str = ""
    source: str | None = None
    split: str | None = None
    test_fold: tuple[int, ...] = ()
    val: float = Field(default=0.15, ge=0, lt=1)
    test: float = Field(default=0.2, ge=0, lt=1)
    seed: NonNegativeInt = 0
    skip_bad: bool = False
    allow_leaks: bool = False


class ModelSection(Section):
    """The network; `settings` are any other arguments of `ParseCaps`, such as `dropout: 0.2`."""

    preset: str = "auto"
    image_size: PositiveInt | Auto = "auto"
    head: Literal["parallel", "bottleneck"] = "parallel"
    num_concepts: NonNegativeInt | Auto = "auto"
    settings: dict[str, Any] = {}


class PreparationSection(Section):
    """How an image becomes a square, as in `data.preparation.Preparation`; its size is the model's."""

    channels: Literal[1, 3] | Auto = "auto"
    square: Literal["pad", "crop", "stretch"] = "pad"
    scaling: Literal["range", "percentile"] = "range"


class AugmentationSection(Section):
    """Random changes of the training images, as in `data.augment.Augmentation`; `augmentation: null` turns all off."""

    flip: bool | Auto = "auto"
    rotation: float = Field(default=15.0, ge=0)
    scale: float = Field(default=0.1, ge=0, lt=1)
    shear: float = Field(default=0.05, ge=0)
    shift: float = Field(default=0.03, ge=0)
    padding: NonNegativeInt = 0
    gamma: float = Field(default=0.25, ge=0)
    contrast: float = Field(default=0.15, ge=0)
    brightness: float = Field(default=0.05, ge=0)


class TrainingSection(Section):
    """How to train. `batch_size` is that of all processes together; `patience`, `ema` and the weights are off at 0."""

    epochs: PositiveInt | Auto = "auto"
    batch_size: PositiveInt | Auto = "auto"
    learning_rate: float = Field(default=1.5e-3, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    warm_up_epochs: NonNegativeInt = 5
    max_grad_norm: float = Field(default=1.0, gt=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    presentation_weight: float = Field(default=0.5, ge=0)
    triplet_weight: float = Field(default=0.1, ge=0)
    reconstruction_weight: float = Field(default=0.0005, ge=0)
    class_balance: Balance | Auto = "auto"
    patience: NonNegativeInt | Auto = "auto"
    ema: float = Field(default=0.0, ge=0, lt=1)
    precision: Precision | Auto = "auto"
    compile: bool = False
    devices: PositiveInt = 1
    seed: NonNegativeInt = 0
    checkpoint_seconds: float = Field(default=60.0, ge=0)


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
        """The same configuration with some values of a section changed, checked again."""
        content = self.model_dump()
        content[section] |= values
        return Config.model_validate(content)


def load_config(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """The defaults, changed by a YAML file, changed by `section.key=value` lines; values are read as YAML.

    >>> load_config(None, ["training.epochs=5", "augmentation.flip=false"]).training.epochs
    5
    >>> load_config(None, ["training.epoch=5"])
    Traceback (most recent call last):
    ValueError: --set training.epoch=5: there is no key 'training.epoch'; did you mean 'training.epochs'?
    """
    content = {} if path is None else _read(Path(path))
    given_by = {key: str(path) for key in _paths(content)}
    for key in given_by:
        _check_known(key, str(path))
    for override in overrides:
        key, equals, text = override.partition("=")
        key, place = key.strip(), f"--set {override}"
        if not equals:
            raise ValueError(f"{place} has no value; write --set key=value")
        _check_known(key, place)
        _put(content, key.split("."), _value(text, place), place)
        given_by[key] = place
    try:
        return Config.model_validate(content)
    except ValidationError as error:
        raise ValueError(_describe(error, given_by, str(path))) from None


def known_keys() -> list[str]:
    """Every key with its section, as in `training.epochs`; `model.settings` stands for whatever is below it."""
    keys = []
    for section, field in Config.model_fields.items():
        kind = next(each for each in (field.annotation, *get_args(field.annotation)) if isinstance(each, type))
        assert issubclass(kind, Section)
        keys += [section, *(f"{section}.{name}" for name in kind.model_fields)]
    return keys


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; give a YAML file")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid YAML ({' '.join(str(error).split())}); mend it") from None
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no sections; write, for example, a line `training:` and below it `  epochs: 5`")
    return content


def _paths(content: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """The dotted names of all values; what lies below `model.settings` is the model's own business."""
    for name, value in content.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping) and path != "model.settings":
            yield path
            yield from _paths(value, f"{path}.")
        else:
            yield path


def _check_known(key: str, place: str) -> None:
    keys = known_keys()
    if key in keys or key.startswith("model.settings."):
        return

    def likeness(known: str) -> float:  # a key without its section, or in another one, is recognised too
        last = SequenceMatcher(None, key.rpartition(".")[2], known.rpartition(".")[2]).ratio()
        return SequenceMatcher(None, key, known).ratio() + last

    near = max(keys, key=likeness)
    more = " (other arguments of the network go below model.settings)" if key.startswith("model.") else ""
    raise ValueError(f"{place}: there is no key {key!r}; did you mean {near!r}?{more}")


def _value(text: str, place: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ValueError(f"{place}: the value cannot be read; put text with special characters in quotes") from None


def _put(content: dict[str, Any], path: Sequence[str], value: Any, place: str) -> None:
    for name in path[:-1]:
        below = content.setdefault(name, {})
        if not isinstance(below, dict):
            raise ValueError(f"{place}: {name} is {below!r} in the file, not a section; leave one of the two out")
        content = below
    content[path[-1]] = value


def _describe(error: ValidationError, given_by: Mapping[str, str], path: str) -> str:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    key = next((".".join(place[:n]) for n in range(len(place), 0, -1) if ".".join(place[:n]) in given_by), "")
    # of a choice between kinds of value, each kind has its own complaint
    reasons = [
        each["msg"][0].lower() + each["msg"][1:] for each in error.errors() if each["loc"][:2] == first["loc"][:2]
    ]
    return f"{given_by.get(key, path)}: {key} is {first['input']!r}; {', or '.join(dict.fromkeys(reasons))}"
