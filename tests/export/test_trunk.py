"""A network on a pretrained trunk gives the same answers by every way out of the package."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from parsecaps.export import export_model
from parsecaps.export.monai_inference import MonaiNetwork
from parsecaps.model import Model
from parsecaps.prediction.predict import Prediction
from parsecaps.report.explanation_document import ExplanationDocument
from tests.browser import needs_browser, page
from tests.export import dicom_studies as studies
from tests.export.dicom_objects import items, write
from tests.golden.make_golden import HERE, IMAGES
from tests.serve.running import running

TRUNK = HERE / "trunk"
LARGEST_PAGE = 15_000_000  # bytes


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(TRUNK)


@pytest.fixture(scope="module")
def wanted(model: Model) -> list[Prediction]:
    """What `predict` says of the images."""
    return [model.predict(image) for image in IMAGES]


def assert_probabilities(found: Sequence[float], wanted: Prediction) -> None:
    assert wanted.probabilities is not None
    assert list(found) == pytest.approx(list(wanted.probabilities.values()), abs=1e-5)


def test_a_hub_folder_and_a_monai_bundle_answer_as_predict(
    model: Model, wanted: list[Prediction], tmp_path: Path
) -> None:
    for kind, inside in (("hub", "."), ("monai", "models")):
        export_model(TRUNK, kind, tmp_path / kind)
        there = Model.load(tmp_path / kind / inside)
        for image, each in zip(IMAGES, wanted, strict=True):
            assert there.predict(image).probabilities == pytest.approx(each.probabilities, abs=1e-6)
    network = MonaiNetwork(str(tmp_path / "monai" / "models"))
    for image, each in zip(IMAGES, wanted, strict=True):
        assert_probabilities(network(model.read(image)[None])[0].tolist(), each)


def test_the_server_answers_as_predict(wanted: list[Prediction]) -> None:
    with running(TRUNK) as server:
        found = server.results(*((image.name, image.read_bytes()) for image in IMAGES))
    for result, each in zip(found, wanted, strict=True):
        assert result["class"] == each.label
        assert result["probabilities"] == pytest.approx(each.probabilities, abs=1e-5)
        assert result["concepts"] == pytest.approx(each.concepts, abs=1e-5)


def test_a_dicom_report_has_what_predict_says(model: Model, tmp_path: Path) -> None:
    image = studies.slice_of_ct(tmp_path / "ct.dcm")
    objects = write(model, tmp_path / "out", image)
    assert len(objects["report"]) == len(objects["picture"]) == 1
    said = model.predict(image)
    assert said.probabilities is not None
    (finding, *_) = items(objects["report"][0], "CODE", "Finding")
    assert finding.ConceptCodeSequence[0].CodeMeaning == said.label
    (number, *_) = items(objects["report"][0], "NUM", "Probability")
    assert float(number.MeasuredValueSequence[0].NumericValue) == pytest.approx(
        max(said.probabilities.values()), abs=1e-6
    )


@needs_browser
def test_the_page_answers_as_predict_and_is_small(wanted: list[Prediction], tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    export_model(TRUNK, "web", file)
    assert file.stat().st_size < LARGEST_PAGE
    with page() as (tab, errors):
        tab.context.set_offline(True)
        tab.goto(file.as_uri())
        tab.set_input_files("#chooser", IMAGES)
        tab.locator("article").nth(len(IMAGES) - 1).wait_for(state="attached")
        document = ExplanationDocument.model_validate(tab.evaluate("() => parsecaps.explanation()"))
    assert errors == []
    for case, each in zip(document.cases, wanted, strict=True):
        assert case.diagnosis == each.label
        assert case.probabilities == pytest.approx(each.probabilities, abs=1e-4)
        assert case.class_map is not None
