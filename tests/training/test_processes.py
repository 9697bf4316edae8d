"""Two processes train as one does with the same batches, started by torchrun or by Fabric."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from parsecaps.config import load_config
from parsecaps.models import ParseCaps
from parsecaps.nn import capsules
from parsecaps.run import Run
from parsecaps.system.processes import Processes, find_processes
from parsecaps.training.checkpoint import read_tensors
from tests.training.make import TINY, skewed_manifest, train
from tests.training.without_batch_statistics import image_norm

SCRIPT = Path(__file__).with_name("without_batch_statistics.py")
QUIET = ["model.settings.normalisation=layer", "model.settings.dropout=0.0", "augmentation=null"]


def run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_two_processes_reach_the_result_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With weights of classes and with concepts that some images lack, whose number differs between the processes.

    The layers come from another network, which each process reads, and learn at another rate than the heads. There are
    two streams, of which the context has no gradient but by what it chooses.
    """
    monkeypatch.setattr(nn, "BatchNorm2d", image_norm)
    monkeypatch.setattr(capsules, "_MOMENTUM", 0.0)
    network: dict[str, Any] = {"trunk": "PlainCNN", "tile": 16, "context": "trunk"}
    start = ParseCaps.from_preset("tiny", num_classes=5, normalisation="layer", **network)
    start.save_pretrained(tmp_path / "start")
    weights = [f"model.start={tmp_path / 'start'}", "training.start_rate=0.5"]
    chosen = [f"model.settings.{name}={value}" for name, value in network.items()]
    settings = [f"data.path={skewed_manifest(tmp_path)}", *TINY, *QUIET, *weights, *chosen]
    one = train(load_config(None, settings), run_folder=tmp_path / "one")
    assert one.config.training.class_balance == "weights"
    assert one.origin is not None
    assert 0 < one.origin.taken < one.origin.parameters
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    output = run([*torchrun, str(SCRIPT), str(tmp_path / "two"), *settings], tmp_path)
    assert output.count("the group has ended") == 2  # while it goes on, a process may abort as it leaves
    ours, theirs = (read_tensors(tmp_path / name / "checkpoints/last.pt") for name in ("one", "two"))
    assert theirs["position"]["step"] == ours["position"]["step"] > 4
    assert Run(tmp_path / "two").origin == one.origin
    for name, weight in ours["weights"].items():  # AdamW makes a step of rounding where a gradient is nearly 0
        assert torch.allclose(theirs["weights"][name], weight, rtol=1e-4, atol=2e-4), name
    for mine, other in zip(ours["position"]["history"], theirs["position"]["history"], strict=True):
        for name in mine.keys() - {"seconds"}:
            assert other[name] == pytest.approx(mine[name], rel=1e-4, abs=1e-6), name


def test_the_command_starts_its_processes_itself(tmp_path: Path) -> None:
    settings = [argument for setting in TINY for argument in ("--set", setting)]
    output = run(["-m", "parsecaps", "train", "phantom:n=72,size=32", *settings, "--devices", "2"], tmp_path)
    assert output.count("epoch 2/2: ") == 1  # one of them tells
    assert output.count("best epoch: ") == 1
    assert output.count("scoring the test part") == 1
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["phantom-n-72-1"]
    folder = tmp_path / "runs/phantom-n-72-1"
    assert all((folder / name).is_file() for name in ("bundle/model.safetensors", "bundle/README.md", "scores.json"))
    assert "Warning" not in output


def test_sigterm_to_the_first_process_stops_both(tmp_path: Path) -> None:
    settings = [argument for setting in TINY for argument in ("--set", setting)]
    first = ["-m", "parsecaps", "train", "phantom:n=72,size=32", *settings, "--devices", "2", "--out", "run"]
    command = [sys.executable, *first, "--set", "training.epochs=100", "--set", "training.checkpoint_seconds=0"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("epoch 1/"):
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 143, "".join(lines)
    assert lines[-1].startswith("stopped in epoch ")
    assert lines[-1].endswith("; go on with parsecaps train --resume run\n")
    position = read_tensors(tmp_path / "run/checkpoints/last.pt")["position"]
    assert f"stopped in epoch {position['epoch'] + 1}, after batch {position['batch']};" in lines[-1]


def test_processes_are_found_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert find_processes(1) == Processes()
    assert find_processes(2) == Processes(rank=0, count=2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert find_processes(2) == Processes(rank=1, count=2)
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    found = find_processes(1)
    assert (found.rank, found.count, found.machines, found.is_main) == (5, 8, 2, False)
