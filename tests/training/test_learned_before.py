"""A test case that the weights to start from have learned from is a leak, however they came to know it."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import parsecaps
from parsecaps.cli import app
from parsecaps.data.leaks import read_fingerprints
from parsecaps.data.sources import open_data
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from tests.data.make import folder_of_pictures, picture
from tests.messages import message, refused

DATA = "phantom:n=60,size=32"
OTHERS = "phantom:n=60,size=32,seed=5"
SETTINGS: dict[str, Any] = {"model.preset": "tiny", "training.epochs": 1, "training.batch_size": 8}
DEALT_ANEW = {**SETTINGS, "data.seed": 3}
QUIET = Callbacks()


def fit_is_refused(start: object, folder: Path, data: str | Path = DATA, **settings: Any) -> list[str]:
    """The lines that were said before."""
    lines: list[str] = []
    with refused(ValueError):
        parsecaps.fit(
            data,
            settings={**DEALT_ANEW, **settings},
            start=str(start),
            run_folder=folder,
            callbacks=Callbacks(log=lines.append),
        )
    assert not folder.exists()
    return lines


def test_the_fingerprints_are_those_of_all_that_trained_or_chose(source: Run) -> None:
    learned = [*source.rows("train"), *source.rows("val")]
    bits = source.prepared.fingerprints.bits
    kept = {row.tobytes() for row in read_fingerprints(source.fingerprints_file)[0]}
    assert kept == {bits[row].tobytes() for row in learned}
    assert not kept & {bits[row].tobytes() for row in source.rows("test")}
    given = source.bundle_folder / source.fingerprints_file.name
    assert given.read_bytes() == source.fingerprints_file.read_bytes()


def test_a_training_case_may_not_be_tested(source: Run, tmp_path: Path) -> None:
    allowed = parsecaps.fit(
        DATA,
        settings={**DEALT_ANEW, "data.allow_leaks": True},
        start=source.folder,
        run_folder=tmp_path / "allowed",
        callbacks=QUIET,
    )
    before = {*source.rows("train"), *source.rows("val")}
    known = [row for row in allowed.rows("test") if row in before]
    choosing = [row for row in allowed.rows("val") if row in before]
    assert len(known) > 1
    assert len(choosing) > 1
    (warning,) = (note for note in allowed.data_check["notes"] if "WARNING" in note)
    assert str(len(known)) in warning
    message(warning)
    card = allowed.card_file.read_text(encoding="utf-8")
    assert warning in card
    assert str(source.folder.parent) not in card  # which may be given away
    lines = fit_is_refused(source.folder, tmp_path / "run")
    first = open_data(DATA).cases[known[0]].image.name
    message(*lines, containing=f"leak: {first}")
    (note,) = (line for line in lines if "learned from" in line and line.startswith("note: "))
    assert str(len(choosing)) in note
    message(note)


def test_the_same_split_is_no_leak_and_a_validation_case_is_a_note_only(source: Run, tmp_path: Path) -> None:
    run = parsecaps.fit(DATA, settings=SETTINGS, start=source.folder, run_folder=tmp_path / "run", callbacks=QUIET)
    notes = [note for note in run.data_check["notes"] if "learned from" in note]
    assert str(len(source.rows("val"))) in notes[0]
    message(*notes)


def test_other_pictures_are_no_leak(source: Run, tmp_path: Path) -> None:
    run = parsecaps.fit(OTHERS, settings=DEALT_ANEW, start=source.folder, run_folder=tmp_path / "run", callbacks=QUIET)
    assert not any("learned from" in note for note in run.data_check["notes"])


def test_what_was_learned_is_handed_on(source: Run, tmp_path: Path) -> None:
    """Weights that started from weights: a test case of the first is known to the second."""
    second = parsecaps.fit(
        OTHERS, settings=SETTINGS, start=source.folder, run_folder=tmp_path / "second", callbacks=QUIET
    )
    first, both = ({row.tobytes() for row in read_fingerprints(run.fingerprints_file)[0]} for run in (source, second))
    assert first < both
    assert len(both) == len(first) + len(second.rows("train")) + len(second.rows("val"))
    lines = fit_is_refused(second.folder, tmp_path / "third")
    message(*lines, containing="leak: ")
    given = shutil.copytree(second.bundle_folder, tmp_path / "given away")
    fit_is_refused(given, tmp_path / "third")


def test_weights_without_fingerprints_say_so(source: Run, tmp_path: Path) -> None:
    given = shutil.copytree(source.bundle_folder, tmp_path / "given")
    (given / source.fingerprints_file.name).unlink()
    run = parsecaps.fit(DATA, settings=DEALT_ANEW, start=given, run_folder=tmp_path / "run", callbacks=QUIET)
    message(*run.data_check["notes"])
    assert run.origin is not None
    assert run.origin.images is None
    assert not read_fingerprints(run.fingerprints_file)[1]
    assert read_fingerprints(source.fingerprints_file)[1]
    after = parsecaps.fit(OTHERS, settings=SETTINGS, start=run.folder, run_folder=tmp_path / "after", callbacks=QUIET)
    message(*after.data_check["notes"])


def test_a_copy_of_another_format_and_size_is_found(tmp_path: Path) -> None:
    """Of grey pictures that were learned from, one is tested in colour, larger and as a JPEG."""
    folder_of_pictures(tmp_path / "first", per_class=12, side=48)
    first = parsecaps.fit(tmp_path / "first", settings=SETTINGS, run_folder=tmp_path / "source", callbacks=QUIET)
    learned = first.data.cases[first.rows("train")[0]].image
    for part, count in (("train", 10), ("val", 3), ("test", 3)):
        for label, name in enumerate(("c", "d")):
            (tmp_path / "second" / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = picture(7000 + 100 * label + len(part) * 1000 + i, 64)
                Image.fromarray(pixels).save(tmp_path / "second" / part / name / f"{i}.png")
    settings = {"model.image_size": 40, "preparation.channels": 3}
    clean = parsecaps.fit(
        tmp_path / "second",
        settings={**DEALT_ANEW, **settings},
        start=first.folder,
        run_folder=tmp_path / "clean",
        callbacks=QUIET,
    )
    assert clean.origin is not None
    with Image.open(learned) as image:
        image.convert("RGB").resize((90, 90)).save(tmp_path / "second/test/c/copy.jpg", quality=70)
    lines = fit_is_refused(first.folder, tmp_path / "run", tmp_path / "second", **settings)
    message(*lines, containing="leak: test/c/copy.jpg")


def test_where_pictures_look_alike_it_is_not_checked(
    source: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike = replace(open_data(DATA), look_alikes=True)
    monkeypatch.setattr("parsecaps.training.plan.open_all", lambda section: alike)
    monkeypatch.setattr("parsecaps.run.open_all", lambda section: alike)
    run = parsecaps.fit(DATA, settings=DEALT_ANEW, start=source.folder, run_folder=tmp_path / "run", callbacks=QUIET)
    message(*run.data_check["notes"])
    assert not run.fingerprints_file.exists()
    assert not (run.bundle_folder / run.fingerprints_file.name).exists()


def test_the_command_refuses_unless_it_is_told_to_go_on(source: Run, tmp_path: Path) -> None:
    settings = [argument for key, value in DEALT_ANEW.items() for argument in ("--set", f"{key}={value}")]
    command = ["train", DATA, *settings, "--start", str(source.folder), "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    message(result.stderr.splitlines()[-1])
    allowed = CliRunner().invoke(app, [*command, "--allow-leaks"])
    assert allowed.exit_code == 0, allowed.output
    message(allowed.stderr, containing="--allow-leaks")


def test_no_fingerprint_is_told_from_another_by_its_place(source: Run) -> None:
    """They are sorted, so their order says nothing of the cases."""
    bits, _ = read_fingerprints(source.fingerprints_file)
    assert np.array_equal(bits, np.unique(bits, axis=0))
