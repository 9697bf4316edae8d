"""Explanations as DICOM objects: what they say, whom they are about, and what is refused."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
import torch

from parsecaps import __version__
from parsecaps.data.sources import open_data
from parsecaps.export.dicom_report import WARNING, DicomSource, write_dicom
from parsecaps.model import Model
from parsecaps.models.pretrained import weights_digest
from parsecaps.prediction.files import ImageFile
from parsecaps.report.montage import draw_montage
from tests.attack.crafted_dicom import FRAMES, PATIENT, ROWS, crafted_dicom, element, item
from tests.attack.crafted_dicom import dicom as crafted
from tests.explain.make_explained import DATA, make_model
from tests.export import dicom_studies as studies
from tests.export.dicom_objects import items, read_objects, seen, write
from tests.messages import message, refused

UNCHANGED = (
    *("PatientID", "PatientName", "PatientBirthDate", "PatientSex", "StudyInstanceUID", "StudyID"),
    *("StudyDate", "StudyTime", "AccessionNumber", "ReferringPhysicianName"),
)


@pytest.fixture(scope="module")
def model() -> Model:
    return make_model(open_data(DATA), "bottleneck")


def test_a_report_says_what_the_model_says(model: Model, tmp_path: Path) -> None:
    image = studies.slice_of_ct(tmp_path / "ct.dcm")
    (report,) = write(model, tmp_path, image)["report"]
    said = seen(model.explain(image, trees=0))
    assert report.SOPClassUID.name == "Comprehensive SR Storage"
    assert report.ContentTemplateSequence[0].TemplateIdentifier == "1500"
    assert (report.VerificationFlag, report.PreliminaryFlag) == ("UNVERIFIED", "PRELIMINARY")
    assert report.CompletionFlag == "COMPLETE"
    assert report.ContentQualification == "RESEARCH"
    assert "research" in report.SeriesDescription
    (observer,) = items(report, "CODE", "Observer Type")
    assert observer.ConceptCodeSequence[0].CodeMeaning == "Device"
    diagnosis, *concepts = items(report, "CONTAINER", "Measurement Group")
    (finding,) = items(diagnosis, "CODE", "Finding")
    assert finding.ConceptCodeSequence[0].CodeMeaning == said.diagnosis
    assert finding.ConceptCodeSequence[0].CodingSchemeDesignator == "99PARSECAPS"
    (other,) = (name for name in said.probabilities if name != said.diagnosis)
    for meaning, value in (
        ("Probability", said.probability),
        (f"Probability of {other}", said.probabilities[other]),
    ):
        (number,) = items(diagnosis, "NUM", meaning)
        assert float(number.MeasuredValueSequence[0].NumericValue) == pytest.approx(value, abs=1e-6)
    assert any(WARNING in each.TextValue for each in items(diagnosis, "TEXT", "Comment"))
    assert len(concepts) == len(said.concepts) == 7
    for group, concept in zip(concepts, said.concepts, strict=True):
        (evaluation,) = items(group, "CODE", concept.name)
        assert evaluation.ConceptCodeSequence[0].CodeMeaning == ("Detected" if concept.seen else "Not detected")
        (number,) = items(group, "NUM")
        assert float(number.MeasuredValueSequence[0].NumericValue) == pytest.approx(concept.presence, abs=1e-6)
        (reference,) = items(group, "IMAGE")
        assert reference.ReferencedSOPSequence[0].ReferencedSOPInstanceUID == pydicom.dcmread(image).SOPInstanceUID
    digest = weights_digest(model.network)
    assert {each.TextValue for each in items(report, "TEXT", "Algorithm Name")} == {"parsecaps"}
    assert {each.TextValue for each in items(report, "TEXT", "Algorithm Version")} == {__version__}
    assert f"weights {digest}" in {each.TextValue for each in items(report, "TEXT", "Algorithm Parameters")}
    assert report.DeviceSerialNumber == digest


def test_classes_that_cannot_be_ruled_out_and_an_abstention_are_in_the_report(model: Model, tmp_path: Path) -> None:
    said = model.explain(studies.photograph(tmp_path / "skin.dcm"), trees=0)
    possible = list(model.classes)
    write_dicom(model, [replace(said, possible=possible, abstain=True)], tmp_path)
    (report,) = read_objects(tmp_path)["report"]
    found = items(report, "CODE", "Class that cannot be ruled out")
    assert [each.ConceptCodeSequence[0].CodeMeaning for each in found] == possible
    assert any("abstains" in each.TextValue for each in items(report, "TEXT", "Comment"))


def test_patient_and_study_stay_and_series_and_instances_are_new(model: Model, tmp_path: Path) -> None:
    paths = [studies.slice_of_ct(tmp_path / f"ct{i}.dcm", i) for i in (1, 2)]
    objects = write(model, tmp_path / "out", *paths)
    assert [len(objects[kind]) for kind in ("report", "picture", "map")] == [2, 2, 6]
    source = pydicom.dcmread(paths[0])
    made = [each for found in objects.values() for each in found]
    for each in made:
        assert {keyword: each[keyword].value for keyword in UNCHANGED} == {k: source[k].value for k in UNCHANGED}
        assert each.SeriesInstanceUID != source.SeriesInstanceUID
        assert each.Manufacturer == "parsecaps"
        assert each.ContentQualification == "RESEARCH"
    assert len({each.SOPInstanceUID for each in made}) == len(made) == 10
    for kind, series in (("report", 1), ("picture", 1), ("map", 3)):  # the diagnosis and two concepts
        assert len({each.SeriesInstanceUID for each in objects[kind]}) == series
        numbers = {(each.SeriesInstanceUID, each.SeriesNumber, each.InstanceNumber) for each in objects[kind]}
        assert len(numbers) == len(objects[kind])
    assert len({each.SeriesNumber for each in made}) == 5


def test_a_picture_has_the_maps_and_says_what_it_is(model: Model, tmp_path: Path) -> None:
    image = studies.photograph(tmp_path / "skin.dcm", BurnedInAnnotation="YES", Laterality="L")
    objects = write(model, tmp_path, image)
    (picture,) = objects["picture"]
    assert objects["map"] == []
    assert picture.SOPClassUID.name == "Secondary Capture Image Storage"
    said = seen(model.explain(image, trees=0))
    digest = weights_digest(model.network)
    footer = f"{WARNING}. parsecaps {__version__}, ParseCaps {digest}"
    drawn = np.asarray(draw_montage(said, footer, "series 4, image 1"))
    assert np.array_equal(picture.pixel_array, drawn)
    assert not np.array_equal(drawn, np.asarray(draw_montage(said, footer, "series 4, image 2")))
    assert WARNING in picture.ImageComments
    assert (picture.BurnedInAnnotation, picture.Laterality) == ("YES", "L")
    (reference,) = picture.SourceImageSequence
    assert reference.ReferencedSOPInstanceUID == pydicom.dcmread(image).SOPInstanceUID
    assert reference.ReferencedSOPClassUID.name == "VL Photographic Image Storage"
    assert "ReferencedFrameNumber" not in reference


def test_maps_lie_where_the_source_lies(model: Model, tmp_path: Path) -> None:
    image = studies.slice_of_ct(tmp_path / "ct.dcm", 2, (40, 64))
    maps = write(model, tmp_path, image)["map"]
    said, source = seen(model.explain(image, trees=0)), pydicom.dcmread(image)
    expected = {said.diagnosis: said.class_map} | {each.name: each.map for each in said.concepts[:2]}
    assert len(maps) == len(expected) == 3
    for found in maps:
        assert found.SOPClassUID.name == "Parametric Map Storage"
        assert (found.Rows, found.Columns) == (40, 64)
        assert found.FrameOfReferenceUID == source.FrameOfReferenceUID
        shared, own = found.SharedFunctionalGroupsSequence[0], found.PerFrameFunctionalGroupsSequence[0]
        assert own.PlanePositionSequence[0].ImagePositionPatient == source.ImagePositionPatient
        assert shared.PlaneOrientationSequence[0].ImageOrientationPatient == source.ImageOrientationPatient
        measures = shared.PixelMeasuresSequence[0]
        assert (measures.PixelSpacing, measures.SliceThickness) == (source.PixelSpacing, source.SliceThickness)
        assert "SpacingBetweenSlices" not in measures
        quantity = shared.RealWorldValueMappingSequence[0].QuantityDefinitionSequence[0].ConceptCodeSequence[0]
        name = quantity.CodeMeaning.removeprefix("Relative evidence for ")
        there = model.preparation.to_original(torch.from_numpy(expected.pop(name)), (40, 64))
        assert np.allclose(found.pixel_array, there / there.max(), atol=1e-6)
    assert expected == {}


def test_frames_of_a_file_are_named_by_their_numbers(model: Model, tmp_path: Path) -> None:
    path = studies.enhanced_mr(tmp_path / "mr.dcm")
    objects = write(model, tmp_path, (path, 1), (path, 2))
    assert [len(found) for found in objects.values()] == [2, 2, 6]
    for number, report in zip((2, 3), objects["report"], strict=True):
        references = {each.ReferencedSOPSequence[0].ReferencedFrameNumber for each in items(report, "IMAGE")}
        assert references == {number}
        (evidence,) = report.CurrentRequestedProcedureEvidenceSequence[0].ReferencedSeriesSequence
        assert evidence.ReferencedSOPSequence[0].ReferencedSOPClassUID.name == "Enhanced MR Image Storage"
    for number, picture in zip((2, 3), objects["picture"], strict=True):
        assert picture.SourceImageSequence[0].ReferencedFrameNumber == number
    for found in objects["map"]:
        own = found.PerFrameFunctionalGroupsSequence[0]
        frame = own.DerivationImageSequence[0].SourceImageSequence[0].ReferencedFrameNumber
        assert own.PlanePositionSequence[0].ImagePositionPatient == [-10, 4.0 * (frame - 1), 20]
    plain = studies.frames_without_place(tmp_path / "frames.dcm")
    objects = write(model, tmp_path / "plain", (plain, 0))
    assert [len(found) for found in objects.values()] == [1, 1, 0]


CHARACTERS = {
    "latin-1": ("ISO_IR 100", "Müller^Jörg"),
    "utf-8": ("ISO_IR 192", "Łukasiewicz^Małgorzata"),
    "greek": ("ISO_IR 126", "Διονυσιος"),
    "korean": (["", "ISO 2022 IR 149"], "Hong^Gildong=洪^吉洞=홍^길동"),
    "japanese": (["", "ISO 2022 IR 87"], "Yamada^Tarou=山田^太郎=やまだ^たろう"),
}


def test_names_in_any_character_set_stay(model: Model, tmp_path: Path) -> None:
    for label, (characters, name) in CHARACTERS.items():
        path = studies.photograph(tmp_path / f"{label}.dcm", SpecificCharacterSet=characters, PatientName=name)
        assert str(header(path).PatientName) == name == str(pydicom.dcmread(path).PatientName)
    for found in write(model, tmp_path / "out", path).values():
        for each in found:
            assert str(each.PatientName) == name
            assert each.SpecificCharacterSet == "ISO_IR 192"
    path = studies.photograph(tmp_path / "plain.dcm", SpecificCharacterSet="ISO_IR 100")
    assert all("SpecificCharacterSet" not in each for each in write(model, tmp_path / "x", path)["report"])


def test_a_name_in_an_unsaid_character_set_is_guessed_and_a_broken_one_refused(tmp_path: Path) -> None:
    path = studies.photograph(tmp_path / "a.dcm", PatientName="M_ller")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"M_ller", "Müll ".encode()))  # as long
    assert str(header(path).PatientName) == "Müll"
    path.write_bytes(data.replace(b"M_ller", "Müller".encode("latin-1")))
    assert str(header(path).PatientName) == "Müller"
    path = studies.photograph(tmp_path / "b.dcm", PatientName="M_ller", SpecificCharacterSet="ISO_IR 192")
    path.write_bytes(path.read_bytes().replace(b"M_ller", "Müller".encode("latin-1")))
    with refused(ValueError):
        header(path)


def header(path: Path) -> Any:
    source = DicomSource.read(ImageFile(path))
    assert source is not None
    return source.header


def test_sloppy_headers_are_taken_as_far_as_dicom_allows(model: Model, tmp_path: Path) -> None:
    odd = {"PatientName": "", "PatientBirthDate": "", "PatientSex": "?", "StudyDate": "29.2.2024", "StudyTime": ""}
    blank = {**odd, "AccessionNumber": "", "StudyID": "", "SeriesNumber": None, "SOPClassUID": "1.2.3.4.5"}
    with pydicom.config.disable_value_validation():
        path = studies.slice_of_ct(tmp_path / "ct.dcm", **blank)
    data = pydicom.dcmread(path)
    del data.ReferringPhysicianName, data.PositionReferenceIndicator
    with pydicom.config.disable_value_validation():
        data.save_as(path)
    objects = write(model, tmp_path / "out", path)
    for each in [each for found in objects.values() for each in found]:
        assert each.PatientID == "MRN-0042"
        assert not each.PatientName
        assert not each.PatientSex
        assert not each.StudyDate
        assert each.SeriesNumber > 9000
    assert objects["picture"][0].SourceImageSequence[0].ReferencedSOPClassUID == "1.2.3.4.5"
    assert len(objects["map"]) == 3


def test_a_source_that_is_too_large_gives_no_map(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = model.explain(studies.slice_of_ct(tmp_path / "ct.dcm"), trees=0)
    monkeypatch.setattr("parsecaps.export.dicom_report._MOST_PIXELS", 64 * 64 - 1)
    written = write_dicom(model, [said], tmp_path / "out")
    assert [len(found) for found in read_objects(tmp_path / "out").values()] == [1, 1, 0]
    message(*written.errors)


@pytest.mark.parametrize(
    "change",
    [
        {"ImageOrientationPatient": [1, 0, 0, 1, 0, 0]},
        {"PixelSpacing": [0, 1]},
        {"SliceThickness": None},
        {"ImagePositionPatient": [0, 0]},
        {"FrameOfReferenceUID": ""},
    ],
)
def test_a_geometry_that_is_none_gives_no_map(change: dict[str, Any], tmp_path: Path) -> None:
    source = DicomSource.read(ImageFile(studies.slice_of_ct(tmp_path / "ct.dcm", **change)))
    assert source is not None
    assert not source.has_geometry


@pytest.mark.parametrize(
    "change",
    [
        {"PatientID": ""},
        {"PatientID": "x" * 65},
        {"PatientID": "a\x07b"},
        {"StudyInstanceUID": "1.2.x"},
        {"SOPInstanceUID": ""},
        {"Manufacturer": "parsecaps"},
    ],
)
def test_a_header_that_cannot_be_repeated_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    with pydicom.config.disable_value_validation():
        data = pydicom.dcmread(studies.photograph(tmp_path / "a.dcm"))
        for keyword, value in change.items():
            setattr(data, keyword, value)
        data.save_as(tmp_path / "bad.dcm")
    with refused(ValueError):
        DicomSource.read(ImageFile(tmp_path / "bad.dcm"))


def test_hostile_headers_cost_at_most_a_line(model: Model, tmp_path: Path) -> None:
    uids = {tag: ("UI", uid) for tag, uid in ((0x0020000D, studies.STUDY), (0x0020000E, studies.SERIES))}
    nested = element(0x00100010, "SQ", item(element(PATIENT, "LO", "p")))
    files = {
        "plain": crafted(uids),
        "long": crafted({**uids, PATIENT: ("UT", "x" * 1_000_000)}),
        "lines": crafted({**uids, PATIENT: ("LO", b"a\nb\r\x1b[31m\0")}),
        "frames": crafted({**uids, FRAMES: ("IS", "2147483647")}),
        "name of items": crafted(uids, without=(PATIENT,)) + nested,
        "no rows": crafted(uids, without=(ROWS,)),
    }
    files |= {each.name: each for each in crafted_dicom() if each.kind == "DICOM header"}
    taken = []
    for name, file in files.items():
        path = tmp_path / f"{len(taken)}.dcm"
        path.write_bytes(file) if isinstance(file, bytes) else file.write(path)
        why = reason(path)
        assert why is None or (len(why) < 600 and "\n" not in why)
        taken += [name] if why is None else []
    assert taken == ["plain"]


def reason(path: Path) -> str | None:
    """Why the header of a file is refused, None where it is taken."""
    try:
        assert DicomSource.read(ImageFile(path)) is not None
    except ValueError as error:
        return str(error)
    return None


def test_damaged_headers_cost_at_most_a_line(model: Model, tmp_path: Path) -> None:
    """A byte here and there is another; what is still taken becomes objects."""
    good = studies.slice_of_ct(tmp_path / "ct.dcm")
    data, said = good.read_bytes(), seen(model.explain(good, trees=0))
    end, chance = data.index(b"\xe0\x7f\x10\x00"), random.Random(0)
    taken = 0
    for number in range(40):
        changed = bytearray(data)
        for _ in range(chance.randint(1, 8)):
            changed[chance.randrange(132, end)] = chance.randrange(256)
        path = tmp_path / f"{number}.dcm"
        path.write_bytes(changed)
        why = reason(path)
        assert "\n" not in (why or "")
        if why is None and taken < 3:
            taken += 1
            write_dicom(model, [replace(said, source=ImageFile(path))], tmp_path / "out")
    assert taken == 3
