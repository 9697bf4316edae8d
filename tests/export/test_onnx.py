"""The exported file gives what PyTorch gives, for every model and every setting."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from parsecaps.export.checking import (
    arrays,
    compare_answers,
    compare_maps,
    compare_trees,
    flows,
    open_session,
    run,
)
from parsecaps.export.onnx import METADATA_KEY, check_onnx, write_onnx
from parsecaps.model import Model
from parsecaps.models import all_models
from parsecaps.nn.couplings import Coupling
from tests.export.make_exported import both, make_model, source_of
from tests.messages import refused

SETTINGS: dict[str, dict[str, Any]] = {
    "bottleneck in colour by sparsemax": {"head": "bottleneck", "in_channels": 3, "alpha": 2.0, "whole_values": True},
    "softmax without concepts": {"num_concepts": 0, "alpha": 1.0},
    "children choose, alpha 1.3": {"over": "parents", "alpha": 1.3},
    "alpha near 1": {"alpha": 1.01, "cells": (1, 1)},
    "paper": {"radius": (-1, -1), "paper_logits": True, "locality": False, "normalisation": "layer"},
    "by agreement": {"routing": "dynamic", "squash_form": "quadratic"},
    "averaged down": {"image_size": 300, "grid_width": 8},
    "a trunk of the whole image": {"trunk": "lite0", "image_size": 45},
}


def check_answers(model: Model, folder: Path) -> None:
    drawn = source_of(model).drawn()
    want, got, _ = both(model, folder, drawn)
    rounding = 1e-6 * max(10.0, np.abs(want["logits"]).max())  # of an untrained CNN they may be hundreds
    assert compare_answers(want, got) < rounding
    assert want.keys() == got.keys()
    one = run(open_session(folder / "model.onnx"), drawn[3:4])
    np.testing.assert_allclose(one["logits"], got["logits"][3:4], atol=rounding)
    assert np.ptp(got["logits"], axis=0).max() > 1e-4, "the answers differ between images"


@pytest.mark.parametrize("kind", all_models())
def test_every_model(kind: str, tmp_path: Path) -> None:
    check_answers(make_model(kind), tmp_path)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting(name: str, tmp_path: Path) -> None:
    check_answers(make_model(**SETTINGS[name]), tmp_path)


def test_a_learned_alpha_that_differs_between_layers(tmp_path: Path) -> None:
    model = make_model(learn_alpha=True)
    for i, module in enumerate(each for each in model.network.modules() if isinstance(each, Coupling)):
        assert isinstance(module.alpha, torch.Tensor)
        module.alpha.data.fill_((1.0, 1.37, 2.4)[i % 3])
    check_answers(model, tmp_path)


EXPLAINED: dict[str, dict[str, Any]] = {
    "parallel": {"num_concepts": 1},
    "bottleneck": {"head": "bottleneck", "whole_values": True, "alpha": 1.7},
    "by agreement": {"routing": "dynamic", "num_concepts": 0, "in_channels": 3},
    "two streams": {"trunk": "PlainCNN", "context": "trunk", "tile": 16, "margin": 16},
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_maps_and_trees_are_those_of_an_explanation(name: str, tmp_path: Path) -> None:
    model = make_model(**EXPLAINED[name])
    drawn = source_of(model).drawn()
    image = drawn[4:5]
    want, got, graph = both(model, tmp_path, image, trees=True)
    assert compare_maps(want, got) < 1e-4
    compare_trees(want, got)
    for target in range(len(want["maps"][0])):  # strictly here, also where there is little evidence
        for wanted, given in zip(flows(want, target), flows(got, target), strict=True):
            np.testing.assert_allclose(given, wanted, atol=1e-3 * wanted.max())
    assert want["tree_top"].sum() > 0
    explanation = model.explain(image[0], trees=1)
    np.testing.assert_allclose(got["residual"], want["residual"], atol=1e-5)
    assert 0 <= got["residual"].item() < 0.02
    # an explanation has fewer panels in its path, and more where its shares do not add up
    np.testing.assert_allclose(got["maps"][0, -1], explanation.class_map, atol=0.02 * explanation.class_map.max())
    for concept, found in zip(explanation.concepts, got["maps"][0], strict=False):
        np.testing.assert_allclose(found, concept.map, atol=0.02 * max(concept.map.max(), 1e-6))
    tree = explanation.trees[0]
    assert got["tree_value"][-1] == pytest.approx(tree.value, abs=1e-5)
    assert got["tree_neutral"][-1] == pytest.approx(tree.neutral, abs=1e-5)
    assert bool(got["tree_strict"]) == tree.strict
    top = max(tree.nodes, key=lambda node: (node.level, node.share))
    assert top.share == pytest.approx(got["tree_top"][-1][list(top.capsules)].sum(), abs=1e-2)
    strongest = top.capsules[0]
    assert got[f"tree_activity_{top.level}"][strongest] == pytest.approx(top.activity, abs=1e-5)
    session = open_session(tmp_path / "model.onnx")
    for other in (*drawn[:3].split(1), drawn[5:6]):  # black, white and grey have no map at all
        found = run(session, other)
        assert all(np.isfinite(each).all() for each in found.values())
        compare_maps(arrays(graph.function(other)), found)


def test_the_metadata_says_all_that_the_numbers_do_not(tmp_path: Path) -> None:
    model = make_model(head="bottleneck")
    write_onnx(model, tmp_path / "model.onnx")
    network = onnx.load(tmp_path / "model.onnx")
    (entry,) = network.metadata_props
    assert entry.key == METADATA_KEY
    stored = json.loads(entry.value)
    assert stored["classes"] == ["a", "b", "c"]
    assert stored["concepts"] == ["concept 0", "concept 1"]
    assert stored["preparation"] == model.preparation.to_dict()
    assert stored["temperature"] == 1.7
    assert stored["quantiles"] is None
    assert stored["reasoning"]["weight"] == model.network.classes.weight.tolist()
    assert stored["thresholds"] == [0.5, 0.5]
    assert stored["widths"] == [16, 8, 4]
    assert stored["grid"] == {"first": 0.5, "step": 2, "width": 16, "size": 32}
    assert (stored["kind"], stored["version"], stored["batch"]) == ("ParseCaps", 1, None)
    assert stored["outputs"] == [each.name for each in network.graph.output] == ["logits", "probabilities", "presence"]
    assert not network.graph.value_info
    assert not any(node.doc_string or node.metadata_props for node in network.graph.node)
    assert {each.domain for each in network.opset_import} == {""}, "operators of the standard alone"


def test_a_model_without_concepts_or_routes_says_so_in_its_metadata(tmp_path: Path) -> None:
    write_onnx(make_model("PlainCNN", num_concepts=0), tmp_path / "model.onnx")
    stored = json.loads(onnx.load(tmp_path / "model.onnx").metadata_props[0].value)
    assert (stored["concepts"], stored["thresholds"]) == ([], [])
    assert stored["reasoning"] is stored["widths"] is stored["grid"] is None
    assert stored["outputs"] == ["logits", "probabilities"]


def test_a_file_of_another_model_is_refused(tmp_path: Path) -> None:
    model, path = make_model("PlainCNN"), tmp_path / "model.onnx"
    graph = write_onnx(model, path)
    assert check_onnx(path, graph, source_of(model))[0].endswith("; gives logits, probabilities, presence")
    model.network.classes.weight.data[0] += 0.5  # the file was written before
    with refused(ValueError, hide=r"by [\d.e-]+"):
        check_onnx(path, graph, source_of(model))


def test_the_graph_does_not_change_the_model(tmp_path: Path) -> None:
    model = make_model(learn_alpha=True)
    before = {name: tensor.clone() for name, tensor in model.network.state_dict().items()}
    write_onnx(model, tmp_path / "model.onnx")
    assert all(parameter.requires_grad for parameter in model.network.parameters())
    for name, tensor in model.network.state_dict().items():
        assert torch.equal(tensor, before[name])
