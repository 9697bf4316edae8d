"""The README: its Python runs as it stands on what the demonstration leaves, and prints what it says it prints."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parsecaps.cli import app
from tests.report.held_document import held_document
from tests.test_cli_demo import SETTINGS

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    code, output = example
    assert len(code.strip().splitlines()) <= 12
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["demo", *SETTINGS]).exit_code == 0
    capsys.readouterr()
    exec(compile(code, str(README), "exec"), {})
    printed, shown = (
        [_without_numbers(line) for line in each.splitlines()] for each in (capsys.readouterr().out, output)
    )
    assert printed[0].rpartition(":")[0] == shown[0].rpartition(":")[0]  # the same image, whatever is said of it
    assert {line.split()[0] for line in printed[1:3]} == {line.split()[0] for line in shown[1:3]}
    assert [line.partition(":")[0] for line in printed if "concepts:" in line or "seen:" in line] == [
        "  concepts",
        "  seen",
    ]
    assert len(printed) == len(shown)
    assert len(held_document(tmp_path / "melanoma-6.html").cases) == 1


def _without_numbers(line: str) -> str:
    return re.sub(r"[0-9.]+%?", "0", line)


def test_it_is_short_and_its_pictures_and_links_are_there() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) < 1000
    targets = re.findall(r"\]\(([^)#]+)", text)
    assert len(targets) > 10
    assert [
        target for target in targets if not target.startswith("https://") and not (README.parent / target).exists()
    ] == []
