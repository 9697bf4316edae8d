"""The blocks of code on the pages, and what a shell would make of them.

`sh` is typed in a shell, `console` has commands after `$ ` and what they print, `python` runs, and `text` after one of
these is what it prints. A comment before a block says why it is not run; a comment anywhere on a page says which
example files it needs:

    <!-- not run: needs a GPU -->
    <!-- needs: my-run image.png -->
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer.main

from parsecaps.cli import app
from parsecaps.config import Config, EvaluateConfig, ExplainConfig, PredictConfig, load_settings
from parsecaps.serve.settings import ServeConfig

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, *sorted((ROOT / "studies").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
LANGUAGES = {"sh", "console", "python", "text", "yaml", "json"}
SETTINGS: dict[str, Any] = {
    **dict.fromkeys(("train", "demo", "pretrain"), Config),
    "evaluate": EvaluateConfig,
    "predict": PredictConfig,
    "explain": ExplainConfig,
    "serve": ServeConfig,
}

_FENCE = re.compile(r"^```(\w*)[ ]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_WHY = re.compile(r"<!-- not run: (.+?) -->\s*\Z")
_NEEDS = re.compile(r"^<!-- needs: (.+?) -->$", re.MULTILINE)
_INLINE = re.compile(r"`(parsecaps [^`\n]+)`")
_ENDS = {"&&", ";", "|", "||", "&", "do"}


@dataclass(frozen=True)
class Block:
    """A block of a page: its line, its language, its text, why it is not run, whether it is next to the last."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None
    next_to_last: bool


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found, end = [], 0
    for match in _FENCE.finditer(text):
        before, between = text[: match.start()], text[end : match.start()]
        why, end = _WHY.search(before), match.end()
        line = before.count("\n") + 1
        found.append(Block(page, line, match[1], match[2], why[1] if why else None, not between.strip()))
    return found


def needs(page: Path) -> list[str]:
    """The example files that a page needs."""
    return [name for line in _NEEDS.findall(page.read_text(encoding="utf-8")) for name in line.split()]


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a block as words, without comments, variables, and the output in a console."""
    text = block.text
    if block.language == "console":
        text = re.sub(r"\\\n\s*", " ", text)
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("$ "))
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        yield from _split(line)


def inline_commands(page: Path) -> Iterator[list[str]]:
    """The commands of parsecaps that stand in a sentence or a table."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for found in _INLINE.findall(text):
        yield from _split(found)


def _split(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&;|")
    lexer.whitespace_split, lexer.commenters = True, "#"
    command: list[str] = []
    for word in [*lexer, ";"]:
        if word not in _ENDS:
            command += [] if re.fullmatch(r"\$[A-Z]+", word) else [word]  # $B holds several words
        elif command:
            while command and re.fullmatch(r"[A-Z_]+=.*", command[0]):
                command = command[1:]
            yield command
            command = []


def own_arguments(command: list[str]) -> list[str] | None:
    """What is given to parsecaps, if the command is one of it, by `python -m` and `torchrun` too."""
    if command[:1] == ["parsecaps"]:
        return command[1:]
    if "-m" in command and command[command.index("-m") + 1 :][:1] == ["parsecaps"]:
        return command[command.index("-m") + 2 :]
    return None


def mistake(arguments: list[str], *, whole: bool = True) -> str | None:
    """What the parser says against a command; `whole` is False where arguments may be left out."""
    command: Any = typer.main.get_command(app)
    name = ""
    while arguments and hasattr(command, "commands"):
        if arguments[0] in ("--help", "--version", "--install-completion", "--show-completion", "COMMAND"):
            return None
        name, arguments = arguments[0], arguments[1:]
        if name not in command.commands:
            return f"there is no command {name!r}"
        command = command.commands[name]
    if hasattr(command, "commands") or "--help" in arguments:
        return None
    try:
        context = command.make_context(name, list(arguments))
    except Exception as error:  # of click, which Typer has a copy of
        missing = type(error).__name__ in ("MissingParameter", "BadOptionUsage")
        return None if missing and not whole else f"{type(error).__name__}: {error}"
    kind, lines = SETTINGS.get(name), context.params.get("settings") or []
    try:
        if kind is not None:
            load_settings(kind, None, [line for line in lines if "..." not in line and "$" not in line])
    except ValueError as error:
        return str(error)
    return None
