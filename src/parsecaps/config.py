"""Every setting: plain values in sections, from a YAML file and from `key=value` on the command line.

`Config` is for a training run; `EvaluateConfig`, `PredictConfig` and `ExplainConfig` are for what follows it. `auto`
means that the value is chosen from the data (`training.choose`); the configuration that a run keeps has no `auto` left.
An unknown key is an error that names the nearest one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from difflib import SequenceMatcher
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

from parsecaps.stored import parse_yaml, shown

S = TypeVar("S", bound="Section")
_SHIPPED = files("parsecaps") / "configs"
_OPEN = "model.settings"  # what lies below is the model's own business
SMALLEST_IMAGE, LARGEST_IMAGE = 28, 4096  # pixels a side
_LONGEST_KEY = 100  # characters of a key that an error shows
_REMOVED = {"training.mask_weight": 0.0, "training.measure_weight": 0.0}  # since 0.1, and what they were if off

Auto = Literal["auto"]
Balance = Literal["none", "weights", "sampling"]
Precision = Literal[32, "bf16"]
OptimizerName = Literal["muon", "adamw", "adam", "sgd", "rmsprop"]
ScheduleName = Literal["cosine", "steps"]
Device = Literal["auto", "cpu", "cuda"]
Risk = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
LossWeight = Annotated[float, Field(ge=0)] | Auto  # auto: what the model was published with (`losses` of its class)
Fraction = Annotated[float, Field(ge=0, le=1)]
Margins = tuple[Fraction, Fraction, Annotated[float, Field(ge=0)]]  # long enough, short enough, weight of the others
ImageSize = Annotated[int, Field(ge=SMALLEST_IMAGE, le=LARGEST_IMAGE)]


class Section(BaseModel):
    """A group of settings; no other keys than these, and no change after it is made."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, allow_inf_nan=False)


class DataSection(Section):
    """What to train on, and who trains, chooses and tests: see `parsecaps data check` and `parsecaps data split`.

    With `folds`, every patient is tested once: that many runs are trained, or only the run number `fold`. `also` are
    further data sets to learn from, each with classes of its own; `licences` are those of all, in their order.
    """

    path: str = ""
    source: str | None = None
    also: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    split: str | None = None
    test_fold: tuple[int, ...] = ()
    test_part: Literal["val", "test"] | None = None
    folds: int = Field(default=0, ge=0, le=1000)
    fold: PositiveInt | None = None
    val: float = Field(default=0.15, ge=0, lt=1)
    test: float = Field(default=0.2, ge=0, lt=1)
    seed: Seed = 0
    skip_bad: bool = False
    allow_leaks: bool = False


class ModelSection(Section):
    """The network: `kind` is one of `models.MODELS`, `settings` are any other arguments of it, as `dropout: 0.2`.

    `start` is where its first weights come from: a run, a model folder, or the name of weights; new ones without.
    """

    kind: str = "ParseCaps"
    start: str | None = None
    preset: str = "auto"
    image_size: ImageSize | Auto = "auto"
    head: Literal["parallel", "bottleneck"] = "parallel"
    num_concepts: Annotated[int, Field(ge=0, le=10_000)] | Auto = "auto"
    settings: dict[str, Any] = {}


class PreparationSection(Section):
    """How an image becomes a square, as in `data.preparation.Preparation`; its size is the model's."""

    channels: Literal[1, 3] | Auto = "auto"
    square: Literal["pad", "crop", "stretch"] = "pad"
    scaling: Literal["range", "percentile"] = "range"
    centre: float = Field(default=1.0, gt=0, le=1)


class AugmentationSection(Section):
    """Random changes of the training images, as in `data.augment.Augmentation`; `augmentation: null` turns all off."""

    flip: bool | Auto = "auto"
    rotation: Annotated[float, Field(ge=0, le=360)] | Auto = "auto"
    scale: float = Field(default=0.1, ge=0, lt=1)
    shear: float = Field(default=0.05, ge=0, le=100)
    shift: float = Field(default=0.03, ge=0, le=100)
    padding: int = Field(default=0, ge=0, le=LARGEST_IMAGE)
    gamma: float = Field(default=0.25, ge=0, le=100)
    contrast: float = Field(default=0.15, ge=0, le=100)
    brightness: float = Field(default=0.05, ge=0, le=100)
    colour: Annotated[float, Field(ge=0, lt=1)] | Auto = "auto"
    resampling: Literal["bilinear", "bicubic"] | Auto = "auto"


