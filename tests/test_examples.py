"""The notebooks in `examples` run from start to end, and show what their present cells give."""

import re
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat import NotebookNode

from examples.make_outputs import EXAMPLES, MOST_BYTES, NOTEBOOKS, digest, execute, read
from parsecaps.config import load_config

COMMAND = """
from typer.testing import CliRunner
from parsecaps.cli import app

def command(line):
    done = CliRunner().invoke(app, line.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done
"""
SHORTER = {
    "own_data_and_concepts": "images, epochs = 100, 1\n" + COMMAND,
    "read_and_audit_explanations": 'settings, limit = "short.yaml", 2',
    "compare_models": 'data, epochs = "phantom:n=100,size=32", 1',
}
REPLACED = {  # patterns: quickstart has no cell with parameters, and each process takes seconds
    "quickstart": (("n=1500", "n=100"), ("epochs=10", "epochs=1")),
    "compare_models": ((r"range\(300\)", "range(40)"),),
    "own_data_and_concepts": ((r"(?m)^!parsecaps (.*)$", r'print(command("\1").output)'),),
}
LEFT = {
    "quickstart": "quickstart-run/scores.html",
    "own_data_and_concepts": "check.html",
    "read_and_audit_explanations": "explained-run/known_cases/memory.npz",
    "compare_models": "comparison.pdf",
}
MACHINE = re.compile(r"/(home|root|tmp|work|Users|var|opt|usr)/|[A-Z]:\\\\|site-packages")


def outputs(notebook: NotebookNode) -> list[NotebookNode]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def pictures(notebook: NotebookNode) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))


def write_short_settings(file: Path) -> None:
    """Those of the short demonstration, and shorter."""
    config = load_config("demo-quick", ["data.path=phantom:n=100,size=32", "training.epochs=1"])
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")), encoding="utf-8")


def test_every_notebook_is_listed() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
@pytest.mark.filterwarnings("default")  # those of the kernel's own transport are not ours
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    notebook = read(name)
    for pattern, new in REPLACED.get(name, ()):
        replaced = [re.subn(pattern, new, cell.source) for cell in notebook.cells]
        assert sum(count for _, count in replaced) > 0
        for cell, (source, _) in zip(notebook.cells, replaced, strict=True):
            cell.source = source
    write_short_settings(tmp_path / "short.yaml")
    notebook = execute(notebook, tmp_path, shorter=SHORTER.get(name, ""))
    assert pictures(notebook) >= 2
    assert not [output for output in outputs(notebook) if output.output_type == "error"]
    assert (tmp_path / LEFT[name]).is_file()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_a_notebook_keeps(name: str) -> None:
    path = EXAMPLES / f"{name}.ipynb"
    notebook = read(name)
    nbformat.validate(notebook)
    assert path.stat().st_size < MOST_BYTES
    assert notebook.metadata["outputs_of"] == digest(notebook), "the cells have changed: make notebooks"
    run = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in run] == list(range(1, len(run) + 1))
    assert pictures(notebook) >= 2
    assert {output.output_type for output in outputs(notebook)} <= {"stream", "display_data", "execute_result"}
    assert not [output for output in outputs(notebook) if output.get("name") == "stderr"]
    assert not [cell for cell in notebook.cells if set(cell.metadata) - {"tags"}]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_no_notebook_tells_of_the_machine(name: str) -> None:
    for cell in read(name).cells:
        for output in cell.get("outputs", []):
            texts = [output.get("text", ""), *(v for k, v in output.get("data", {}).items() if k != "image/png")]
            assert not [found.group() for text in texts for found in MACHINE.finditer(text)]
