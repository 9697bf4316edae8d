"""`parsecaps explain --dicom`, as a user does."""

import builtins
import json
import sys
from pathlib import Path
from typing import Any

import pydicom
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from parsecaps.cli import app
from tests.command import fails
from tests.explain.make_explained import make_folder
from tests.export import dicom_studies as studies
from tests.export.dicom_objects import read_objects
from tests.messages import message


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["explain", *(str(each) for each in arguments), "--set", "trees=0"])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_folder(folder, "bottleneck")
    return folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_study_gets_objects_and_what_gets_none_costs_a_line(model: Path, tmp_path: Path) -> None:
    study, out = tmp_path / "study", tmp_path / "out"
    study.mkdir()
    studies.slice_of_ct(study / "IM0001")  # without an ending
    studies.enhanced_mr(study / "mr.dcm", 2)
    studies.photograph(study / "nobody.dcm", PatientID="")
    Image.fromarray(studies.skin()).save(study / "photo.png")
    result = run(model, study, "--dicom", out, "--json", "why.json")
    assert result.exit_code == 0, result.stderr
    objects = read_objects(out)
    assert len(objects["report"]) == len(objects["picture"]) == 3
    assert objects["map"]
    counted = f"DICOM: 3 reports, 3 pictures and {len(objects['map'])} maps in {out}"
    assert counted in result.stdout.replace("\n", "")
    assert sum(len(found) for found in objects.values()) == len(list(out.iterdir()))
    lines = [line for line in result.stderr.splitlines() if "nobody.dcm" in line or "photo.png" in line]
    message(*lines)
    assert json.loads(Path("why.json").read_text(encoding="utf-8"))["errors"] == lines
    assert len(list(tmp_path.glob("*.html"))) == 1


def test_files_are_added_and_never_replaced(model: Path, tmp_path: Path) -> None:
    image, out = studies.photograph(tmp_path / "skin.dcm"), tmp_path / "out"
    out.mkdir()
    (out / "mine.dcm").write_text("mine", encoding="utf-8")
    assert run(model, image, "--dicom", out).exit_code == 0
    first = {path: path.read_bytes() for path in out.iterdir()}
    assert len(first) == 3
    assert run(model, image, "--dicom", out).exit_code == 0
    assert len(list(out.iterdir())) == 5
    assert all(path.read_bytes() == content for path, content in first.items())


def test_objects_of_a_new_folder_are_for_their_owner_alone(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    assert run(model, studies.photograph(tmp_path / "skin.dcm"), "--dicom", out).exit_code == 0
    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}


def test_without_any_object_it_is_one_line(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo, nobody = tmp_path / "photo.png", studies.photograph(tmp_path / "nobody.dcm", PatientID="")
    Image.fromarray(studies.skin()).save(photo)
    for image in (photo, nobody, "phantom:n=2,size=32"):
        fails("explain", model, image, "--dicom", "out")
    assert not list(tmp_path.glob("*.html"))
    assert not Path("out").exists()
    Path("there").mkdir()
    fails("explain", model, photo, "--dicom", "there")
    assert Path("there").is_dir()  # it is not ours to remove
    fails("explain", model, nobody, "--dicom", photo)
    whole = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.partition(".")[0] == "highdicom":
            raise ModuleNotFoundError("No module named 'highdicom'", name="highdicom")
        return whole(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "parsecaps.export.dicom_report")
    fails("explain", model, nobody, "--dicom", "out")


def test_the_maps_of_another_study_do_not_mix(model: Path, tmp_path: Path) -> None:
    first = studies.slice_of_ct(tmp_path / "a.dcm")
    second = studies.slice_of_ct(tmp_path / "b.dcm", 2, PatientID="other", StudyInstanceUID="1.2.3", AccessionNumber="")
    assert run(model, first, second, "--dicom", "out").exit_code == 0
    for each in [pydicom.dcmread(path) for path in (tmp_path / "out").iterdir()]:
        assert (each.PatientID, each.StudyInstanceUID) in (("MRN-0042", studies.STUDY), ("other", "1.2.3"))
    series = {
        (each.SeriesInstanceUID, each.StudyInstanceUID)
        for found in read_objects(tmp_path / "out").values()
        for each in found
    }
    assert len({uid for uid, _ in series}) == len(series)
