"""Pages that are made from the code when the site is built: settings from their models, commands from the command line.

A page says where with a line `<!-- generated: settings -->`; `GENERATED` has what may stand there.
"""

import ast
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import typer.main
from pydantic.fields import FieldInfo

import parsecaps
from parsecaps import config
from parsecaps.cli import COMMANDS, app
from parsecaps.config import Section
from parsecaps.serve.settings import ServeConfig

TRAINING = {
    "data": config.DataSection,
    "model": config.ModelSection,
    "preparation": config.PreparationSection,
    "augmentation": config.AugmentationSection,
    "training": config.TrainingSection,
}
AFTERWARDS = {
    "evaluate": config.EvaluateConfig,
    "predict": config.PredictConfig,
    "explain": config.ExplainConfig,
    "serve": ServeConfig,
}
_BOUNDS = {"gt": "above {}", "ge": "from {}", "lt": "below {}", "le": "up to {}"}
_PLAIN = {str: "text", int: "whole number", float: "number", bool: "true, false", dict: "settings"}


def settings_page() -> str:
    """A table for each section: the key, what it takes, its default, and what it means."""
    lines = ["## Of a training", "", "For `parsecaps train`, as in `--set training.epochs=40`."]
    for name, section in TRAINING.items():
        lines += ["", f"### {name}", "", *_table(section, f"{name}.")]
    lines += ["", "## Of the other commands", "", "For the command of that name, as in `--set risk=0.1`."]
    for name, section in AFTERWARDS.items():
        lines += ["", f"### parsecaps {name}", "", *_table(section, "")]
    return "\n".join(lines)


def _table(section: type[Section], prefix: str) -> Iterator[str]:
    yield "| key | takes | default | what it is |"
    yield "| --- | --- | --- | --- |"
    for name, field in section.model_fields.items():
        cells = (f"`{prefix}{name}`", takes(field), _default(field), field.description or "")
        yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def takes(field: FieldInfo) -> str:
    """What a setting may be, in words."""
    kind = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    return ", ".join(dict.fromkeys(_words(kind)))


def _words(kind: Any) -> Iterator[str]:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is type(None):
        yield "null"
    elif origin is Annotated:
        bounds = [bound for each in arguments[1:] for bound in _bounds(each)]
        yield " ".join([*_words(arguments[0]), *bounds])
    elif origin is Literal:
        yield from (f"`{value}`" for value in arguments)
    elif origin is tuple:
        inner = ", ".join(dict.fromkeys(word for each in arguments if each is not ... for word in _words(each)))
        yield f"list of {inner}" if ... in arguments else f"{len(arguments)} numbers"
    elif origin is dict:
        yield _PLAIN[dict]
    elif origin is Union or arguments:
        for each in arguments:
            yield from _words(each)
    else:
        yield _PLAIN.get(kind, "file")


def _bounds(constraint: Any) -> Iterator[str]:
    if isinstance(constraint, FieldInfo):
        for each in constraint.metadata:
            yield from _bounds(each)
    for name, words in _BOUNDS.items():
        if isinstance(constraint, annotated_types.BaseMetadata) and hasattr(constraint, name):
            value = getattr(constraint, name)
            yield words.format("2^63" if value == 2**63 else f"{value:,}" if isinstance(value, int) else f"{value:g}")


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is None or value in ("", (), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(f'{each:g}' for each in value)}]`"
    if isinstance(value, int) and value >= 10**6:
        return f"{value // 10**6:,} MB"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def commands_page() -> str:
    """Every command with its help, its arguments and its options, in the order of `parsecaps --help`."""
    group: Any = typer.main.get_command(app)
    lines: list[str] = []
    for panel, commands in COMMANDS.items():
        lines += [f"## {panel}", ""]
        names = [function.__name__ for function in commands]
        for name in [*names, *(["data"] if panel == "Data" else [])]:
            command = group.commands[name]
            below = getattr(command, "commands", {"": command})
            for second, each in below.items():
                lines += _command(f"parsecaps {name} {second}".strip(), each)
    return re.sub(r"`?docs/(\w+)\.md`?", r"[\1](\1.md)", "\n".join(lines))


def _command(name: str, command: Any) -> Iterator[str]:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    options = [parameter for parameter in shown if parameter.opts[0].startswith("-") and parameter.name != "help"]
    arguments = [parameter for parameter in shown if not parameter.opts[0].startswith("-")]
    usage = " ".join([name, *(_metavar(each) for each in arguments), *(["[OPTIONS]"] if options else [])])
    yield from (f"### {name}", "", "```text", usage, "```", "", inspect.cleandoc(command.help or ""), "")
    if arguments or options:
        yield "| argument or option | what it is | default |"
        yield "| --- | --- | --- |"
    for each in arguments:
        yield f"| `{_metavar(each)}` | {_cell(getattr(each, 'help', '') or '')} | |"
    for each in options:
        names = ", ".join(f"`{name}`" for name in (*each.opts, *each.secondary_opts))
        yield f"| {names}{_value(each)} | {_cell(getattr(each, 'help', '') or '')} | {_option_default(each)} |"
    yield ""


def _metavar(parameter: Any) -> str:
    return parameter.metavar or (parameter.name or "").upper()


def _value(option: Any) -> str:
    if getattr(option, "is_flag", False):
        return ""
    if choices := getattr(option.type_descriptor, "choices", None):
        return " " + ", ".join(f"`{choice}`" for choice in choices)
    return f" `{_cell(option.metavar)}`" if option.metavar else ""


def _option_default(option: Any) -> str:
    value = option.show_default if isinstance(option.show_default, str) else option.default
    plain = isinstance(value, int | float | str) and not isinstance(value, bool)
    return f"`{value}`" if plain and value != "" else ""


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def python_page() -> str:
    """The names of the package, each where it is defined, for mkdocstrings."""
    functions_first = sorted(parsecaps.__all__, key=lambda name: (name[0].isupper(), name))
    return "\n".join(f"::: parsecaps.{_module(name)}.{name}\n" for name in functions_first)


def _module(name: str) -> str:
    return str(getattr(parsecaps, name).__module__).removeprefix("parsecaps.")


def source_of(name: str) -> str:
    """The code of a function or a method without its docstring, as in `parsecaps.nn.saa.PConvCaps.forward`."""
    found = pkgutil.resolve_name(name)
    lines = textwrap.dedent(inspect.getsource(found)).rstrip().splitlines()
    first = ast.parse("\n".join(lines)).body[0]
    assert isinstance(first, ast.FunctionDef)
    if ast.get_docstring(first) is not None:
        about = first.body[0]
        del lines[about.lineno - 1 : about.end_lineno]
    return "\n".join(lines)


GENERATED: dict[str, Callable[[], str]] = {
    "settings": settings_page,
    "commands": commands_page,
    "python": python_page,
}
