"""Train and score: what the folder says of the model is what the model does."""

import json
import re
import stat
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

import parsecaps
from parsecaps import evaluation
from parsecaps.config import load_config
from parsecaps.data.cache import prepare_all
from parsecaps.data.sources import open_data
from parsecaps.data.splits import hold_out, rows_of, write_split
from parsecaps.metrics import calibration
from parsecaps.metrics.calibration import fit_temperature
from parsecaps.metrics.scores import Scores
from parsecaps.model import Model
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from tests.messages import message, refused
from tests.training.make import PHANTOM, TINY, skewed_manifest

QUIET = Callbacks()


def answers(run: Run, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of a part, with nothing but the bundle."""
    model, data = Model.load(run.bundle_folder), open_data(run.config.data.path)
    rows = rows_of(run.division, part)  # type: ignore[arg-type]
    image = torch.from_numpy(prepare_all(data, model.preparation).images[rows]).float() / 255
    with torch.no_grad():
        return model.network(image).logits.numpy(), np.array([data.cases[i].label for i in rows])


def test_the_scores_are_those_of_the_chosen_model_on_the_test_part(run: Run) -> None:
    logits, label = answers(run, "test")
    stored = json.loads(run.scores_file.read_text(encoding="utf-8"))
    assert stored["cases"] == "test part"
    assert stored["overall"]["accuracy"]["value"] == pytest.approx((logits.argmax(1) == label).mean())
    assert stored["overall"]["accuracy"]["n"] == len(label)
    assert stored["temperature"] == pytest.approx(fit_temperature(*answers(run, "val")).temperature, rel=1e-4)
    scaled = torch.from_numpy(logits / stored["temperature"])
    nll = torch.nn.functional.cross_entropy(scaled, torch.from_numpy(label))
    assert stored["overall"]["nll"]["value"] == pytest.approx(float(nll), rel=1e-4)
    assert run.scores is not None
    assert Scores.from_dict(stored) == run.scores
    assert parsecaps.evaluate(run) == run.scores
    assert "<html" in run.page_file.read_text(encoding="utf-8")
    assert run.model.calibration.temperature == stored["temperature"]
    assert run.curves_file.is_file()


def test_nothing_is_fitted_when_a_run_is_opened(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(calibration, "fit_temperature", refuse)
    monkeypatch.setattr(calibration.ConformalQuantiles, "fit", refuse)
    opened = Run(run.folder)
    assert opened.model.calibration == run.model.calibration
    assert opened.model.calibration.threshold(0.2).probability > 0
    assert parsecaps.evaluate(run.folder, resamples=0)["accuracy"].value == run.scores["accuracy"].value  # type: ignore[index]


def test_a_run_that_looks_at_the_middle_of_its_images(tmp_path: Path) -> None:
    settings = [*PHANTOM, "preparation.centre=0.5", "training.epochs=1"]
    run = parsecaps.fit(load_config(None, settings), run_folder=tmp_path / "run", callbacks=QUIET)
    model = Model.load(run.bundle_folder)
    assert model.preparation.centre == 0.5
    logits, label = answers(run, "test")  # of images prepared as the bundle says
    assert run.scores is not None
    assert run.scores.single["accuracy"].value == pytest.approx((logits.argmax(1) == label).mean())
    assert "of the middle 50 % of each side" in (run.bundle_folder / "README.md").read_text(encoding="utf-8")


def test_a_manifest_in_the_folder_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its card has its name, and the model answers with the concepts of the manifest."""
    skewed_manifest(tmp_path)
    monkeypatch.chdir(tmp_path)
    settings = {"model.preset": "tiny", "training.epochs": 1, "training.batch_size": 8}
    run = parsecaps.fit("cases.csv", settings=settings, callbacks=QUIET)
    assert run.folder == Path("runs/cases-csv-1")
    assert run.card_file.read_text(encoding="utf-8").startswith("# Model card: cases.csv\n")
    assert list(parsecaps.load(run).predict("pictures/a/0.png").concepts) == ["veil", "streaks"]


def test_evaluating_leaves_every_file_as_it_is(run: Run) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = [path for path in run.folder.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}

    before = state()
    for part in ("auto", "val"):
        parsecaps.evaluate(run, part=part, resamples=10, device="cpu")
    assert state() == before


def test_a_run_prints_its_scores(run: Run) -> None:
    assert run.scores is not None
    accuracy = f"{100 * (run.scores['accuracy'].value or 0):.1f} %"
    for text in (repr(run), run._repr_html_(), repr(run.scores)):
        assert accuracy in text
    assert "test part: " in repr(run)


def test_the_card_has_the_numbers(run: Run) -> None:
    card = run.card_file.read_text(encoding="utf-8")
    data = open_data(run.config.data.path)
    division = run.division
    assert run.scores is not None
    score = run.scores["balanced_accuracy"]
    value, low, high = (f"{100 * (x or 0):.1f}" for x in (score.value, score.low, score.high))
    assert f"| balanced accuracy | {value} % | {low} to {high} | {score.n} |" in card
    for part, title in (("train", "training"), ("val", "validation"), ("test", "test")):
        rows = rows_of(division, part)  # type: ignore[arg-type]
        patients = len({data.cases[i].patient for i in rows})
        labels = [sum(data.cases[i].label == k for i in rows) for k in range(2)]
        assert f"| {title} | {patients} | {len(rows)} | {labels[0]} | {labels[1]} |" in card
    for words in (
        run.about["split_hash"],
        f"epoch {run.best_epoch} was chosen",
        "not a medical device",
        "drawn images only",
        f"Logits are divided by {run.scores.temperature:.3g}",
        f"torch {version('torch')}",
    ):
        assert words in card
    tables = re.findall(r"((?:^\|.*\n)+)", card, re.MULTILINE)
    assert len(tables) >= 6
    assert all(len({line.count("|") for line in table.splitlines()}) == 1 for table in tables)


def test_who_takes_no_part_is_counted_everywhere(tmp_path: Path) -> None:
    cases, split = skewed_manifest(tmp_path), tmp_path / "mine.csv"
    data = open_data(str(cases))
    division = hold_out(data)
    tested = rows_of(division, "test")
    for row in tested:
        division[row] = None
    write_split(split, data, division)
    (tmp_path / "pictures" / "a" / "5.png").write_bytes(b"no image")
    lines: list[str] = []
    settings = {"data.split": str(split), "data.skip_bad": True, "training.epochs": 1}
    settings |= {"model.preset": "tiny", "training.batch_size": 8}
    run = parsecaps.fit(cases, settings=settings, run_folder=tmp_path / "run", callbacks=Callbacks(log=lines.append))
    why = f"unused {len(tested) + 1} ({len(tested)} no part in mine.csv, 1 cannot be read)"
    assert any(line.startswith("split: train ") and why in line for line in lines)
    assert run.about["unused"] == {"no part in mine.csv": len(tested), "cannot be read": 1}
    card = run.card_file.read_text(encoding="utf-8")
    assert re.search(rf"^\| unused \| \d+ \| {len(tested)} \|", card, re.MULTILINE)
    assert f"Images that take no part: {why.removeprefix('unused ')}." in card


def test_the_weights_may_be_read_by_whoever_may_read_the_rest(run: Run) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) for path in run.bundle_folder.iterdir()}
    assert len(modes) == 1


