"""Weights from several data sets: what they learned from is said, and nobody who was in them is named."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import parsecaps
from parsecaps.data.case_set import CaseSet
from parsecaps.data.leaks import read_fingerprints
from parsecaps.prediction.predict import predict_cases
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.pretrain import DEFAULTS, pretrain, pretraining_config
from tests.data.make import picture
from tests.messages import message, refused
from tests.training.test_privacy import found_in

SETTINGS: dict[str, Any] = {"model.preset": "tiny", "training.epochs": 1, "training.batch_size": 8, "data.val": 0.25}
QUIET = Callbacks()
LICENCES = ("CC0", "CC BY 4.0", "")


def write_pictures(folder: Path, first: int, count: int, stem: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        Image.fromarray(picture(first + i, 32)).save(folder / f"{stem}{i:02}.png")


def write_sets(root: Path) -> list[Path]:
    """A table with patients and a concept, a folder per class with a test part of its own, and images alone."""
    write_pictures(root / "skin" / "scans", 0, 24, "brimfeld")
    rows = [
        f"scans/brimfeld{i:02}.png,{('nevus', 'melanoma')[i // 2 % 2]},Quaxolder-{i // 2:03},{i % 2}" for i in range(24)
    ]
    table = "\n".join(["image,label,patient,concept:veil", *rows, ""])
    (root / "skin" / "cases.csv").write_text(table, encoding="utf-8")
    for number, (part, name, count) in enumerate(
        [("train", "benign", 12), ("train", "malignant", 12), ("test", "benign", 3), ("test", "malignant", 3)]
    ):
        write_pictures(root / "breast" / part / name, 1000 * (number + 1), count, "zeisig")
    write_pictures(root / "ward", 9000, 12, "haberkorn")
    return [root / "skin" / "cases.csv", root / "breast", root / "ward"]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_sets(tmp_path_factory.mktemp("sets"))


@pytest.fixture(scope="module")
def run(sets: Sequence[Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("weights") / "trunk"
    return pretrain(sets, settings=SETTINGS, licences=LICENCES, run_folder=folder, callbacks=QUIET)


def rows_of_card(run: Run, section: str) -> dict[str, list[str]]:
    """The cells of a table of the card, by the name of the data set."""
    _, _, rest = run.card_file.read_text(encoding="utf-8").partition(f"## {section}\n")
    lines = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {name: others for name, *others in cells}


def test_the_card_names_every_source_with_its_licence_and_size(run: Run) -> None:
    assert run.failure == ""
    learned = run.rows("train")
    counts = [sum(first <= row < last for row in learned) for first, last in ((0, 24), (24, 54), (54, 66))]
    patients = len({run.data.cases[row].patient for row in learned if row < 24})
    assert rows_of_card(run, "What it learned from") == {
        "skin": ["CC0", str(counts[0]), str(patients), "melanoma, nevus", "veil"],
        "breast": ["CC BY 4.0", str(counts[1]), str(counts[1]), "benign, malignant", "none"],
        "ward": ["not stated", str(counts[2]), str(counts[2]), "none", "none"],
    }
    assert all(counts)
    assert sum(counts) == len(learned)
    text = run.card_file.read_text(encoding="utf-8")
    message(text, containing="data sets")
    assert not run.scores_file.exists()
    message(repr(run))


def test_each_head_is_scored_on_its_own_patients_among_its_own_classes(run: Run) -> None:
    table = rows_of_card(run, "What was learned")
    classes = {"skin": [0, 1], "breast": [2, 3]}
    for name, own in classes.items():
        rows = [row for row in run.rows("val") if run.data.cases[row].patient.startswith(f"{name}/")]
        assert rows
        logits = predict_cases(run.model, CaseSet(run.data, run.prepared, rows)).logits[:, own]
        label = np.array([run.data.cases[row].label for row in rows]) - own[0]
        assert table[name][:2] == [str(len(rows)), f"{(logits.argmax(1) == label).mean():.3f}"]
    assert table["breast"][3] == "-"
    rows = [row for row in run.rows("val") if row < 24]
    veil = np.array([run.data.cases[row].concepts[0] for row in rows])
    presence = predict_cases(run.model, CaseSet(run.data, run.prepared, rows)).presence
    assert presence is not None
    pairs = presence[veil == 1] - presence[veil == 0].T  # (present, absent)
    assert table["skin"][3] == f"{((pairs > 0) + 0.5 * (pairs == 0)).mean():.3f}"
    assert table["ward"] == ["0", "-", "-", "-"]


def test_one_network_has_the_names_of_all(run: Run) -> None:
    assert run.model.classes == ("skin/melanoma", "skin/nevus", "breast/benign", "breast/malignant")
    assert run.model.concepts == ("skin/veil",)
    assert run.config.training.keep == "last"
    assert run.config.training.class_balance == "sampling"
    assert run.config.data.also == tuple(str(path) for path in (run.data.root / "breast", run.data.root / "ward"))


def test_official_test_parts_are_left_out(run: Run) -> None:
    """Neither learned from nor chosen by, so that somebody may still be tested on them."""
    tested = [row for row, case in enumerate(run.data.cases) if "/test/" in case.image.as_posix()]
    assert len(tested) == 6
    assert run.rows("test") == tested
    kept = {row.tobytes() for row in read_fingerprints(run.fingerprints_file)[0]}
    bits = run.prepared.fingerprints.bits
    assert len(kept) == len(run.rows("train")) + len(run.rows("val")) == 60
    assert not kept & {bits[row].tobytes() for row in tested}


def test_the_weights_are_started_from(run: Run, sets: Sequence[Path], tmp_path: Path) -> None:
    """On the test part that was left out it may be tested; on cases that were learned from it may not."""
    lines: list[str] = []
    settings = {"training.epochs": 1, "training.batch_size": 8, "training.start_rate": 0}
    fine = parsecaps.fit(
        sets[1], settings=settings, start=run.folder, run_folder=tmp_path / "run", callbacks=Callbacks(log=lines.append)
    )
    assert fine.origin is not None
    assert fine.origin.images == 60
    message(*lines, containing="start: ")
    mine, theirs = (dict(each.model.network.named_parameters()) for each in (fine, run))
    for name in fine.origin.layers:
        assert torch.equal(mine[name], theirs[name]), name
    assert "| started from | trunk (" in fine.card_file.read_text(encoding="utf-8")
    with refused(ValueError):
        parsecaps.fit(sets[0], settings=settings, start=run.folder, run_folder=tmp_path / "leak", callbacks=QUIET)


def test_the_bundle_names_no_patient_and_no_file(run: Run, tmp_path: Path) -> None:
    data = run.data
    secrets = sorted({case.patient.partition("/")[2] for case in data.cases} | {case.image.stem for case in data.cases})
    secrets += ["Quaxolder", "brimfeld", "zeisig", "haberkorn", "scans", "cases.csv", str(data.root)]
    assert found_in(run.bundle_folder, secrets) == []
    everywhere = " ".join(found_in(run.folder, secrets))  # and what is looked for would be found
    assert all(secret in everywhere for secret in secrets)
    assert {path.name for path in run.bundle_folder.iterdir()} == {
        *("config.json", "model.safetensors", "bundle.json", "README.md", "fingerprints.safetensors")
    }


def test_it_is_resumed_like_any_other_run(run: Run, tmp_path: Path) -> None:
    """Before the model was written, and before the card was."""
    again = Run(shutil.copytree(run.folder, tmp_path / "again"))
    shutil.rmtree(again.bundle_folder)
    resumed = parsecaps.fit(resume=again.folder, callbacks=QUIET)
    for name in ("model.safetensors", "bundle.json", "fingerprints.safetensors"):
        assert (resumed.bundle_folder / name).read_bytes() == (run.bundle_folder / name).read_bytes(), name
    tables = ("What it learned from", "What was learned")
    assert [rows_of_card(resumed, each) for each in tables] == [rows_of_card(run, each) for each in tables]
    again.card_file.unlink()
    parsecaps.fit(resume=again.folder, callbacks=QUIET)
    assert rows_of_card(again, tables[0]) == rows_of_card(run, tables[0])


def test_a_copy_in_another_set_is_a_leak(sets: Sequence[Path], tmp_path: Path) -> None:
    """What one set calls test another may not be learned from."""
    first, second, ward = (
        shutil.copytree(path.parent if path.is_file() else path, tmp_path / path.name) for path in sets
    )
    shutil.copy(second / "test" / "benign" / "zeisig00.png", ward / "copy.png")
    lines: list[str] = []
    with refused(ValueError):
        pretrain(
            [first / "cases.csv", second, ward],
            settings=SETTINGS,
            run_folder=tmp_path / "run",
            callbacks=Callbacks(log=lines.append),
        )
    assert any("copy.png" in line and line.startswith("leak: ") for line in lines)
    assert not (tmp_path / "run").exists()


def test_wrong_settings_are_one_line(sets: Sequence[Path], tmp_path: Path) -> None:
    for licences in (["CC0"], ["CC0"] * 4):
        with refused(ValueError):
            pretrain(sets, licences=licences, run_folder=tmp_path / "run", callbacks=QUIET)
    with refused(ValueError):
        pretrain([], run_folder=tmp_path / "run", callbacks=QUIET)
    for changes in ({"data.folds": 2, "data.fold": 1}, {"data.test_part": "val"}, {"training.label_smoothing": 0.1}):
        with refused(ValueError):
            pretrain(sets, settings={**SETTINGS, **changes}, run_folder=tmp_path / "run", callbacks=QUIET)
    assert not (tmp_path / "run").exists()


def test_the_settings_are_ours_unless_others_are_given() -> None:
    config = pretraining_config(["a", Path("b")], {"training.keep": "best"}, ["CC0", "MIT"])
    assert (config.data.path, config.data.also, config.data.licences) == ("a", ("b",), ("CC0", "MIT"))
    assert (config.data.val, config.data.test, config.training.keep) == (0.05, 0.0, "best")
    assert json.loads(json.dumps(DEFAULTS)) == DEFAULTS
    base = config.change("training", epochs=3)
    assert pretraining_config(["c"], base=base).training.epochs == 3
