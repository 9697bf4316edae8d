"""Explanations over HTTP are those of `parsecaps explain`, as the explanation document."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsecaps.explain.case_memory import remember_run
from parsecaps.model import Model
from parsecaps.report.explanation_document import ExplanationDocument, explanation_document
from tests.data.image_files import grey, write_dicom
from tests.messages import message
from tests.serve.running import MELANOMA, MODEL, NEVUS, OTHER, Running, running

IMAGES = [(path.name, path.read_bytes()) for path in (NEVUS, MELANOMA)]


def numbers(value: Any, place: str = "") -> dict[str, Any]:
    """The values of a document by their place, numbers rounded as two computations of them may differ."""
    if isinstance(value, dict):
        return {k: v for name, each in value.items() for k, v in numbers(each, f"{place}.{name}").items()}
    if isinstance(value, list):
        return {k: v for i, each in enumerate(value) for k, v in numbers(each, f"{place}.{i}").items()}
    return {place: pytest.approx(value, abs=1e-6) if isinstance(value, float) else value}


@pytest.mark.parametrize("question", [{}, {"trees": 1, "method": "grad-cam", "pictures": True}])
def test_the_document_is_that_of_the_command(server: Running, question: dict[str, Any]) -> None:
    answer = server.post(*IMAGES, ("no.png", b"x"), to="/api/explain", params=question)
    assert answer.status_code == 200, answer.text
    found = ExplanationDocument.model_validate(answer.json())
    model = Model.load(MODEL)
    how = {"risk": 0.2, "trees": question.get("trees", 3), "method": question.get("method", "routes")}
    cases = [model.explain(path, **how) for path in (NEVUS, MELANOMA)]
    wanted = explanation_document(cases, title="2 cases", pictures=question.get("pictures", False)).to_dict()
    for case, (name, _) in zip(wanted["cases"], IMAGES, strict=True):
        case["name"] = name
    known = [each for case in wanted["cases"] for each in case["similar"]]
    known += [each for group in wanted["prototypes"] for each in group["cases"]]
    assert known
    for each in known:  # the names of their files are not for everybody who can ask a server
        each.update(row=None, name=None)
    given = answer.json()
    (error,) = given.pop("errors")
    message(error)
    del wanted["errors"]
    assert numbers(json.loads(json.dumps(given))) == numbers(wanted)
    assert all(case.abstain is not None for case in found.cases)
    assert server.left_files() == []


def test_the_strict_network_promises_no_risk(server: Running) -> None:
    answer = server.post(IMAGES[0], to="/api/explain", params={"strict": True})
    (case,) = answer.json()["cases"]
    assert case["strict"] is not None
    assert case["possible"] is None
    (result,) = server.results(IMAGES[0])  # the network that predicts is another one
    assert result["set"] is not None


def test_files_that_cannot_be_explained(server: Running, tmp_path: Path) -> None:
    twenty = write_dicom(tmp_path / "a", np.stack([grey()] * 20), frames=20).read_bytes()
    answer = server.post(("a", b"x"), ("b", twenty), to="/api/explain")
    found = ExplanationDocument.model_validate(answer.json())
    assert found.cases == []
    assert found.model.reasoning is not None
    message(*found.errors)


def test_frames_are_named(server: Running, tmp_path: Path) -> None:
    two = write_dicom(tmp_path / "a", np.stack([grey()] * 2), frames=2).read_bytes()
    sent = [{"name": name, "data": base64.b64encode(data).decode()} for name, data in (("b.dcm", two), IMAGES[0])]
    del sent[1]["name"]
    answer = server.client.post("/api/explain", json={"files": sent}, params={"trees": 0})
    assert [case["name"] for case in answer.json()["cases"]] == ["b.dcm#0", "b.dcm#1", "image 2"]


@pytest.mark.parametrize("question", [{"trees": -1}, {"trees": "x"}, {"method": "other"}, {"unknown": 1}])
def test_a_wrong_question_is_a_problem(server: Running, question: dict[str, Any]) -> None:
    answer = server.post(IMAGES[0], to="/api/explain", params=question)
    assert (answer.status_code, answer.json()["code"]) == (422, "wrong-value")
    assert answer.json()["detail"].startswith(next(iter(question)))


def test_training_cases_have_no_file_names(tmp_path: Path) -> None:
    """A run that remembers its cases: similar ones come, their files and patients do not."""
    folder = tmp_path / "run"
    shutil.copytree(OTHER, folder)
    memory = remember_run(folder, limit=12)
    with running(folder, workers=1) as server:
        for pictures in (False, True):
            answer = server.post(IMAGES[0], to="/api/explain", params={"pictures": pictures, "trees": 0})
            (case,) = answer.json()["cases"]
            assert case["similar"]
            assert bool(case["similar"][0]["picture"]) == pictures
            assert bool(case["picture"]) == pictures
            assert all(each["name"] is None and each["row"] is None for each in case["similar"])
            text = json.dumps({**case, "class_map": None, "concepts": None, "picture": None})
            assert all(f'"{name}"' not in text for name in memory.predictions.name)