def test_a_failure_keeps_the_model_and_resume_completes_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise RuntimeError("no space left")

    lines: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(evaluation, "evaluate_run", broken)
        failed = parsecaps.fit(
            load_config(None, PHANTOM), run_folder=tmp_path / "run", callbacks=Callbacks(log=lines.append)
        )
    assert failed.scores is None
    assert "no space left" in failed.failure
    assert f"--resume {tmp_path / 'run'}" in lines[-1]
    assert not failed.scores_file.exists()
    assert failed.model.classes == ("nevus", "melanoma")
    resumed = parsecaps.fit(resume=tmp_path / "run", callbacks=QUIET)
    assert resumed.scores == run.scores
    assert resumed.card_file.is_file()
    parsecaps.fit(resume=tmp_path / "run", callbacks=Callbacks(log=lines.append))
    message(lines[-1])


def test_ctrl_c_while_scoring_says_where_the_model_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "evaluate_run", stopped)
    settings = {"model.preset": "tiny", "training.epochs": 1, "data.val": 0}
    with refused(KeyboardInterrupt):
        parsecaps.fit("phantom:n=72,size=32", settings=settings, run_folder=tmp_path / "run", callbacks=QUIET)
    assert (tmp_path / "run/bundle/model.safetensors").is_file()


def test_without_a_test_part_validation_is_scored_and_called_so(tmp_path: Path) -> None:
    settings = {"training": {"epochs": 1}, "data.test": 0}
    run = parsecaps.fit(load_config(None, PHANTOM), settings=settings, run_folder=tmp_path / "run", callbacks=QUIET)
    assert run.scores is not None
    logits, label = answers(run, "val")
    assert run.scores["accuracy"].value == pytest.approx((logits.argmax(1) == label).mean())
    assert run.scores.cases == "validation part"
    assert run.scores.sets == []  # nobody is left to measure them on
    for path in (run.card_file, run.page_file):
        text = path.read_text(encoding="utf-8")
        assert "there is no test part" in text
        assert "Validation part" in text


def test_without_both_parts_nothing_is_claimed(tmp_path: Path) -> None:
    config = load_config(
        None, ["data.path=phantom:n=24,size=32", *TINY, "training.epochs=1", "data.val=0", "data.test=0"]
    )
    run = parsecaps.fit(config, run_folder=tmp_path / "run", callbacks=QUIET)
    assert (run.scores, run.failure) == (None, "")
    message(repr(run))
    assert "How good this model is, is not known" in run.card_file.read_text(encoding="utf-8")


def test_wrong_arguments_are_one_line(tmp_path: Path) -> None:
    with refused(ValueError):
        parsecaps.fit("phantom", settings={"training": {"epoch": 3}})
    with refused(ValueError):
        parsecaps.fit()
    with refused(ValueError):
        parsecaps.fit("phantom", resume=tmp_path)
    with refused(ValueError):
        parsecaps.evaluate(tmp_path, part="tset")
