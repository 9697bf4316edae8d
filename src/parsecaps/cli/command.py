"""What makes a function a command: options from settings, numbers as JSON, and errors in one line."""

import errno
import inspect
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NoReturn, TypeVar, cast, get_args, get_origin

import typer

from parsecaps.cli.output import check_writable, display, write_json
from parsecaps.config import Config, Section, load_config, load_settings, shipped_configs
from parsecaps.system.extras import missing
from parsecaps.system.signals import TerminatedError, sigterm_raises

S = TypeVar("S", bound=Section)
_INTERRUPTED, _TERMINATED = 130, 143


def argument(metavar: str, text: str) -> Any:
    """An argument of a command, with its help."""
    return typer.Argument(metavar=metavar, help=text)


def option(metavar: str, text: str) -> Any:
    """An option of a command, called as the parameter, with its help."""
    return typer.Option(metavar=metavar, help=text)


DeviceName = Annotated[
    str | None, typer.Option("--device", metavar="DEVICE", help="auto (a GPU where there is one), cpu or cuda.")
]
ModelFolder = Annotated[Path, argument("MODEL", "The folder of a run or of a saved model, or hf://owner/name.")]
_FILE = typer.Option("--config", metavar="YAML", help="Settings; what is not in it is chosen or has its default.")
_LINES = typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; may be repeated.")
_JSON = typer.Option("--json", metavar="FILE", help="Write the numbers to this file too.")


@dataclass(frozen=True)
class Given(Generic[S]):
    """What a command line gives: a YAML file, `--set` lines, options by their keys, and the file of `--json`."""

    kind: type[S]
    file: Path | None
    lines: list[str]
    values: dict[str, Any]
    json_file: Path | None

    def load(self, values: Mapping[str, Any] | None = None, *, default: str | None = None) -> S:
        """The settings, with these `values` beside the options; `default` is the file where none is given."""
        load = load_config if self.kind is Config else partial(load_settings, self.kind)
        if (
            self.kind is Config
            and self.file is not None
            and str(self.file) in shipped_configs()
            and self.file.is_file()
        ):
            display(f"--config {self.file}: the file of that name here, not the settings of the package", stderr=True)
        return cast(S, load(self.file or default, self.lines, values={**self.values, **(values or {})}))


class Numbers(NamedTuple):
    """What a command writes to the file of `--json`, and whether it ends with exit code 1."""

    content: dict[str, Any] | None
    failed: bool = False


def command(kind: type[Section] | None = None, *keys: str, files: bool = True) -> Callable[..., Callable[..., None]]:
    """Make a command of a function.

    Its parameter `given` becomes an option for each of these keys of the settings and, with `files`, `--config` and
    `--set`. A function that returns numbers gets `--json`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        @wraps(function)
        def run(config: Path | None = None, settings: Any = None, json_file: Path | None = None, **values: Any) -> None:
            if kind is not None:
                chosen = {key: values.pop(key.rpartition(".")[2]) for key in keys}
                there = {key: value for key, value in chosen.items() if value is not None}
                values["given"] = Given(kind, config, settings or [], there, json_file)
            with _errors_in_one_line():
                check_writable(json_file)
                found = function(**values)
                numbers = found if isinstance(found, Numbers) else Numbers(found)
                if numbers.content is not None:
                    write_json(json_file, numbers.content)
            if numbers.failed:
                raise typer.Exit(1)

        if kind not in (None, Config) and files:
            listed = ", ".join(f"`{key}`" for key in kind.model_fields)
            listed = f"Keys of a YAML file and of `--set`: {listed} (docs/settings.md)."
            run.__doc__ = f"{inspect.getdoc(function)}\n\n{listed}"
        parameters = [*_parameters(function, kind, keys, files)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _parameters(
    function: Callable[..., Any], kind: type[Section] | None, keys: Sequence[str], files: bool
) -> Iterator[inspect.Parameter]:
    signature = inspect.signature(function, eval_str=True)
    for parameter in signature.parameters.values():
        if parameter.name != "given":
            yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    for key in keys:
        yield _option(kind, key)
    if kind is not None and files:
        yield _optional("config", Path, _FILE)
        yield _optional("settings", list[str], _LINES)
    if signature.return_annotation is not None:
        yield _optional("json_file", Path, _JSON)


def _option(kind: Any, key: str) -> inspect.Parameter:
    """The option for a setting, by its type, its docstring and its default."""
    *sections, name = key.split(".")
    for section in sections:
        kind = kind.model_fields[section].annotation
    field = kind.model_fields[name]
    parts = [*_parts(field.annotation)]
    choices = [str(word) for each in parts if get_origin(each) is Literal for word in get_args(each)]
    plain = next((each for each in parts if each in (bool, int, float, Path)), str)
    several = get_origin(field.annotation) is tuple
    shown = typer.Option(
        f"--{name.replace('_', '-')}",
        metavar="|".join(choices) or ("N" if several else None),
        help=f"{field.description} May be repeated." if several else field.description,
        show_default=str(field.default) if field.default else False,
    )
    return _optional(name, list[plain] if several else plain, shown)  # type: ignore[valid-type]


def _parts(annotation: Any) -> Iterator[Any]:
    """The kinds of value that a setting takes."""
    yield annotation
    for inner in () if get_origin(annotation) is Literal else get_args(annotation):
        yield from _parts(inner)


def _optional(name: str, kind: Any, option: Any) -> inspect.Parameter:
    kind = Annotated[kind | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """A user's mistake ends in one line on stderr and exit code 2; a stop in one, and the exit code of shells."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files may hold what no encoding can print
            stream.reconfigure(errors="backslashreplace")
    try:
        with sigterm_raises():
            yield
    except KeyboardInterrupt as stopped:
        _leave(stopped)
    except ModuleNotFoundError as error:
        _fail(missing((error.name or "").partition(".")[0]))
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        _fail(f"{error.filename}: {error.strerror}; {_advice(error)}" if named else str(error))
    except ValueError as error:
        _fail(str(error))


def _advice(error: OSError) -> str:
    folder = Path(os.fsdecode(error.filename)).absolute().parent
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room; parsecaps doctor says how much is free, and parsecaps doctor --clear-cache makes some"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"choose another place; ls -ld {folder} says who may use this one"
    return f"ls {folder} says what is there"


def _leave(stopped: KeyboardInterrupt) -> NoReturn:
    """Of several processes, the first one says it. The others end with 0: Fabric kills the first if another fails."""
    if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) != "0":
        raise typer.Exit(0)
    print(str(stopped) or "stopped", file=sys.stderr)
    raise typer.Exit(_TERMINATED if isinstance(stopped, TerminatedError) else _INTERRUPTED)


def _fail(reason: str) -> NoReturn:
    print("error:", " ".join(reason.split()), file=sys.stderr)
    raise typer.Exit(2)
