"""A loaded model answers as the command line does, and abstains as it promised."""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import parsecaps
from parsecaps.cli import app
from parsecaps.data.sources import open_data
from parsecaps.metrics.conformal import ConformalQuantiles
from parsecaps.prediction.predict import predict_cases, predict_images
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from tests.messages import refused

RISK = 0.2
SETTINGS = {"model.preset": "tiny", "training.epochs": 3, "data.val": 0.4, "data.test": 0.1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("model") / "run"
    return parsecaps.fit("phantom:n=300,size=32", settings=SETTINGS, run_folder=folder, callbacks=Callbacks())


@pytest.fixture(scope="module")
def new_images(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """A folder of phantom images of other patients, their classes and patients, in the order of the files."""
    folder, data = tmp_path_factory.mktemp("images"), open_data("phantom:n=200,size=32,seed=7")
    assert data.draw is not None
    for i, pixels in enumerate(data.draw(range(200))):
        Image.fromarray(np.moveaxis(pixels, 0, -1)).save(folder / f"{i:03}.png")
    return folder, [data.classes[case.label] for case in data.cases], [case.patient for case in data.cases]


def test_it_is_found_by_run_folder_and_bundle(run: Run, new_images: tuple[Path, list[str], list[str]]) -> None:
    image = new_images[0] / "000.png"
    first, *others = (parsecaps.load(each) for each in (run, run.folder, str(run.bundle_folder)))
    answer = first.predict(image)
    assert all(other.predict(image) == answer for other in others)
    assert answer.label == max(answer.probabilities, key=answer.probabilities.__getitem__)
    assert (answer.possible, answer.abstain) == (None, None)
    assert answer.label in repr(answer)
    assert "blue-whitish veil" in repr(first)
    assert run.scores is not None
    raw = predict_images(first, first.read(image).unsqueeze(0)).probabilities()[0]
    tempered = {name: p ** (1 / run.scores.temperature) for name, p in zip(first.classes, raw, strict=True)}
    for name, share in answer.probabilities.items():
        assert share == pytest.approx(tempered[name] / sum(tempered.values()), abs=1e-5)
    with refused((OSError, ValueError)):
        first.predict("no.png")


def test_predict_abstains_and_keeps_its_promise(
    run: Run, new_images: tuple[Path, list[str], list[str]], tmp_path: Path
) -> None:
    folder, truth, patients = new_images
    out = tmp_path / "answers.csv"
    command = ["predict", str(run.folder), str(folder), "--out", str(out), "--set", f"risk={RISK}"]
    done = CliRunner().invoke(app, [*command, "--set", "batch_size=7"])
    assert done.exit_code == 0, done.output
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sets = [row["set"].split(" | ") if row["set"] else [] for row in rows]
    assert [row["abstain"] for row in rows] == [str(int(len(names) != 1)) for names in sets]
    assert 0 < sum(row["abstain"] == "1" for row in rows) < len(rows)
    validation = predict_cases(run.model, run.cases("val"))
    assert run.scores is not None
    shares = validation.probabilities(run.scores.temperature)
    threshold = ConformalQuantiles.fit(shares, validation.label, validation.groups()).threshold(RISK)
    for row, names in zip(rows, sets, strict=True):
        inside = [name for name in ("nevus", "melanoma") if float(row[f"probability:{name}"]) >= threshold.probability]
        assert names == inside
    held = {patient: [] for patient in patients}  # type: dict[str, list[bool]]
    for patient, name, names in zip(patients, truth, sets, strict=True):
        held[patient].append(name in names)
    coverage = np.mean([np.mean(each) for each in held.values()])  # the promise is about patients
    deviation = math.sqrt(RISK * (1 - RISK) * (1 / threshold.patients + 1 / len(held)))
    assert 1 - RISK - 3 * deviation < coverage < 1
    assert not any(case.patient in (run.bundle_folder / "calibration.json").read_text() for case in run.data.cases)
    one = parsecaps.load(run).predict(folder / "000.png", risk=RISK)
    assert (one.possible, one.abstain) == (sets[0], len(sets[0]) != 1)
