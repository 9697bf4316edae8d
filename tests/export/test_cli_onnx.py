"""Export to ONNX on the command line, and use the file without this package."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

import parsecaps
from parsecaps.cli import app
from parsecaps.config import load_config
from parsecaps.export import checking, onnx
from parsecaps.export.export import ExportSource
from parsecaps.model import Model
from parsecaps.prediction.predict import predict_images
from parsecaps.training.callbacks import Callbacks
from tests.export.make_exported import make_model
from tests.messages import message
from tests.training.make import PHANTOM

GOLDEN = Path(__file__).parents[1] / "golden" / "bottleneck"

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "export.md"
WITHOUT_PYTORCH = """
import sys
assert not {"torch", "parsecaps"} & set(sys.modules)
"""


def export(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    make_model("PlainCNN").save(folder)
    return folder


def test_a_run_of_the_golden_results_with_maps(tmp_path: Path) -> None:
    out = tmp_path / "skin.onnx"
    result = export(GOLDEN, "--to", "onnx", "--maps", "--out", out)
    assert result.exit_code == 0, result.output
    assert "gives logits, probabilities, presence, maps" in result.output
    assert "every class is the same" in result.output
    assert "of their maximum" in result.output
    assert sorted(each.name for each in tmp_path.iterdir()) == ["skin.onnx"]


def test_onnx_runtime_alone_gives_the_answer_as_documented(small: Path, tmp_path: Path) -> None:
    assert export(small, "--to", "onnx", "--out", tmp_path / "model.onnx").exit_code == 0
    levels = np.random.default_rng(0).integers(0, 256, (32, 32), dtype=np.uint8)
    Image.fromarray(levels).save(tmp_path / "image.png")
    (example,) = re.findall(
        r"```python\n(import json\n.*?)```", DOCUMENTATION.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    command = [sys.executable, "-c", example + WITHOUT_PYTORCH]
    answer = ast.literal_eval(
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.strip()
    )
    model = Model.load(small)
    image = torch.from_numpy(levels)[None, None] / 255
    want = predict_images(model, image).probabilities(model.calibration.temperature)
    assert list(answer) == ["a", "b", "c"]
    np.testing.assert_allclose(list(answer.values()), want[0], atol=1e-6)


def test_a_run_is_checked_on_all_its_validation_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = parsecaps.fit(load_config(None, PHANTOM), run_folder=tmp_path / "run", callbacks=Callbacks())
    seen: list[int] = []
    compare = onnx.compare_answers
    monkeypatch.setattr(
        onnx, "compare_answers", lambda want, got: (seen.append(len(got["logits"])), compare(want, got))[1]
    )
    result = export(run.folder, "--to", "onnx", "--out", tmp_path / "run.onnx")
    assert result.exit_code == 0, result.output
    cases = len(run.rows("val"))
    assert sum(seen) == cases + len(ExportSource.open(run.folder).drawn())
    assert f"checked on {cases} validation cases and drawn images" in result.output


def test_a_failed_check_leaves_no_file(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "PROBABILITY", -1.0)
    result = export(small, "--to", "onnx", "--out", tmp_path / "model.onnx")
    assert result.exit_code == 2
    message(result.output, hide=r"by [\d.e-]+")
    assert not list(tmp_path.iterdir())


def test_maps_of_a_model_without_routes(small: Path, tmp_path: Path) -> None:
    result = export(small, "--to", "onnx", "--maps", "--out", tmp_path / "model.onnx")
    assert result.exit_code == 2
    message(result.output)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_package_that_is_not_there(
    package: str, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    result = export(small, "--to", "onnx", "--out", tmp_path / "model.onnx")
    assert result.exit_code == 2
    message(result.output)
    assert not list(tmp_path.iterdir())


def test_the_list_says_what_it_is_for_needs_and_gives() -> None:
    result = export("--list")
    assert result.exit_code == 0
    for word in ("onnx", "ONNX Runtime", "parsecaps[export]", "maps"):
        assert word in result.output
