"""Predictions over HTTP are those of `parsecaps predict`, whoever asks beside, and whatever is wrong with one file."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsecaps.model import Model
from parsecaps.prediction.files import find_files
from parsecaps.prediction.predict import Prediction, predict_files
from parsecaps.serve.documents import Answer, ModelDocument
from parsecaps.serve.service import redact
from parsecaps.serve.uploads import Upload
from tests.data.image_files import grey, write_dicom, write_samples
from tests.messages import LIBRARY, message
from tests.serve.running import MELANOMA, MODEL, NEVUS, Running, running


def predicted(*paths: Path, risk: float | None = 0.2) -> list[Prediction]:
    return list(predict_files(Model.load(MODEL), find_files(paths), risk=risk))


def assert_same(result: dict[str, Any], wanted: Prediction) -> None:
    assert (result["class"], result["frame"]) == (wanted.label, wanted.frame)
    assert (result["set"], result["abstain"], result["error"]) == (wanted.possible, wanted.abstain, None)
    assert result["probabilities"] == pytest.approx(wanted.probabilities, abs=1e-5)
    assert result["concepts"] == pytest.approx(wanted.concepts, abs=1e-5)


def test_every_format_gets_the_answer_of_the_command(server: Running, tmp_path: Path) -> None:
    """Through a form and through JSON, all of a request in one go."""
    paths = sorted(write_samples(tmp_path).values())
    wanted = predicted(*paths)
    assert len(wanted) > len(paths)  # some have several frames
    sent = [(path.name, path.read_bytes()) for path in paths]
    as_json = {"files": [{"name": name, "data": base64.b64encode(data).decode()} for name, data in sent]}
    for answer in (server.post(*sent), server.client.post("/api/predict", json=as_json)):
        assert answer.status_code == 200, answer.text
        found = Answer.model_validate(answer.json()).results
        results = answer.json()["results"]
        assert [each.file for each in found] == [paths.index(Path(each.image)) for each in wanted]
        assert [each.name for each in found] == [Path(each.image).name for each in wanted]
        for result, each in zip(results, wanted, strict=True):
            assert_same(result, each)
    assert server.left_files() == []


def test_answers_are_the_same_inside_a_batch_of_strangers(server: Running) -> None:
    """Many clients at once, whose images share batches."""
    wanted = dict(zip((NEVUS, MELANOMA), predicted(NEVUS, MELANOMA), strict=True))
    data = {path: path.read_bytes() for path in wanted}
    paths = [NEVUS, MELANOMA, MELANOMA] * 8
    before = _batches(server)
    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(lambda path: server.results((path.name, data[path])), paths))
    for path, (result,) in zip(paths, answers, strict=True):
        assert_same(result, wanted[path])
    batches, images = (now - then for now, then in zip(_batches(server), before, strict=True))
    assert images == len(paths)
    assert batches < images  # some were answered together


def _batches(server: Running) -> tuple[float, float]:
    lines = server.client.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("parsecaps_batch_images"))
    return float(values["parsecaps_batch_images_count"]), float(values["parsecaps_batch_images_sum"])


def test_a_file_that_cannot_be_read_is_a_result_of_its_own(server: Running) -> None:
    good, bad, empty = server.results(
        ("good.png", NEVUS.read_bytes()), ("bad.png", NEVUS.read_bytes()[:200]), ("empty.png", b"")
    )
    assert good["error"] is None
    assert good["class"]
    message(bad["error"], empty["error"], hide=LIBRARY)
    for each in (bad, empty):
        assert {name for name, value in each.items() if value is None} == {*each} - {"file", "name", "error"}
    assert str(server.service.spool.folder) not in json.dumps([bad, empty])


@pytest.mark.parametrize("name", [None, "", "a\nb"])
def test_odd_names(server: Running, name: str | None) -> None:
    body = {"files": [{"name": name, "data": base64.b64encode(b"no image").decode()}]}
    (result,) = server.client.post("/api/predict", json=body).json()["results"]
    assert result["name"] == (name or None)
    message(result["error"])


def test_frames_beyond_the_limit_are_refused_with_their_file(tmp_path: Path) -> None:
    three = write_dicom(tmp_path / "three.dcm", np.stack([grey()] * 3), frames=3).read_bytes()
    with running(images=4, batch_size=2) as server:
        results = server.results(("a", three), ("b", three), ("c.png", NEVUS.read_bytes()))
        assert [(each["name"], each["frame"]) for each in results[:3]] == [("a", 0), ("a", 1), ("a", 2)]
        assert [bool(each["error"]) for each in results] == [False, False, False, True, False]
        message(results[3]["error"])
        (alone,) = server.results(("d", write_dicom(tmp_path / "5", np.stack([grey()] * 5), frames=5).read_bytes()))
        message(alone["error"])


def test_what_is_served(server: Running) -> None:
    found = ModelDocument.model_validate(server.client.get("/api/model").json())
    model = Model.load(MODEL)
    assert (found.kind, tuple(found.classes), tuple(found.concepts)) == ("ParseCaps", model.classes, model.concepts)
    assert found.preparation == model.preparation
    assert found.calibration.temperature == model.calibration.temperature
    assert found.calibration.threshold == model.calibration.threshold(0.2).probability
    assert found.limits["files"] == 64
    digest = found.weights
    assert server.post(("a.png", NEVUS.read_bytes())).json()["weights"] == digest
    assert len(digest) == len("sha256:") + 64


def test_nothing_of_a_patient_comes_back_or_is_logged(
    server: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of a good DICOM, nor of one whose header a library complains about, nor a file's name in the log."""
    who = {"PatientName": "Doe^Jane", "PatientID": "DOE-77", "PatientBirthDate": "19700101"}
    path = write_dicom(tmp_path / "a.dcm", grey(), **who)
    data = path.read_bytes()
    damaged = [data[:length] for length in range(132, len(data), 20)]
    damaged += [data.replace(b"DOE-77", b"\xff" * 6), data.replace(b"19700101", b"Doe^John")]
    with caplog.at_level("INFO"):
        for start in range(0, len(damaged), 50):
            answer = server.post(*(("Doe.dcm", each) for each in [data, *damaged[start : start + 50]]))
            assert answer.json()["results"][0]["error"] is None
            for result in answer.json()["results"]:
                text = json.dumps({**result, "name": None, "error": (result["error"] or "").replace("Doe.dcm", "")})
                assert not any(word in text for word in ("Doe", "DOE-77", "19700101"))
        explained = server.post(("b.dcm", data), to="/api/explain").text
    for text in (caplog.text, explained):
        assert not any(word in text for word in ("Doe", "DOE-77", "19700101"))
    assert "POST /api/predict 200" in caplog.text


def test_a_library_is_not_quoted_about_a_dicom() -> None:
    upload = Upload("a.dcm", Path("/spool/7"))
    error = "/spool/7 is a damaged DICOM (bad value (0010,0010) 'Doe^Jane'); replace the file"
    message(redact(error, upload))
