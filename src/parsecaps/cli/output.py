"""What the commands share: where they print, how they fail, and the files they write."""

import errno
import io
import json
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

from parsecaps.system.extras import missing
from parsecaps.system.signals import TerminatedError, sigterm_raises
from parsecaps.types import Grid

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from parsecaps.config import Section

P = ParamSpec("P")
Chosen = TypeVar("Chosen", bound="Section")
_INTERRUPTED, _TERMINATED = 130, 143

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="YAML", help="Settings; what is not in it is chosen or has its default."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; may be repeated.")
]
DeviceName = Annotated[
    str | None, typer.Option("--device", metavar="DEVICE", help="auto (a GPU where there is one), cpu or cuda.")
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the numbers to this file too.")]
ModelFolder = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The folder of a run or of a saved model, or hf://owner/name.")
]
Risk = Annotated[
    float | None, typer.Option(help="Abstain so that about this share of the sets at most leaves out the truth.")
]


def one_line_errors(command: Callable[P, None]) -> Callable[P, None]:
    """A user's mistake ends in one line on stderr and exit code 2, not in a traceback.

    So does a stop, with the exit code that shells give to Ctrl-C and to SIGTERM.
    """

    @wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # names of files may hold what no encoding can print
                stream.reconfigure(errors="backslashreplace")
        try:
            with sigterm_raises():
                command(*args, **kwargs)
        except KeyboardInterrupt as stopped:
            _leave(stopped)
        except ModuleNotFoundError as error:
            fail(missing((error.name or "").partition(".")[0]))
        except OSError as error:
            named = error.filename is not None and error.strerror is not None
            fail(f"{error.filename}: {error.strerror}; {_advice(error)}" if named else str(error))
        except ValueError as error:
            fail(str(error))

    return guarded


def _advice(error: OSError) -> str:
    """What would do about an error of the system."""
    folder = Path(os.fsdecode(error.filename)).absolute().parent
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room; parsecaps doctor says how much is free, and parsecaps doctor --clear-cache makes some"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"choose another place; ls -ld {folder} says who may use this one"
    return f"ls {folder} says what is there"


def check_writable(path: Path | None) -> None:
    """Refuse a file that cannot be written before the work starts, not after it."""
    if path is None:
        return
    if path.is_dir():
        raise OSError(f"{path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise OSError(
            f"{path} cannot be written: the folder {path.parent} is not there; mkdir -p {path.parent} makes it"
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OSError(f"{path} cannot be written; choose another place")


def next_free(path: Path) -> Path:
    """A path that nothing is at yet: this one, or `-2`, `-3` and so on after its name."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


def model_name(model: Path) -> str:
    """What to call what is made of a model: the name of its folder, or of its repository on the hub.

    >>> model_name(Path("runs/cases-1")), model_name(Path("hf://owner/cases@v1"))
    ('cases-1', 'cases')
    """
    name = model.resolve().name
    return name.partition("@")[0] if model.parts[:1] == ("hf:",) else name


def write_json(path: Path | None, content: dict[str, Any]) -> None:
    """Write `content` where a file was asked for."""
    if path is not None:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def choose(kind: type[Chosen], config: Path | None, settings: list[str] | None, **given: Any) -> Chosen:
    """The settings of a file, of `--set` and of the options that were given."""
    from parsecaps.config import load_settings

    values = {key: value for key, value in given.items() if value is not None}
    return load_settings(kind, config, settings or [], values=values)


def display(*shown: "Grid | Table | Text | str", stderr: bool = False) -> None:
    """Print tables, and lines that only the terminal wraps."""
    out = console(stderr=stderr)
    for each in shown:
        if isinstance(each, Grid):
            from parsecaps.report.draw import draw  # not before there is a table: it takes a second

            out.print(draw(each, "terminal"))
        else:
            out.print(each, soft_wrap=isinstance(each, str))


def console(*, stderr: bool = False) -> "Console":
    """Where to print; where nobody looks (a pipe, a file), wide enough that no table is cut.

    Names in brackets or colons stay as they are: nothing that is printed is markup.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 120
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


def _leave(stopped: KeyboardInterrupt) -> NoReturn:
    """End as what was stopped.

    Of several processes that train the first one says it. The others end with 0: Fabric kills the first when another
    fails.
    """
    if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) != "0":
        raise typer.Exit(0)
    print(str(stopped) or "stopped", file=sys.stderr)
    raise typer.Exit(_TERMINATED if isinstance(stopped, TerminatedError) else _INTERRUPTED)


def fail(reason: str) -> None:
    """One line on stderr, and exit code 2."""
    print("error:", " ".join(reason.split()), file=sys.stderr)
    raise typer.Exit(2)