class TrainingSection(Section):
    """How to train. `batch_size` is that of all processes together; `patience`, `ema` and the weights are off at 0."""

    epochs: PositiveInt | Auto = "auto"
    batch_size: PositiveInt | Auto = "auto"
    optimizer: OptimizerName = "muon"
    learning_rate: float = Field(default=1.5e-3, gt=0)
    start_rate: float = Field(default=1.0, ge=0, le=1)
    weight_decay: float = Field(default=0.01, ge=0)
    warm_up_epochs: NonNegativeInt = 5
    schedule: ScheduleName = "cosine"
    decay: float = Field(default=0.5, gt=0, le=1)
    decay_epochs: float = Field(default=10.0, gt=0)
    lowest_rate: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    mixup: Annotated[float, Field(ge=0)] | Auto = "auto"
    classification_weight: LossWeight = "auto"
    presentation_weight: LossWeight = "auto"
    triplet_weight: LossWeight = "auto"
    reconstruction_weight: LossWeight = "auto"
    concept_cross_entropy_weight: LossWeight = "auto"
    semantic_weight: LossWeight = "auto"
    counter_weight: LossWeight = "auto"
    uniqueness_weight: LossWeight = "auto"
    coherence_weight: LossWeight = "auto"
    margin_weight: LossWeight = "auto"
    margins: Margins = (0.9, 0.1, 0.5)
    class_reconstruction_weight: LossWeight = "auto"
    attribute_weight: LossWeight = "auto"
    image_reconstruction_weight: LossWeight = "auto"
    prototype_weight: LossWeight = "auto"
    prototype_warm_up: NonNegativeInt = 100
    prototype_push: PositiveInt = 10
    diversity_weight: float = Field(default=0.3, ge=0)
    consistency_weight: Annotated[float, Field(ge=0)] | Auto = "auto"
    class_balance: Balance | Auto = "auto"
    concept_balance: float = Field(default=0.0, ge=0, le=1)
    patience: NonNegativeInt | Auto = "auto"
    keep: Literal["best", "last"] | Auto = "auto"
    ema: Annotated[float, Field(ge=0, lt=1)] | Auto = "auto"
    precision: Precision | Auto = "auto"
    compile: bool = False
    devices: int = Field(default=1, ge=1, le=64)
    seed: Seed = 0
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


class EvaluateConfig(Section):
    """How to score runs: on a part of their own data (`auto`: test, or validation without one), or on other `data`.

    `resamples` are those behind the intervals; at each of `risks`, prediction sets are measured. With several `views`
    the answers to each image and to random changes of it, as in training, are averaged. `device` is a GPU where there
    is one, if `auto`.
    """

    part: Literal["auto", "test", "val", "train"] = "auto"
    data: str | None = None
    resamples: NonNegativeInt = 1000
    risks: tuple[Risk, ...] = (0.05, 0.1, 0.2)
    views: PositiveInt = 1
    device: Device = "auto"


class PredictConfig(Section):
    """How to predict: the risk at which to abstain, how many images the model sees at a time, and on which device."""

    risk: Risk | None = None
    batch_size: PositiveInt = 32
    device: Device = "auto"


class ExplainConfig(Section):
    """How to explain: see docs/explain.md for what each key means."""

    risk: Risk | None = None
    method: Literal["routes", "grad-cam", "integrated-gradients", "occlusion"] = "routes"
    trees: NonNegativeInt = 3
    strict: bool = False
    traversals: NonNegativeInt = 0
    limit: PositiveInt = 100


def number(value: float | Auto) -> float:
    """A setting that is no longer `auto`.

    >>> number(0.4)
    0.4
    """
    if isinstance(value, str):
        raise ValueError("a setting is still auto; choose it first (training.choose)")
    return value


