"""Run the notebooks of this folder and keep what they show: `make notebooks`, or `python -m examples.make_outputs`.

Each runs in an empty folder. What would differ on another machine and shows nothing is removed: times of execution, the
version of Python, and the paths of the folders.
"""

import argparse
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

EXAMPLES = Path(__file__).parent
NOTEBOOKS = ("quickstart", "own_data_and_concepts", "read_and_audit_explanations", "compare_models")
MOST_BYTES = 1_000_000
_OPTIONS = ("tags",)  # what a cell may say of itself


def read(name: str) -> NotebookNode:
    """A notebook of this folder."""
    return nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)


def execute(notebook: NotebookNode, folder: Path, *, shorter: str = "") -> NotebookNode:
    """Run all cells in a folder, on one thread; `shorter` is run after the cell with the parameters.

    The command `parsecaps` is that of the Python that runs this.
    """
    if shorter:
        (place,) = [i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", [])]
        notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(shorter))
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "110", "TTY_COMPATIBLE": "0"}
    client = NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": str(folder)}})
    client.execute(env=env)
    return notebook


def clean(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Remove what belongs to this machine, and note which source the outputs are of."""
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = {key: value for key, value in cell.metadata.items() if key in _OPTIONS}
        for output in cell.get("outputs", []):
            output.pop("metadata", None)
            if output.output_type in ("display_data", "execute_result"):
                output["metadata"] = {}
                output["data"] = {kind: _without(value, folder) for kind, value in output.data.items()}
            elif output.output_type == "stream":
                output["text"] = _without(output.text, folder)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook["metadata"] = {
        "kernelspec": kernel,
        "language_info": {"name": "python"},
        "outputs_of": digest(notebook),
    }
    return notebook


def digest(notebook: NotebookNode) -> str:
    """Stands for the source of all cells that are run."""
    sources = "\0".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(sources.encode()).hexdigest()[:16]


def _without(text: str, folder: Path) -> str:
    """A text without the places of this machine, and without the figures that Matplotlib names by chance."""
    for place in (str(folder.resolve()), str(folder), str(Path.home())):
        text = text.replace(f"{place}{os.sep}", "").replace(place, ".")
    return re.sub(r"<(Figure size [^>]*)>", r"\1", text)


def main() -> None:
    """Run some or all of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(NOTEBOOKS)}; all if left out")
    parser.add_argument("--folder", type=Path, help="run there and leave the files; trained runs in it are used again")
    arguments = parser.parse_args()
    for name in arguments.names or NOTEBOOKS:
        with tempfile.TemporaryDirectory() as made:
            folder = (arguments.folder or Path(made)).resolve()
            notebook = clean(execute(read(name), folder), folder)
        path = EXAMPLES / f"{name}.ipynb"
        path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
        size = path.stat().st_size
        print(f"{name}: {size:,} bytes" + ("; that is too large, show less" if size >= MOST_BYTES else ""))


if __name__ == "__main__":
    main()
