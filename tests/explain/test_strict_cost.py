"""The strict network, explained: what is said of it, and what it is known to cost."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from parsecaps.data.sources import open_data
from parsecaps.explain.attribution import Target, attribution_maps
from parsecaps.explain.strict_tree import (
    StrictCost,
    Strictness,
    load_cost,
    save_statistics,
    strict_network,
    strict_statistics,
)
from parsecaps.model import Model
from parsecaps.models.pretrained import weights_digest
from parsecaps.report.explanation_document import explanation_document
from tests.audit.make_audit import make_cost
from tests.explain.make_explained import DATA, make_folder, make_model
from tests.messages import message, refused

IMAGE = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(1))
CONCEPTS = [Target("concepts", j) for j in range(7)]


def test_all_of_it_is_of_the_strict_network(tmp_path: Path) -> None:
    model = make_folder(tmp_path, "bottleneck")
    save_statistics(tmp_path / "bundle", strict_statistics(model.network, [IMAGE[None]]), weights_digest(model.network))
    model = Model.load(tmp_path)
    ordinary, told = model.explain(IMAGE), model.explain(IMAGE, strict=True)
    with torch.no_grad(), strict_network(model.network, model.statistics):
        output = model.network(IMAGE[None])
    maps = attribution_maps(model.network, IMAGE[None], CONCEPTS)[0]
    with strict_network(model.network, model.statistics):
        strict_maps = attribution_maps(model.network, IMAGE[None], CONCEPTS)[0]
    assert list(told.probabilities.values()) == pytest.approx(output.logits[0].softmax(0).tolist(), abs=1e-6)
    assert [each.presence for each in told.concepts] == pytest.approx(output.presence[0].tolist(), abs=1e-6)
    assert told.concepts[0].map == pytest.approx(strict_maps[0].numpy(), abs=1e-6)
    assert (maps - strict_maps).abs().max() > 1e-4
    assert told.reasons is not None
    assert told.reasons.presence == pytest.approx(output.presence[0].numpy(), abs=1e-6)
    assert [tree.strict for tree in told.trees] == [True] * 3
    assert told.trees[0].value == pytest.approx(output.logits.max().item(), abs=1e-5)
    assert [tree.strict for tree in ordinary.trees] == [False] * 3
    assert told.similar == ordinary.similar  # the memory is of the ordinary network
    assert told.strict is not None
    assert told.strict.adjusted
    assert (told.strict.diagnosis, told.strict.probability) == (ordinary.diagnosis, ordinary.probability)
    assert told.strict.seen == tuple(each.name for each in ordinary.concepts if each.seen)
    assert any("not calibrated" in note for note in told.notes)
    assert "Strict tree: " in repr(told)
    strict = explanation_document([told]).cases[0].strict
    assert strict is not None
    assert (strict.diagnosis, strict.lines) == (ordinary.diagnosis, told.strict_lines)
    assert (ordinary.strict, ordinary.strict_lines) == (None, [])


def test_a_risk_is_not_promised_for_it() -> None:
    model = make_model(open_data(DATA), "parallel")
    with refused(ValueError):
        model.explain(IMAGE, strict=True, risk=0.1)


def test_without_routes_there_is_none() -> None:
    told = make_model(open_data(DATA), "cnn").explain(IMAGE, strict=True)
    assert told.strict is None
    message(*told.notes)


def test_what_differs_is_said() -> None:
    strictness = Strictness("melanoma", 0.625, ("veil", "dots"), False, None)
    lines = strictness.sentences("nevus", ["veil", "streaks"])
    message(*lines)
    same = replace(strictness, adjusted=True, cost=make_cost()).sentences("melanoma", ["veil", "dots"])
    message(*same)


def test_the_cost_is_that_of_this_very_model(tmp_path: Path) -> None:
    model = make_model(open_data(DATA), "parallel")
    folder = tmp_path / "bundle"
    folder.mkdir()
    audit = tmp_path / "audit.json"
    assert load_cost(folder, model, True) is None
    cost = make_cost(weights_digest(model.network))
    audit.write_text(json.dumps({"strict": asdict(cost)}), encoding="utf-8")
    assert load_cost(folder, model, True) == cost
    assert load_cost(folder, model, False) is None
    for other in ("{", "{}", '{"strict": null}', json.dumps({"strict": asdict(make_cost())})):
        audit.write_text(other, encoding="utf-8")
        assert load_cost(folder, model, True) is None
    auroc = replace(cost, accuracy=None, auroc=cost.accuracy).sentence()
    message(auroc)
    message(StrictCost(None, None, True, "").sentence())


def test_traversals_come_with_a_trained_decoder_only() -> None:
    model = make_model(open_data(DATA), "parallel")
    assert model.explain(IMAGE).traversals == ()
    told = model.explain(IMAGE, traversals=2)
    assert told.traversals == ()
    assert sum(note.startswith("no traversals: the decoder was never trained") for note in told.notes) == 1
    model.network.train()(torch.rand(4, 3, 32, 32), reconstruct=True)
    told = model.explain(IMAGE, traversals=2)
    with torch.no_grad():
        capsule = model.network.eval()(IMAGE[None]).global_capsule[0, 0]
    most = capsule.argsort(descending=True)[:2].tolist()
    assert [each.name for each in told.traversals] == [model.concepts[j] for j in most]
    assert [each.value for each in told.traversals] == pytest.approx(capsule[most].tolist(), abs=1e-6)
    assert len(explanation_document([told]).cases[0].traversals) == 2