def load_config(path: str | Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """The settings of a training run: the defaults, changed by a YAML file, changed by `section.key=value` lines.

    Instead of a file, the name of one that the package has (`shipped_configs`) will do.

    >>> load_config(None, ["training.epochs=5", "augmentation.flip=false"]).training.epochs
    5
    >>> load_config(None, ["training.epoch=5"])
    Traceback (most recent call last):
    ValueError: --set training.epoch=5: there is no key 'training.epoch'; did you mean 'training.epochs'?
    """
    with ExitStack() as stack:
        if path is not None and not Path(path).exists() and not Path(path).suffix:
            if str(path) not in shipped_configs():
                names = ", ".join(shipped_configs())
                raise FileNotFoundError(f"{path} is missing; give a YAML file, or one of {names}")
            path = stack.enter_context(as_file(_SHIPPED / f"{path}.yaml"))
        return load_settings(Config, path, overrides)


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
    """Settings of a kind: those of `base` or the defaults, changed by a file, by `key=value` lines, and by `values`.

    The lines are what `--set` takes, their values read as YAML; `values` are Python's own, under the same keys.

    >>> load_settings(EvaluateConfig, None, ["resamples=50"], values={"part": "val"}).resamples
    50
    """
    content = {} if base is None else base.model_dump()
    given_by: dict[str, str] = {}
    if path is not None:
        content = _without_removed(_read(Path(path)), str(path))
        given_by = {key: str(path) for key in _paths(content)}
        for key in given_by:
            _check_known(kind, key, str(path))
    lines = [_parsed(line) for line in overrides]
    lines += [(key, value, f"{key}={value}") for key, value in _flat(values or {})]
    for key, value, place in lines:
        _check_known(kind, key, place)
        _put(content, key.split("."), value, place)
        given_by[key] = place
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise ValueError(_describe(error, given_by, str(path))) from None


def known_keys(kind: type[Section] = Config) -> list[str]:
    """Every key with its section, as in `training.epochs`; `model.settings` stands for whatever is below it."""
    keys = []
    for name, field in kind.model_fields.items():
        kinds = [each for each in (field.annotation, *get_args(field.annotation)) if isinstance(each, type)]
        section = next((each for each in kinds if issubclass(each, Section)), None)
        keys += [name, *(f"{name}.{key}" for key in section.model_fields)] if section else [name]
    return keys


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; give a YAML file")
    try:
        content = parse_yaml(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid YAML ({error}); mend it") from None
    content = {} if content is None else content
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no settings; write a line `key: value` for each, in its section if it has one")
    return content


def _without_removed(content: dict[str, Any], path: str) -> dict[str, Any]:
    """Leave out settings that an older version wrote and that were off; one that was on cannot be followed."""
    for key, off in _REMOVED.items():
        section, _, name = key.partition(".")
        values = content.get(section)
        if isinstance(values, dict) and (value := values.pop(name, off)) != off:
            raise ValueError(f"{path}: {key} is {shown(value)}, which this version cannot do; set it to {off:g}")
    return content


def _paths(content: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """The dotted names of all sections and values."""
    for name, value in content.items():
        path = f"{prefix}{name}"
        yield path
        if isinstance(value, Mapping) and path != _OPEN:
            yield from _paths(value, f"{path}.")


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
    return key.strip(), _value(text, place), place


def _check_known(kind: type[Section], key: str, place: str) -> None:
    keys, key = known_keys(kind), key if len(key) < _LONGEST_KEY else f"{key[:_LONGEST_KEY]}..."
    if key in keys or (_OPEN in keys and key.startswith(f"{_OPEN}.")):
        return

    def likeness(known: str) -> float:  # a key without its section, or in another one, is recognised too
        last = SequenceMatcher(None, key.rpartition(".")[2], known.rpartition(".")[2]).ratio()
        return SequenceMatcher(None, key, known).ratio() + last

    near = max(keys, key=likeness)
    below = _OPEN in keys and key.startswith("model.")
    more = f" (other arguments of the network go below {_OPEN})" if below else ""
    raise ValueError(f"{place}: there is no key {key!r}; did you mean {near!r}?{more}")


def _value(text: str, place: str) -> Any:
    try:
        return parse_yaml(text)
    except ValueError:
        raise ValueError(f"{place}: the value cannot be read; put text with special characters in quotes") from None


def _put(content: dict[str, Any], path: Sequence[str], value: Any, place: str) -> None:
    for name in path[:-1]:
        below = content.setdefault(name, {})
        if not isinstance(below, dict):
            raise ValueError(f"{place}: {name} is {shown(below)} in the file, not a section; leave one of the two out")
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
    return f"{given_by.get(key, path)}: {key} is {shown(first['input'])}; {', or '.join(dict.fromkeys(reasons))}"
