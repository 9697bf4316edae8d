"""Train, then audit, as a user does."""

import csv
import json
from pathlib import Path

import pytest

from parsecaps.cli.progress import showing_stages
from tests.command import run
from tests.messages import message
from tests.training.make import TINY

SETTINGS = [*TINY, "model.kind=PlainCNN", "model.head=bottleneck"]
SMALL = [argument for setting in SETTINGS for argument in ("--set", setting)]
FEW = ("--limit", "2", "--resamples", "20")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "cnn"
    done = run("train", "phantom:n=72,size=32", *SMALL, "--out", folder)
    assert done.exit_code == 0, done.output
    return folder


def test_the_test_part_of_the_runs_own_data(trained: Path) -> None:
    done = run("audit", trained, *FEW)
    assert done.exit_code == 0, done.output
    stored = json.loads((trained / "audit.json").read_text(encoding="utf-8"))
    with (trained / "split.csv").open(encoding="utf-8") as file:
        tested = sum(row["split"] == "test" for row in csv.DictReader(file))
    assert (stored["cases"], stored["mapped"], stored["model"]) == (tested, 2, "PlainCNN")
    assert stored["concepts"]["leakage"]["n"] == tested  # fitted on the training cases
    for stage in ("training cases", "predictions", "maps", "parameter randomisation", "concepts", "redundancy"):
        assert sum(line.startswith(f"{stage}: ") for line in done.stderr.splitlines()) == 2  # when it begins and ends
    assert "integrated gradients" in done.stdout
    assert "…" not in done.stdout
    assert "<html" in (trained / "audit.html").read_text(encoding="utf-8")


def test_other_data_and_a_model_without_its_run(trained: Path, tmp_path: Path) -> None:
    out, file = tmp_path / "audits", tmp_path / "audit.json"
    done = run("audit", trained / "bundle", "phantom:n=5,size=32,seed=9", "--out", out, "--json", file, *FEW)
    assert done.exit_code == 0, done.output
    assert json.loads(file.read_text(encoding="utf-8"))["cases"] == 5
    assert sorted(path.name for path in out.iterdir()) == ["audit.html", "audit.json"]
    message(done.stdout, containing="training cases")


def test_a_log_gets_two_lines_for_each_stage(capsys: pytest.CaptureFixture[str]) -> None:
    with showing_stages(ends=True) as progress:
        for stage, total in (("maps", 40), ("concepts", 1)):
            for done in range(total + 1):
                progress(stage, done, total)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["maps: 0 of 40", "maps: 40 of 40 in 0 s", "concepts: 0 of 1", "concepts: 1 of 1 in 0 s"]
