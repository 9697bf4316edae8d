"""Train, evaluate and predict, one after the other, as a user does."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import parsecaps
from parsecaps.config import EvaluateConfig
from parsecaps.data.batches import Augmentation
from parsecaps.data.preparation import dequantise
from parsecaps.evaluation import Evaluation, evaluate_run
from parsecaps.metrics import compare
from parsecaps.metrics.calibration import Calibration
from parsecaps.models.summary import count_parameters
from parsecaps.prediction.predict import predict_cases
from parsecaps.run import Run
from tests.command import fails, run
from tests.messages import message, refused
from tests.training.make import TINY

SMALL = [argument for setting in TINY for argument in ("--set", setting)]


def evaluated(folder: Path, resamples: int = 20) -> Evaluation:
    return evaluate_run(folder, EvaluateConfig(resamples=resamples))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = [folder / f"seed-{seed}" for seed in (0, 1)]
    for seed, path in enumerate(made):
        done = run("train", "phantom:n=120,size=32", *SMALL, "--set", f"training.seed={seed}", "--out", path)
        assert done.exit_code == 0, done.output
    return made


def test_scores_of_one_run(runs: list[Path]) -> None:
    result = run("evaluate", runs[0], "--resamples", "50")
    assert result.exit_code == 0, result.output
    scores = json.loads((runs[0] / "scores.json").read_text(encoding="utf-8"))
    evaluation = evaluated(runs[0], 50)
    right = evaluation.predictions.logits.argmax(1) == evaluation.predictions.label
    assert scores["overall"]["accuracy"]["value"] == pytest.approx(right.mean())
    assert scores["overall"]["accuracy"]["n"] == len(right)
    assert "blue-whitish veil" in result.stdout
    page = (runs[0] / "scores.html").read_text(encoding="utf-8")
    assert "50 bootstrap resamples" in page
    (ten,) = [each for each in scores["sets"] if each["risk"] == 0.1]
    assert f"{100 * ten['coverage']['value']:.1f} %" in page.partition("Prediction sets")[2]
    card = (runs[0] / "bundle/README.md").read_text(encoding="utf-8")
    assert "95 % intervals: Student's t with the standard error from 50 bootstrap resamples" in card
    assert f"| parameters | {count_parameters(Run(runs[0]).model.network)} |" in card
    assert "in the decoder) |" in card


def test_the_test_part_is_the_runs_own(runs: list[Path]) -> None:
    with (runs[0] / "split.csv").open(encoding="utf-8") as file:
        tested = {row["image"] for row in csv.DictReader(file) if row["split"] == "test"}
    assert set(evaluated(runs[0], 20).predictions.name) == tested


def test_two_runs_are_compared(runs: list[Path], tmp_path: Path) -> None:
    page, file = tmp_path / "both.html", tmp_path / "both.json"
    result = run("evaluate", *runs, "--resamples", "50", "--page", page, "--json", file)
    assert result.exit_code == 0, result.output
    stored = json.loads(file.read_text(encoding="utf-8"))
    (comparison,) = stored["comparisons"]
    first, second = (evaluated(path, 20).predictions for path in runs)
    right = [predictions.logits.argmax(1) == predictions.label for predictions in (first, second)]
    assert comparison["only_first"] == int((right[0] & ~right[1]).sum())
    assert "McNemar" in result.stdout
    assert stored["ensemble"]["all_wrong"] == comparison["both_wrong"]
    assert "Ensemble of all 2" in page.read_text(encoding="utf-8")


def test_the_same_comparison_from_python(runs: list[Path]) -> None:
    compared = parsecaps.compare({"ours": Run(runs[0]), "theirs": runs[1]}, resamples=50)
    first, second = (evaluated(path, 50) for path in runs)
    assert compared.scores["theirs"] == second.scores
    assert compared.comparisons["ours", "theirs"] == compare(first.predictions, second.predictions, resamples=50)
    assert compared.ensemble is not None
    lines = repr(compared).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["ours", "theirs", "mean"]
    assert "p = " in lines[2]
    assert "Ensemble of all 2" in compared.page()
    other = parsecaps.compare(runs, data="phantom:n=30,size=32,seed=3", resamples=20)
    assert list(other.scores) == [str(path) for path in runs]
    assert {scores.images for scores in other.scores.values()} == {30}
    alone = parsecaps.compare([runs[0]], resamples=20)
    assert not alone.comparisons
    assert alone.ensemble is None
    with refused(ValueError):
        parsecaps.compare([runs[0], Run(runs[0])])


def test_other_data_are_matched_by_name(runs: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    result = run("evaluate", runs[0], "--data", "phantom:n=30,size=32,seed=7", "--resamples", "20", "--json", file)
    assert result.exit_code == 0, result.output
    (scores,) = json.loads(file.read_text(encoding="utf-8"))["runs"].values()
    assert scores["overall"]["accuracy"]["n"] == 30
    assert (runs[0] / "scores-phantom-n-30.html").is_file()
    own = json.loads((runs[0] / "scores.json").read_text(encoding="utf-8"))
    assert own["cases"] == "test part"  # its own scores are left alone


def test_views_are_averaged_and_reported_apart(runs: list[Path], tmp_path: Path) -> None:
    own, file = (runs[0] / "scores.json").read_bytes(), tmp_path / "views.json"
    result = run("evaluate", runs[0], "--views", "3", "--resamples", "20", "--json", file)
    assert result.exit_code == 0, result.output
    message(result.stdout, containing="views of")
    assert (runs[0] / "scores-3-views.html").is_file()
    assert (runs[0] / "scores.json").read_bytes() == own
    (scores,) = json.loads(file.read_text(encoding="utf-8"))["runs"].values()
    evaluation = evaluate_run(runs[0], EvaluateConfig(resamples=20, views=3))
    opened = Run(runs[0])
    model, config, rows = opened.model, opened.config, opened.rows("test")
    image = dequantise(torch.from_numpy(opened.prepared.images[rows]))
    generator = torch.Generator().manual_seed(0)
    assert config.augmentation is not None
    change = Augmentation(**config.augmentation.model_dump())
    with torch.no_grad():
        outputs = [model.network.eval()(view) for view in (image, change(image, generator), change(image, generator))]
    mean = torch.stack([output.logits.softmax(1) for output in outputs]).mean(0)
    assert evaluation.predictions.logits.argmax(1).tolist() == mean.argmax(1).tolist()
    tempered = (mean.log() / evaluation.scores.temperature).softmax(1)
    np.testing.assert_allclose(evaluation.predictions.probabilities(), tempered, atol=1e-5)
    seen = torch.stack([output.presence for output in outputs]).mean(0)
    assert evaluation.predictions.presence is not None
    np.testing.assert_allclose(evaluation.predictions.presence, seen, atol=1e-5)
    assert scores["overall"]["accuracy"]["n"] == len(rows)
    first, *others = (output.logits.argmax(1) for output in outputs)
    consistency = torch.stack([first == other for other in others]).float().mean(0)
    np.testing.assert_allclose(evaluation.predictions.consistency, consistency)
    assert scores["overall"]["consistency"]["value"] == pytest.approx(float(consistency.mean()))
    assert "same answer to changed views" in result.stdout
    assert "same answer to changed views" in (runs[0] / "scores-3-views.html").read_text(encoding="utf-8")
    assert "consistency" not in json.loads(own)["overall"]


def test_without_augmentation_there_are_no_other_views(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert run("train", "phantom:n=72,size=32", *SMALL, "--set", "augmentation=null", "--out", folder).exit_code == 0
    fails("evaluate", folder, "--views", "4")


def test_cross_validations_are_compared_on_all_cases(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for seed, folder in enumerate(folders):
        more = ["--set", "training.epochs=1", "--set", f"training.seed={seed}", "--folds", "2", "--out", folder]
        done = run("train", "phantom:n=36,size=32", *SMALL, *more)
        assert done.exit_code == 0, done.output
    file = tmp_path / "both.json"
    result = run("evaluate", *folders, "--resamples", "20", "--json", file)
    assert result.exit_code == 0, result.output
    (comparison,) = json.loads(file.read_text(encoding="utf-8"))["comparisons"]
    first, second = (evaluated(folder).predictions for folder in folders)
    order = [second.name.index(name) for name in first.name]
    right = [first.logits.argmax(1) == first.label, (second.logits.argmax(1) == second.label)[order]]
    assert (comparison["n"], comparison["only_second"]) == (36, int((right[1] & ~right[0]).sum()))
    assert (folders[0] / "comparison.html").is_file()
    again = run("evaluate", folders[0], "--resamples", "20")
    assert "pooled" in again.stdout
    assert run("evaluate", folders[0] / "fold-1", folders[1] / "fold-1", "--resamples", "20").exit_code == 0
    fails("predict", folders[0], "x.png", "--out", tmp_path / "x.csv")


def test_settings_come_from_a_file_and_from_set(runs: list[Path], tmp_path: Path) -> None:
    settings, file = tmp_path / "evaluate.yaml", tmp_path / "scores.json"
    settings.write_text("part: val\nresamples: 7\n", encoding="utf-8")
    changes = ["--config", settings, "--set", "risks=[0.3]", "--set", "resamples=9"]
    result = run("evaluate", runs[1], *changes, "--part", "train", "--json", file)
    assert result.exit_code == 0, result.output
    (scores,) = json.loads(file.read_text(encoding="utf-8"))["runs"].values()
    assert (scores["cases"], scores["resamples"]) == ("training part", 9)
    assert [each["risk"] for each in scores["sets"]] == [0.3]
    assert "learned from" in result.stdout


def test_training_leaves_what_prediction_calibrates_by(runs: list[Path]) -> None:
    opened = Run(runs[0])
    assert opened.model.calibration == Calibration.fit(predict_cases(opened.model, opened.cases("val")))
