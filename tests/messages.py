"""The messages that tests provoke, kept in one file for each room: `pytest --update-messages` writes `messages.txt`."""

import difflib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

TESTS = Path(__file__).parent
VARIES = {  # the folder of a test, below that of all; a port; a digest
    r"TMP/[^/\s'\",;:()]+": "TMP",
    r"127\.0\.0\.1:\d+": "127.0.0.1:PORT",
    r"\b[0-9a-f]{12,}\b": "DIGEST",
}
LIBRARY = r"\((?!it ).*\)"  # in brackets after our words: those of another package, which change with its version


@contextmanager
def refused(
    kind: type[BaseException] | tuple[type[BaseException], ...], hide: str = ""
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """An error of this kind, in one line that is the one in `messages.txt`; `hide` is a pattern of what varies."""
    with pytest.raises(kind) as error:
        yield error
    text = str(error.value)
    assert "\n" not in text, text
    message(text, hide=hide)


def message(*texts: object, containing: str = "", hide: str = "") -> None:
    """Compare each line of the texts, or those that contain something, with the next one of this test."""
    __tracebackhide__ = True
    assert Messages.plugin is not None, "messages are compared within a test"
    lines = [line for text in texts for line in str(text).splitlines() if line and containing in line]
    assert lines, f"no line contains {containing!r}: {texts}"
    for line in lines:
        assert not line.startswith("Traceback"), texts
        Messages.plugin.compare(re.sub(hide, "…", line) if hide else line)


def read(room: Path) -> dict[str, list[str]]:
    """The messages of each test: lines with the names of those that give the same, and a line for each message."""
    stored: dict[str, list[str]] = {}
    path = room / "messages.txt"
    for block in path.read_text(encoding="utf-8").strip("\n").split("\n\n") if path.is_file() else []:
        lines = block.split("\n")
        messages = [line[4:] for line in lines if line.startswith("    ")]
        stored |= {name: messages for name in lines if not name.startswith("    ")}
    return stored


def write(room: Path, stored: dict[str, list[str]]) -> None:
    blocks: dict[tuple[str, ...], list[str]] = {}
    for name, messages in sorted(stored.items()):
        blocks.setdefault(tuple(messages), []).append(name)
    texts = [
        "\n".join([*names, *(f"    {each}" for each in messages)]) for messages, names in blocks.items() if messages
    ]
    if texts:
        (room / "messages.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    else:
        (room / "messages.txt").unlink(missing_ok=True)


class Messages:
    """Compares messages while tests run, or keeps them to be written at the end."""

    plugin: ClassVar["Messages | None"] = None

    def __init__(self, update: bool) -> None:
        self.update = update
        packages = Path(pytest.__file__).parents[1]
        self.places = {str(TESTS.parent): "CHECKOUT", str(packages): "PACKAGES", str(packages.resolve()): "PACKAGES"}
        if os.environ.get("PARSECAPS_DATA"):
            self.places[os.environ["PARSECAPS_DATA"].rstrip("/")] = "DATA"
        self.stored: dict[Path, dict[str, list[str]]] = {}
        self.unused: dict[Path, list[str]] = {}
        self.test = (TESTS, "")
        self.seen: list[str] = []

    def compare(self, line: str) -> None:
        __tracebackhide__ = True
        for place, mark in sorted(self.places.items(), reverse=True):
            line = line.replace(place, mark)
        for varies, mark in VARIES.items():
            line = re.sub(varies, mark, line)
        line = line.encode("utf-8", "backslashreplace").decode().strip()
        if self.seen[-1:] == [line]:  # once is enough for a reader
            return
        room, test = self.test
        stored = self.stored[room].get(test, [])[len(self.seen) :][:1]
        self.seen.append(line)
        if stored != [line] and not self.update:
            difference = "\n".join(difflib.ndiff(stored, [line]))
            pytest.fail(f"{test} gives another message than {room.name}/messages.txt:\n{difference}\n{ADVICE}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Read the rooms' files, and find what no test uses any more where all tests of a file were collected."""
        names: dict[Path, set[str]] = {}
        for room, name in filter(None, map(_place, items)):
            names.setdefault(room, set()).add(name)
        self.stored = {room: read(room) for room in names}
        if config.option.keyword or config.option.markexpr or config.getoption("lf", False):
            return
        in_part = [Path(argument.partition("::")[0]).resolve() for argument in config.args if "::" in argument]
        for room, those in names.items():
            files = {name.partition("::")[0] for name in those}
            whole = {file for file in files if room / file not in in_part}
            for name in sorted(self.stored[room].keys() - those):
                file = name.partition("::")[0]
                if file in whole or not (room / file).is_file():
                    self.unused.setdefault(room, []).append(name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        place = _place(item)
        if place is None:
            return (yield)
        self.test, self.seen, Messages.plugin = place, [], self
        try:
            result = yield
        finally:
            Messages.plugin = None
        room, test = place
        if self.update:
            self.stored[room][test] = self.seen
        elif unused := self.stored[room].get(test, [])[len(self.seen) :] or self.unused.pop(room, []):
            pytest.fail("\n".join([f"no test gives this of {room.name}/messages.txt any more:", *unused, ADVICE]))
        return result

    def pytest_sessionfinish(self) -> None:
        if self.update:
            for room, stored in self.stored.items():
                write(room, {name: lines for name, lines in stored.items() if name not in self.unused.get(room, [])})


ADVICE = "If the new text is right, run these tests again with --update-messages."


def _place(item: pytest.Item) -> tuple[Path, str] | None:
    """The room of a test, and its name in the room's file."""
    if not item.path.is_relative_to(TESTS):
        return None
    folders = item.path.relative_to(TESTS).parts[:-1]
    room = TESTS / folders[0] if folders else TESTS
    return room, f"{item.path.relative_to(room).as_posix()}::{item.nodeid.partition('::')[2]}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-messages", action="store_true", help="write each room's messages.txt")


def pytest_configure(config: pytest.Config) -> None:
    update = config.getoption("update_messages")
    if update and config.getoption("numprocesses", None):
        raise pytest.UsageError("--update-messages needs one process; add -n 0")
    config.pluginmanager.register(Messages(update), "messages")


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> None:
    """Messages have TMP in place of it."""
    messages = pytestconfig.pluginmanager.get_plugin("messages")
    assert messages is not None
    messages.places[str(tmp_path_factory.getbasetemp())] = "TMP"
