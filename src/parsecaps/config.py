"""Settings from a YAML file and from `key=value` on the command line; `parsecaps.settings` has what there is.

The configuration that a run keeps has no `auto` left. An unknown key is an error that names the nearest one.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from difflib import SequenceMatcher
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from parsecaps.files.untrusted import parse_yaml, shown
from parsecaps.settings import (
    LARGEST_IMAGE,
    SMALLEST_IMAGE,
    AugmentationSection,
    Auto,
    Config,
    DataSection,
    Device,
    EvaluateConfig,
    ExplainConfig,
    OptimizerName,
    PredictConfig,
    PreparationSection,
    Risk,
    ScheduleName,
    Section,
    TrainingSection,
)

__all__ = [
    "LARGEST_IMAGE",
    "SMALLEST_IMAGE",
    "AugmentationSection",
    "Auto",
    "Config",
    "DataSection",
    "Device",
    "EvaluateConfig",
    "ExplainConfig",
    "OptimizerName",
    "PredictConfig",
    "PreparationSection",
    "Risk",
    "ScheduleName",
    "Section",
    "TrainingSection",
    "known_keys",
    "load_config",
    "load_settings",
    "number",
    "shipped_configs",
]

S = TypeVar("S", bound="Section")
_SHIPPED = files("parsecaps") / "configs"
_OPEN = "model.settings"  # what lies below is the model's own business
_LONGEST_KEY = 100  # characters of a key that an error shows
_REMOVED = {"training.mask_weight": 0.0, "training.measure_weight": 0.0}  # since 0.1, and what they were if off


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
        if below is None:
            raise ValueError(f"{place}: {name} is off (null) in the file; turn it on first: --set {name}={{}}")
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
