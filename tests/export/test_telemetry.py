"""ONNX Runtime reports its use to its vendor unless it is told not to."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_layering import imported_names

ROOT = Path(__file__).parents[2]
LOAD = """
from onnx import TensorProto, helper
from parsecaps.export.checking import open_session
values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", values[:1], values[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
print([each.name for each in open_session(model.SerializeToString()).get_outputs()])
"""


@pytest.mark.parametrize("setting", [None, "0"])
def test_a_session_leaves_no_device_id(setting: str | None, tmp_path: Path) -> None:
    """As one that may report does, in the user's folder for caches, before it connects."""
    pytest.importorskip("onnx")
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {} if setting is None else {"ORT_DISABLE_TELEMETRY": setting}
    done = subprocess.run(
        [sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "['y']\n"), done.stderr
    assert not list(tmp_path.rglob("*onnxruntime*"))


def test_only_the_package_imports_onnx_runtime() -> None:
    """`import parsecaps` sets the variable, so whatever is in the package comes after it."""
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    files = [
        path for name in ("tests", "benchmarks", "studies", "examples", "docs") for path in (ROOT / name).rglob("*.py")
    ]
    assert len(files) > 100
    for path in files:
        names = {name for _, name in imported_names(ast.parse(path.read_text("utf-8")), [])}
        assert not any(name.partition(".")[0] == "onnxruntime" for name in names), path
