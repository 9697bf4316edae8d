"""Every block of code on the pages is run, or says why not; every command line is one that the parser knows."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parsecaps.cli import app
from tests.site.blocks import (
    DOCS,
    LANGUAGES,
    PAGES,
    Block,
    blocks,
    commands,
    inline_commands,
    mistake,
    needs,
    own_arguments,
)
from tests.site.example_files import make

# What makes a command quick; a setting that the page gives itself stays.
QUICK = {"train": ("model.preset=tiny", "training.epochs=1")}
MEASURED = {"results.md"}  # its commands need published data and hours
RUNNABLE = ("sh", "console", "python")
RUN = [
    page
    for page in DOCS
    if page.name not in MEASURED and any(each.not_run is None and each.language in RUNNABLE for each in blocks(page))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_is_known(page: Path) -> None:
    wrong = []
    for block in blocks(page):
        if block.language not in LANGUAGES:
            wrong.append(
                f"line {block.line}: the language {block.language!r} is none of {', '.join(sorted(LANGUAGES))}"
            )
        if block.language in ("sh", "console"):
            for command in commands(block):
                arguments = own_arguments(command)
                if arguments is not None and (reason := mistake(arguments)):
                    wrong.append(f"line {block.line}: {' '.join(command)}: {reason}")
    for command in inline_commands(page):
        if reason := mistake(command[1:], whole=False):
            wrong.append(f"{' '.join(command)}: {reason}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    make(tmp_path, needs(page))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    names: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks(page):
        if block.language == "text" and block.next_to_last and block.not_run is None and printed is not None:
            assert matches(block.text, printed), f"{page.name}, line {block.line}: it prints\n{printed}"
        printed = None
        if block.not_run is None and block.language == "python":
            capsys.readouterr()
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
            printed = capsys.readouterr().out
        elif block.not_run is None and block.language in ("sh", "console"):
            printed = typed(block)


def typed(block: Block) -> str:
    """Type the commands of a block, and give what they print."""
    printed = ""
    for command in commands(block):
        place = f"{block.page.name}, line {block.line}: {' '.join(command)}"
        assert command[0] == "parsecaps", f"{place}: only parsecaps is run; say before the block why it is not"
        extra = [
            word
            for setting in QUICK.get(command[1], ())
            if not any(each.startswith(setting.partition("=")[0]) for each in command)
            for word in ("--set", setting)
        ]
        result = CliRunner().invoke(app, [*command[1:], *extra])
        assert result.exit_code == 0, f"{place}\n{result.output}\n{result.exception!r}"
        printed += result.output
    return printed


def matches(shown: str, printed: str) -> bool:
    """Whether the lines shown are among those printed, next to each other; `...` stands for anything."""
    parts = [r".*?".join(map(re.escape, part.split("..."))) for part in plain(shown).split("\n")]
    return re.search(r"\n".join(parts), plain(printed), re.DOTALL) is not None


def plain(text: str) -> str:
    """The text without blank lines and repeated spaces."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def test_what_is_shown_is_compared() -> None:
    assert matches("a  1\n...\nc", "x\na 1\nb\nb\nc\n")
    assert matches("to ... px", "to 64 px")
    assert not matches("a\nc", "a\nb\nc")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("trane my-images", "no command 'trane'"),
        ("train my-images --epochs 3", "NoSuchOption"),
        ("train my-images --set training.epoch=3", "did you mean 'training.epochs'"),
        ("predict", "MissingParameter"),
    ],
)
def test_a_wrong_command_is_seen(line: str, says: str) -> None:
    assert says in str(mistake(line.split()))


def test_a_right_command_is_not() -> None:
    assert mistake(["train", "my-images", "--set", "training.epochs=3"]) is None
    assert mistake(["data", "check", "cases.csv", "--page", "x.html"]) is None
    assert mistake(["explain"], whole=False) is None
