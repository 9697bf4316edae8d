"""Concepts corrected by hand in models that pass on logits, activations or mixed vectors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from parsecaps.audit.concept_audit import audit_concepts
from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.sources import open_data
from parsecaps.explain.case_memory import CaseMemory, remember
from parsecaps.explain.intervention import concept_reasoning
from parsecaps.model import Model
from parsecaps.prediction.predict import predict_cases
from parsecaps.types import Output
from tests.explain.rival_models import DATA, KINDS, make
from tests.messages import refused

IMAGE = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(1))


def decided(model: Model, output: Output, presence: np.ndarray) -> np.ndarray:
    """What the network itself gives with other presences, by its own layers."""
    network, given = model.network, torch.from_numpy(presence)[None]
    if type(network).__name__ == "CEM":
        return network.decide(output, given.float()).detach().numpy()[0]
    behind = {"presence": lambda p: p, "logit": torch.logit, "activation": lambda p: p.atanh() / 0.6333}
    return network.classes(behind[network.classes.scale](given).float())[0].detach().numpy()[0]


@pytest.mark.parametrize("name", KINDS)
def test_a_corrected_concept_gives_what_the_network_gives(name: str) -> None:
    model = make(name)
    told = model.explain(IMAGE)
    reasons, output = told.reasons, model.network(IMAGE[None])
    assert reasons is not None
    reasoning = reasons.reasoning
    assert reasons.of_model == (name != "vectors")
    assert reasons.contributions.sum(1) + reasoning.bias == pytest.approx(output.logits[0].tolist(), abs=1e-4)
    assert list(told.probabilities.values()) == pytest.approx(reasoning.probabilities(reasons.presence), abs=1e-5)
    changes = {model.concepts[0]: True, model.concepts[3]: False}
    changed = reasoning.change(reasons.presence, changes)
    assert reasoning.logits(changed) == pytest.approx(decided(model, output, changed), abs=1e-3)
    if name == "vectors":
        assert (changed[0], changed[3]) == (1, 0)  # which its vectors are made for
    if reasons.flip is not None:
        assert reasoning.logits(reasons.flip.presence).argmax() != reasoning.logits(reasons.presence).argmax()
    assert not any("beside the concepts" in note for note in told.notes)


def test_vectors_weigh_concepts_anew_in_each_image() -> None:
    model = make("vectors")
    first, second = (model.explain(image).reasons.reasoning for image in (IMAGE, IMAGE.flip(1)))
    assert np.abs(first.weight - second.weight).max() > 1e-3
    assert model.reasoning is None
    assert model.reasoning_by_image is not None
    assert model.reasoning_by_image.as_dict()["weight"] == []
    with refused(ValueError):
        concept_reasoning(model)


@pytest.mark.parametrize("name", ["logit", "activation"])
def test_present_and_absent_are_percentiles_of_training(name: str, tmp_path: Path) -> None:
    model, data = make(name), open_data(DATA)
    prepared = prepare_all(data, model.preparation, folder=tmp_path / "cache")
    memory = remember(model, CaseSet(data, prepared, range(len(data))))
    assert memory.capsules.shape == (12, 7, 0)
    (tmp_path / "known_cases").mkdir()
    memory.save(tmp_path / "known_cases")
    memory = CaseMemory.load(tmp_path / "known_cases", model)
    reasoning = concept_reasoning(model, memory)
    assert reasoning.present == pytest.approx(np.percentile(memory.presence, 95, axis=0))
    assert reasoning.absent == pytest.approx(np.percentile(memory.presence, 5, axis=0))
    model.save(tmp_path / "bundle")
    (tmp_path / "config.yaml").touch()  # by which a folder is known as a run
    told = Model.load(tmp_path).explain(IMAGE)
    assert told.similar == ()
    assert len(told.concepts[0].prototypes) > 0  # the training cases that show the concept most


@pytest.mark.parametrize("name", KINDS)
def test_the_audit_corrects_each_image_by_its_own_weights(name: str, tmp_path: Path) -> None:
    model, data = make(name), open_data(DATA)
    prepared, rows = prepare_all(data, model.preparation, folder=tmp_path), list(range(12))
    said = predict_cases(model, CaseSet(data, prepared, rows))
    unlabelled = np.arange(12) == 4
    said = replace(said, label=np.where(unlabelled, -1, said.label))
    found, notes = audit_concepts(model, CaseSet(data, prepared, rows), said, said, resamples=0)
    assert found is not None
    assert not any("alone" in note for note in notes)
    curve = found.interventions[0]
    assert curve.n == 11
    right = (said.logits.argmax(1) == said.label)[~unlabelled]
    assert curve.accuracy[0] == pytest.approx(right.mean())
    # all corrected, by the network's own layers
    last = []
    for i in np.flatnonzero(~unlabelled):
        image = torch.from_numpy(np.array(prepared.images[i])).float() / 255
        reasoning = model.explain(image).reasons.reasoning
        if name == "vectors":
            truth = said.concepts[i]
        else:
            head = replace(reasoning, **_typical(model, said))
            truth = np.where(said.concepts[i] == 1, head.present, head.absent)
        last.append(decided(model, model.network(image[None]), truth).argmax() == said.label[i])
    assert curve.accuracy[-1] == pytest.approx(np.mean(last))
    assert found.shuffled is not None


def _typical(model: Model, said: object) -> dict[str, np.ndarray]:
    from parsecaps.explain.intervention import with_typical

    found = with_typical(concept_reasoning(model), said.presence, said.concepts)  # type: ignore[attr-defined]
    return {"present": found.present, "absent": found.absent}


def test_concepts_of_others_change_the_diagnosis_of_every_one(tmp_path: Path) -> None:
    """The layers that an audit exchanges are all that the classes know of an image."""
    from parsecaps.audit.concept_audit import permuted_concepts

    data = open_data(DATA)
    for name in KINDS:
        model = make(name)
        prepared = prepare_all(data, model.preparation, folder=tmp_path)
        order = [range(12)[i] for i in np.random.default_rng(0).permutation(12)]
        own = predict_cases(model, CaseSet(data, prepared, order)).logits.argmax(1)
        label = np.array([data.cases[i].label for i in order])
        found = permuted_concepts(model, CaseSet(data, prepared, range(12)))
        assert found.shuffled == pytest.approx((np.roll(own, 1) == label).mean())
