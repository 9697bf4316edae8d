"""Files of a run or a model, which may come from a stranger: read within bounds, or refused in one line.

No code from a file is run, and sizes that it declares are checked before memory is allocated.
"""

import json
import math
import reprlib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

if TYPE_CHECKING:
    import numpy as np

T = TypeVar("T")
_LARGEST_YAML = 1_000_000  # bytes; settings are a few thousand
_FREE, _RATIO = 2**24, 20  # an archive may unpack to 16 MB, or to so many times its size: measurements hardly shrink


class _WithoutAliases(yaml.SafeLoader):
    """YAML in which each value is written where it stands: a few aliases of aliases would be billions of values."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has an alias; write the value itself")
        return super().compose_node(parent, index)


def parse_yaml(text: str) -> Any:
    """The content of YAML text; aliases, and more text or nesting than settings have, are a ValueError.

    >>> parse_yaml("a: [1, 2]")
    {'a': [1, 2]}
    """
    if len(text) > _LARGEST_YAML:
        raise ValueError(f"{len(text):,} characters, more than settings have")
    try:
        return yaml.load(text, _WithoutAliases)
    except (yaml.YAMLError, RecursionError, OverflowError, ValueError) as error:
        raise ValueError(" ".join(str(error).split())) from None


def read_document(path: Path, advice: str) -> dict[str, Any]:
    """The object that a JSON file holds; `advice` says what to do about one that holds none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}); {advice}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds {shown(content)}, not an object; {advice}")
    return content


def checked(kind: type[T], value: Any, path: Path | str, advice: str, *, strict: bool = False) -> T:
    """The value as the kind that a file should hold, such as a dataclass, or an error of one line.

    A dictionary may stand for a dataclass, a list for a tuple. `strict` values are not converted; NaN is refused.
    """
    exactly = ConfigDict(strict=True, allow_inf_nan=False)
    try:
        return TypeAdapter(kind, config=exactly if strict else None).validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))[:80] or "it"
        reason = first["msg"][:1].lower() + first["msg"][1:]
        words = {
            "missing": f"{place} is missing",
            "value_error": str(first.get("ctx", {}).get("error", reason)),  # what the kind itself says
        }
        what = words.get(first["type"], f"{place} is {shown(first['input'])}: {reason}")
        raise ValueError(f"{path}: {what}; {advice}") from None


def shown(value: Any) -> str:
    """A value in an error, however long it is.

    >>> shown([1, 2, 3] * 1000)
    '[1, 2, 3, 1, 2, 3, ...]'
    """
    short = reprlib.Repr()
    short.maxstring = short.maxother = 100
    return " ".join(short.repr(value).split())


def read_arrays(path: Path) -> "dict[str, np.ndarray]":
    """The arrays of numbers of an .npz file; a ValueError if it is none, or would unpack to far more than it is."""
    import numpy as np

    arrays, allowed = {}, max(_FREE, _RATIO * path.stat().st_size)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if (total := sum(each.file_size for each in members)) > allowed:
                raise ValueError(f"it would unpack to {total:,} bytes")
            for member in members:
                name = member.filename.removesuffix(".npy")
                with archive.open(member) as file:
                    if (version := np.lib.format.read_magic(file)) != (1, 0):
                        raise ValueError(f"{shown(name)} is of the version {version}")
                    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
                    size = dtype.itemsize * math.prod(map(int, shape))
                    if dtype.kind not in "biuf" or min(shape, default=1) < 0 or size > member.file_size:
                        raise ValueError(f"{shown(name)} says it is {dtype} {shown(shape)}")
                with archive.open(member) as file:
                    arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # whatever a damaged file makes of the readers
        raise ValueError(" ".join(str(error).split())) from None
    return arrays
