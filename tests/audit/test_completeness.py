from dataclasses import replace

import numpy as np
import pytest
import torch

from parsecaps.audit.concept_audit import concept_completeness, permuted_concepts
from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation, dequantise
from parsecaps.data.sources import open_data
from parsecaps.model import Model
from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.prediction.predict import predict_cases
from tests.messages import refused

PREPARATION = Preparation(size=32, channels=3)


@pytest.fixture(scope="module")
def phantom() -> tuple[DataSet, PreparedImages]:
    data = open_data("phantom:n=65,size=32")
    return data, prepare_all(data, PREPARATION)


def make_model(data: DataSet, prepared: PreparedImages, head: str) -> Model:
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=7, in_channels=3, head=head)
    with torch.no_grad():  # the statistics of the images: without them all look nearly the same
        model.concepts.readout.over_dim.mul_(5)
        for _ in range(10):
            model.train()(dequantise(torch.from_numpy(prepared.images[:32].copy())))
    return Model(model, PREPARATION, data.classes, data.concepts)


def test_a_bottleneck_decides_for_the_image_whose_concepts_it_got(phantom: tuple[DataSet, PreparedImages]) -> None:
    data, prepared = phantom
    own = make_model(data, prepared, "bottleneck")
    head = own.network.classes
    with torch.no_grad():  # half of the images are of each class, clearly
        head.weight.mul_(50)
        said = predict_cases(own, CaseSet(data, prepared, range(65)))
        difference = said.logits[:, 1] - said.logits[:, 0]
        head.bias[0] += float(np.median(difference))
        own_label = predict_cases(own, CaseSet(data, prepared, range(65))).logits.argmax(1)
    cases = [replace(case, label=int(label)) for case, label in zip(data.cases, own_label, strict=True)]
    found = permuted_concepts(own, CaseSet(replace(data, cases=cases), prepared, range(65)))
    assert found.accuracy == 1
    share = own_label.mean()
    assert found.chance == pytest.approx(share**2 + (1 - share) ** 2)
    assert 0.3 < found.shuffled < 0.7
    assert found.survives == pytest.approx((found.shuffled - found.chance) / (1 - found.chance))
    # each image's diagnosis is that of the one before it, in batches of 65
    order = np.random.default_rng(0).permutation(65)
    assert found.shuffled == pytest.approx((own_label[order] == np.roll(own_label[order], 1)).mean())
    assert not own.network.concepts._forward_hooks


def test_a_parallel_head_does_not_notice(phantom: tuple[DataSet, PreparedImages]) -> None:
    data, prepared = phantom
    found = permuted_concepts(make_model(data, prepared, "parallel"), CaseSet(data, prepared, range(20)))
    assert found.shuffled == found.accuracy
    assert found.survives in (None, 1.0)


def test_presences_explain_a_bottleneck_wholly(phantom: tuple[DataSet, PreparedImages]) -> None:
    data, prepared = phantom
    said = predict_cases(make_model(data, prepared, "bottleneck"), CaseSet(data, prepared, range(65)))
    found = concept_completeness(said.subset(range(40)), said.subset(range(40, 65)))
    assert found.r2 == pytest.approx(1, abs=1e-4)
    assert (found.agreement, found.n) == (1, 25)
    assert found.accuracy == found.model_accuracy


def test_presences_explain_nothing_that_is_not_theirs(phantom: tuple[DataSet, PreparedImages]) -> None:
    data, prepared = phantom
    said = predict_cases(make_model(data, prepared, "parallel"), CaseSet(data, prepared, range(65)))
    random = np.random.default_rng(0)
    first = 3 * random.choice([-1, 1], 65)
    foreign = replace(said, logits=np.column_stack([first, -first]) + 5.0, label=(first < 0).astype(int))
    found = concept_completeness(foreign.subset(range(40)), foreign.subset(range(40, 65)))
    assert found.r2 < 0.2
    assert found.agreement < 0.8
    assert found.model_accuracy == 1
    assert found.accuracy == found.agreement
    assert found.most_frequent == max((first[40:] > 0).mean(), (first[40:] < 0).mean())
    # a shift of all logits of a case changes no decision, and costs nothing
    shifted = replace(foreign, logits=foreign.logits + random.normal(size=(65, 1)))
    again = concept_completeness(shifted.subset(range(40)), shifted.subset(range(40, 65)))
    assert again.r2 == pytest.approx(found.r2)


def test_what_cannot_be_measured_is_refused(phantom: tuple[DataSet, PreparedImages]) -> None:
    data, prepared = phantom
    plain = PlainCNN(num_classes=2, in_channels=3, image_size=32, grid_width=16)
    with refused(ValueError):
        permuted_concepts(Model(plain, PREPARATION, data.classes, ()), CaseSet(data, prepared, range(5)))
