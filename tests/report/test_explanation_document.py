"""The explanation document: what is in it, and what stays out of it."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from parsecaps.data.sources import open_data
from parsecaps.explain.explanation import Explanation
from parsecaps.explain.strict_tree import Strictness
from parsecaps.explain.traversal import TraversalStrip
from parsecaps.report.explanation_document import (
    ExplanationDocument,
    explanation_document,
)
from tests.audit.make_audit import make_cost
from tests.explain.make_explained import DATA, make_model
from tests.explain.rival_models import make
from tests.messages import refused
from tests.report.make_schema import SCHEMA, explanation_schema


@pytest.fixture(scope="module")
def full(told: list[Explanation]) -> list[Explanation]:
    """Cases with all that a document can hold."""
    strict = Strictness("nevus", 0.7, ("veil",), True, make_cost())
    strips = (TraversalStrip("first", 0.25, (0.0, 0.5), torch.stack([told[0].image] * 3)),)
    return [replace(told[0], strict=strict, traversals=strips), *told[1:]]


def test_the_schema_in_the_docs_is_that_of_the_models() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == explanation_schema(), "run: python -m tests.report.make_schema"


@pytest.mark.parametrize("pictures", [False, True])
def test_documents_are_as_the_schema_says(full: list[Explanation], pictures: bool) -> None:
    checker = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    without_concepts = make_model(open_data(DATA), "cnn").explain(torch.rand(3, 32, 32))
    parallel = make_model(open_data(DATA), "parallel").explain(torch.rand(3, 32, 32))
    by_image = [make("vectors").explain(torch.rand(3, 32, 32)) for _ in range(2)]
    for cases in (full, [without_concepts], by_image, [parallel]):
        document = explanation_document(cases, title="Some", errors=["d.png is no image"], pictures=pictures)
        plain = json.loads(json.dumps(document.to_dict()))
        checker.validate(plain)
        assert ExplanationDocument.model_validate(plain) == document
    assert plain["model"]["kind"] == "ParseCaps"
    plain["cases"][0]["patient"] = "1"
    assert not checker.is_valid(plain)


def test_values_survive_json(told: list[Explanation]) -> None:
    first = replace(told[0], concepts=(replace(told[0].concepts[0], truth=True), *told[0].concepts[1:]))
    text = json.dumps(explanation_document([first, *told[1:]]).to_dict())
    document = ExplanationDocument.model_validate_json(text)
    case = document.cases[0]
    assert case.probabilities == first.probabilities
    assert (case.truth, case.concepts[0].truth, case.concepts[1].truth) == (first.truth, True, None)
    assert tuple(case.trees) == first.trees
    assert [each.row for each in case.similar] == [each.case.row for each in first.similar]
    reasons = first.reasons
    assert reasons is not None
    assert case.reasons is not None
    assert document.model.reasoning is not None
    assert document.model.reasoning.model_dump() == reasons.reasoning.as_dict()
    assert case.reasons.presence == reasons.presence.tolist()
    assert case.reasons.sentence == reasons.sentence()
    assert document.model.concepts == [each.name for each in first.concepts]
    assert len(document.prototypes) == 7
    assert text.count('"weight"') == 1  # once for all cases
    for pictures, side in ((False, 40), (True, 32)):
        found = np.random.default_rng(0).random((40, 40)).astype(np.float32)
        place = explanation_document([replace(first, class_map=found)], pictures=pictures).cases[0].class_map
        assert place.side == side
        levels = np.frombuffer(base64.b64decode(place.levels), np.uint8).reshape(side, side)
        assert levels.max() == 255
    place = explanation_document([replace(first, class_map=found)]).cases[0].class_map
    levels = np.frombuffer(base64.b64decode(place.levels), np.uint8).reshape(40, 40)
    assert np.abs(levels / 255 * place.max - found).max() <= found.max() / 255


def test_pictures_are_for_pages_and_file_names_for_files_and_patients_for_neither(full: list[Explanation]) -> None:
    names = {each.case.name for case in full for each in case.similar}
    patients = {each.case.patient for case in full for each in case.similar}
    assert names
    assert patients.isdisjoint(names)
    page = explanation_document(full, pictures=True)
    files = explanation_document(full)
    assert all(each.name is None and each.row is None and each.picture for each in page.cases[0].similar)
    assert {each.name for case in files.cases for each in case.similar} == names
    assert all(case.picture is None for case in files.cases)
    for document in (page, files):
        text = json.dumps(document.to_dict())
        assert "patient" not in text
        assert not any(f'"{patient}"' in text for patient in patients)
    assert not any(f'"{name}"' in json.dumps(page.to_dict()) for name in names)


def test_a_picture_from_elsewhere_is_refused(told: list[Explanation], tmp_path: Path) -> None:
    plain = explanation_document(told[:1], pictures=True).to_dict()
    for address in ("https://example.org/a.png", "data:image/svg+xml;base64,AAAA", "data:image/png;base64,AA<script>"):
        plain["cases"][0]["picture"] = address
        with pytest.raises(ValidationError, match="picture"):
            ExplanationDocument.model_validate(plain)


def test_without_cases_there_is_no_document() -> None:
    with refused(ValueError):
        explanation_document([])
