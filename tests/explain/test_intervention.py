import json
import math

import numpy as np
import pytest
import torch

from parsecaps.data.preparation import Preparation
from parsecaps.explain.intervention import concept_reasoning, with_typical
from parsecaps.model import Model
from parsecaps.models import ParseCaps
from tests.explain.make import make_memory, make_reasoning
from tests.messages import refused


def make_model(head: str = "bottleneck") -> Model:
    model = ParseCaps.from_preset("tiny", num_classes=3, num_concepts=4, head=head).eval()
    return Model(model, Preparation(size=32), ("a", "b", "c"), ("size=big", "veil", "size=small", "size=none"))


def test_contributions_and_bias_add_up_to_the_models_logits() -> None:
    own = make_model()
    with torch.no_grad():
        own.network.classes.bias.normal_()
        output = own.network(torch.rand(5, 1, 32, 32))
    reasoning = concept_reasoning(own)
    presence = output.presence.double().numpy()
    assert reasoning.logits(presence) == pytest.approx(output.logits.numpy(), abs=1e-6)
    assert reasoning.contributions(presence) == pytest.approx(output.class_capsules.numpy(), abs=1e-6)
    summed = reasoning.contributions(presence).sum(-1) + reasoning.bias
    assert summed == pytest.approx(reasoning.logits(presence), abs=1e-12)


def test_a_page_can_repeat_it_from_the_json() -> None:
    reasoning = concept_reasoning(make_model(), temperature=1.7)
    stored = json.loads(json.dumps(reasoning.as_dict()))
    presence = [0.2, 0.7, 0.9, 0.4]
    logits = [
        sum(w * p for w, p in zip(row, presence, strict=True)) + b
        for row, b in zip(stored["weight"], stored["bias"], strict=True)
    ]
    powers = [math.exp(logit / stored["temperature"]) for logit in logits]
    expected = [power / sum(powers) for power in powers]
    assert reasoning.probabilities(np.array(presence)).tolist() == pytest.approx(expected, abs=1e-12)
    assert stored["group"] == [0, 1, 0, 0]
    assert stored["present"] == [0.9] * 4


def test_set_concepts_take_the_typical_presence_and_exclude_each_other() -> None:
    reasoning = concept_reasoning(make_model())
    presence = np.array([0.2, 0.7, 0.8, 0.3])
    assert reasoning.change(presence, {"veil": False}).tolist() == [0.2, 0.1, 0.8, 0.3]
    assert reasoning.change(presence, {"size=big": True}).tolist() == [0.9, 0.7, 0.1, 0.1]
    assert reasoning.change(presence, {"size=small": False}).tolist() == [0.2, 0.7, 0.1, 0.3]
    assert presence.tolist() == [0.2, 0.7, 0.8, 0.3]
    with refused(ValueError):
        reasoning.change(presence, {"size=big": True, "size=none": True})
    with refused(ValueError):
        reasoning.change(presence, {"vail": True})


def test_a_change_moves_the_logits_by_weight_times_change() -> None:
    reasoning = make_reasoning(np.array([[2.0, -1], [0, 3]]), np.array([0.5, 0]))
    before, after = np.array([0.3, 0.6]), reasoning.change(np.array([0.3, 0.6]), {"c0": True})
    assert reasoning.logits(after) - reasoning.logits(before) == pytest.approx([2 * 0.6, 0])


def test_typical_presences() -> None:
    nan = np.nan
    presence = np.array([[0.8, 0.30, 0.2], [0.7, 0.40, 0.3], [0.6, 0.45, 0.2], [0.4, 0.50, 0.9], [0.2, 0.60, 0.1]])
    truth = np.array([[1, nan, 0], [1, nan, 0], [nan, nan, 0], [1, nan, 0], [0, nan, nan]], dtype=float)
    found = with_typical(make_reasoning(np.zeros((2, 3))), presence, truth)
    absent, present, threshold = found.absent, found.present, found.threshold
    # the one of 0.4 has the concept but does not show it
    assert (present[0], absent[0], threshold[0]) == (0.75, 0.2, 0.5)
    # unknown: percentiles of all, the middle between them
    assert present[1] == pytest.approx(np.percentile(presence[:, 1], 95))
    assert absent[1] == pytest.approx(np.percentile(presence[:, 1], 5))
    assert threshold[1] == pytest.approx((present[1] + absent[1]) / 2)
    # never present in truth: the margin; absent: without the one that shows it wrongly
    assert (present[2], absent[2]) == (0.9, 0.2)


def test_memory_gives_typical_presences() -> None:
    presence = np.random.default_rng(0).random((40, 4))
    memory = make_memory(presence, truth=(presence > 0.4).astype(float))
    reasoning = concept_reasoning(make_model(), memory)
    shown = presence[:, 1][presence[:, 1] > 0.5]
    assert reasoning.present[1] == np.median(shown)
    assert concept_reasoning(make_model(), memory, temperature=2).temperature == 2


def test_a_parallel_head_is_refused_with_the_way_out() -> None:
    with refused(ValueError):
        concept_reasoning(make_model("parallel"))
