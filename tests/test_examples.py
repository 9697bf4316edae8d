"""The notebooks in `examples` run from start to end as they stand."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("name", ["quickstart.ipynb"])
@pytest.mark.filterwarnings("default")  # those of the kernel's own transport are not ours
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert not any(output.output_type == "error" for output in outputs)
    assert (tmp_path / "quickstart-run" / "scores.html").is_file()


def test_notebooks_are_kept_without_outputs() -> None:
    for path in EXAMPLES.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        assert [cell for cell in cells if cell.get("outputs")] == []
