"""A MONAI bundle passes MONAI's own checks without a network, and answers as `parsecaps predict` does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from parsecaps.cli import app
from parsecaps.data.sources import open_data
from parsecaps.export import export_model
from parsecaps.export.monai_inference import MonaiNetwork
from parsecaps.model import Model
from tests.explain.make_explained import DATA, make_model
from tests.golden.make_golden import HERE, IMAGES
from tests.messages import message, refused

# The three commands in one process, which takes seconds to start, and none of which may reach a network.
_COMMANDS = """
import runpy, socket, sys

def refuse(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6):
        raise AssertionError(f"asked the network for {address}")
    return connect(self, address)

connect, socket.socket.connect = socket.socket.connect, refuse
for command in sys.argv[1].split(";"):
    sys.argv = ["monai.bundle", *command.split()]
    runpy.run_module("monai.bundle", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("monai") / "bundle"
    lines = export_model(HERE / "bottleneck", "monai", folder)
    assert "checked on 60 validation cases" in lines[0]
    assert lines[1] == "verified by MONAI"
    return folder


def test_the_commands_of_monai_pass_offline_and_give_what_predict_gives(exported: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for image in IMAGES:
        (images / image.name).write_bytes(image.read_bytes())
    (images / "broken.png").write_bytes(b"no image")
    config = "--config_file configs/inference.json"
    commands = [
        "verify_metadata --meta_file configs/metadata.json --filepath configs/schema.json",
        f"verify_net_in_out network_def --meta_file configs/metadata.json {config}",
        f"run {config} --dataset_dir {images} --output_file {tmp_path / 'monai.jsonl'}",
    ]
    run = [sys.executable, "-c", _COMMANDS, ";".join(commands)]
    done = subprocess.run(run, cwd=exported, capture_output=True, text=True, env={**os.environ}, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "metadata is verified with no error" in said
    assert "data shape of network is verified with no error" in said
    assert (
        CliRunner()
        .invoke(app, ["predict", str(HERE / "bottleneck"), str(images), "--out", str(tmp_path / "own.jsonl")])
        .stdout.count("3 new rows, 1 with an error")
    )
    found, wanted = (_rows(tmp_path / name) for name in ("monai.jsonl", "own.jsonl"))
    assert [row["image"] for row in found] == [row["image"] for row in wanted]
    for ours, theirs in zip(wanted, found, strict=True):
        assert ours["error"] == theirs["error"]
        assert ours.get("class") == theirs.get("class")
        for part in ("probabilities", "concepts"):
            assert theirs.get(part) == pytest.approx(ours.get(part), abs=1e-6)


def test_nothing_about_patients_and_nothing_pickled_is_in_it(exported: Path) -> None:
    files = {path.relative_to(exported).as_posix() for path in exported.rglob("*") if path.is_file()}
    own = {"bundle.json", "calibration.json", "config.json", "model.safetensors", "strict.safetensors"}
    configs = {"inference.json", "logging.conf", "metadata.json", "schema.json"}
    assert files == {"LICENSE", "docs/README.md"} | {f"models/{name}" for name in own} | {
        f"configs/{name}" for name in configs
    }
    assert "A MONAI configuration is code" in (exported / "docs/README.md").read_text()


def test_the_model_inside_is_a_bundle_of_its_own(exported: Path) -> None:
    assert Model.load(exported / "models").concepts == Model.load(HERE / "bottleneck").concepts


def test_programs_find_every_part_of_an_inference_bundle(exported: Path) -> None:
    from monai.bundle.workflows import ConfigWorkflow

    files = {"bundle_root": str(exported), "dataset_dir": str(HERE / "images")}
    config, meta = (str(exported / "configs" / name) for name in ("inference.json", "metadata.json"))
    workflow = ConfigWorkflow(config, meta, logging_file=False, workflow_type="infer", **files)
    workflow.initialize()
    assert workflow.check_properties() == []


def test_concepts_come_after_the_classes_if_asked_for(exported: Path) -> None:
    network, image = MonaiNetwork(str(exported / "models")), torch.rand(2, 3, 32, 32)
    both = network(image, concepts=True)
    assert both.shape == (2, 9)
    assert torch.equal(both[:, :2], network(image))


@pytest.mark.parametrize("head", ["cnn", "parallel"])
def test_a_model_without_a_run_is_checked_on_drawn_images(tmp_path: Path, head: str) -> None:
    make_model(open_data(DATA), head).save(tmp_path / "model")
    line, _ = export_model(tmp_path / "model", "monai", tmp_path / "out")
    assert "drawn images alone" in line
    outputs = json.loads((tmp_path / "out/configs/metadata.json").read_text())["network_data_format"]["outputs"]
    assert set(outputs) == ({"pred"} if head == "cnn" else {"pred", "concepts"})


def test_names_of_classes_are_never_run(tmp_path: Path) -> None:
    from monai.bundle.config_parser import ConfigParser

    mark = tmp_path / "mark"
    model = make_model(open_data(DATA), "cnn")
    names = (f"$open({str(mark)!r}, 'w').close()", "%network_def")
    Model(model.network, model.preparation, names, ()).save(tmp_path / "model")
    export_model(tmp_path / "model", "monai", tmp_path / "out")
    parser = ConfigParser()
    parser.read_config(str(tmp_path / "out/configs/inference.json"))
    parser.read_meta(str(tmp_path / "out/configs/metadata.json"))
    found = parser.get_parsed_content("_meta_#network_data_format#outputs#pred#channel_def")
    assert found == {"0": names[0].replace("$", "_"), "1": names[1].replace("%", "_")}
    assert not mark.exists()


def test_an_export_that_answers_otherwise_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = MonaiNetwork.forward

    def wrong(self: MonaiNetwork, image: torch.Tensor, concepts: bool = False) -> torch.Tensor:
        return right(self, image, concepts) + 1e-5

    monkeypatch.setattr(MonaiNetwork, "forward", wrong)
    make_model(open_data(DATA), "cnn").save(tmp_path / "model")
    with refused(ValueError, hide=r"up to [\d.e-]+"):
        export_model(tmp_path / "model", "monai", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_an_export_that_reads_files_otherwise_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from parsecaps.export import monai_inference

    read = monai_inference.read_prepared
    monkeypatch.setattr(monai_inference, "read_prepared", lambda *args: _darker(read(*args)))
    make_model(open_data(DATA), "parallel").save(tmp_path / "model")
    with refused(ValueError, hide=r"\d\.png"):
        export_model(tmp_path / "model", "monai", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_a_missing_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    make_model(open_data(DATA), "cnn").save(tmp_path / "model")
    out = ["--to", "monai", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["export", str(tmp_path / "model"), *out])
    assert done.exit_code == 2
    message(done.stderr)
    assert not (tmp_path / "out").exists()


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _darker(image: torch.Tensor | str) -> torch.Tensor | str:
    return image if isinstance(image, str) else image * np.float32(0.9)
