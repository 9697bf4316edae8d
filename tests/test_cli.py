"""The command line: its help, and what single commands print and write."""

import json
import os
import subprocess
import sys
from pathlib import Path

import parsecaps
from parsecaps.cli import COMMANDS, FIRST, app
from tests.command import run
from tests.messages import message


def test_help_does_not_load_torch() -> None:
    code = """
import sys
from parsecaps.cli import COMMANDS, FIRST, app
try:
    app(["--help"], prog_name="parsecaps")
except SystemExit as end:
    assert end.code in (0, None), end.code
assert "torch" not in sys.modules
"""
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    for command in ("summary", "bench", "demo"):
        assert command in done.stdout


def test_the_help_has_first_what_people_need_first() -> None:
    """The five verbs in order under their own heading, then all the others; and how to get completion."""
    names = [command.__name__ for command in COMMANDS[FIRST]]
    assert names == ["demo", "train", "evaluate", "predict", "explain"]
    done = subprocess.run(
        [sys.executable, "-m", "parsecaps"],
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    text = done.stdout + done.stderr
    shown = [line.split()[1] for line in text[text.index(FIRST) :].splitlines() if line.startswith("│ ")]
    assert shown[:5] == names
    commands = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    assert set(shown) == {*commands, "data"}
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "--install-completion" in text
    assert "parsecaps demo --quick" in text


def test_the_shell_completes_commands_and_options() -> None:
    code = "from parsecaps.cli import app; app(prog_name='parsecaps')"
    for words, number, found in (("parsecaps tr", "1", "train"), ("parsecaps doctor --cl", "2", "--clear-cache")):
        ask = {"_PARSECAPS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": number}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **ask},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.stdout.split() == [found], done.stderr


def test_version() -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"parsecaps {parsecaps.__version__}\n")


def test_summary_prints_and_writes_the_layers(tmp_path: Path) -> None:
    file = tmp_path / "layers.json"
    result = run("summary", "tiny", "--size", "40", "--channels", "3", "--json", str(file))
    assert result.exit_code == 0, result.stderr
    stored = json.loads(file.read_text(encoding="utf-8"))
    assert (stored["config"]["image_size"], stored["config"]["in_channels"]) == (40, 3)
    assert list(stored["layers"][0]) == ["name", "n", "d", "parameters", "flops"]
    for row in stored["layers"]:
        assert row["name"] in result.stdout
        assert f"{row['flops']:,}" in result.stdout


def test_summary_takes_head_classes_and_concepts() -> None:
    result = run("summary", "tiny", "--head", "bottleneck", "--classes", "4", "--concepts", "5")
    assert result.exit_code == 0, result.stderr
    assert "Bottleneck" in result.stdout
    assert "decoder" not in run("summary", "tiny", "--concepts", "0").stdout


def test_an_optional_package_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "reports.csv").write_text("text\nno streaks\n", encoding="utf-8")
    code = "import sys; sys.modules['spacy'] = None; from parsecaps.cli import app; app()"
    arguments = ["concepts", "reports.csv", "--column", "text", "--out", "cases.csv"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    message(done.stderr)
    assert not (tmp_path / "cases.csv").exists()
