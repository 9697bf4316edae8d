"""The objective: each image contributes what its labels allow."""

import pytest
import torch

from parsecaps.functional import class_loss, presentation_loss, reconstruction_loss, triplet_loss
from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.training.objective import Objective
from parsecaps.types import Batch, Output

NAN = float("nan")


@pytest.fixture
def model() -> ParseCaps:
    return ParseCaps.from_preset("tiny", num_classes=3)


@pytest.fixture
def objective() -> Objective:
    return Objective(num_concepts=3, concept_dim=8)


def batch(concepts: list[list[float]] | None, labels: list[int]) -> Batch:
    image = torch.rand(len(labels), 1, 32, 32)
    return Batch(image, torch.tensor(labels), None if concepts is None else torch.tensor(concepts))


def test_with_concepts_it_is_the_papers_loss(model: ParseCaps, objective: Objective) -> None:
    data = batch([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]], [0, 2])
    output = model(data.image, reconstruct=True)
    losses = objective(output, data)
    assert objective.phrases is not None
    capsules, phrases = objective.phrases(output.concept_capsules)
    expected = (
        class_loss(output.logits, data.label)
        + 0.5 * presentation_loss(output.presence, data.concepts)
        + 0.1 * triplet_loss(capsules, phrases, data.concepts)
    )
    torch.testing.assert_close(losses.total, expected)
    assert losses.reconstruction == 0


def test_without_concepts_it_is_the_papers_other_loss(model: ParseCaps, objective: Objective) -> None:
    data = batch(None, [0, 2])
    output = model(data.image, reconstruct=True)
    losses = objective(output, data)
    expected = class_loss(output.logits, data.label) + 0.0005 * reconstruction_loss(output.reconstruction, data.image)
    torch.testing.assert_close(losses.total, expected)
    assert losses.presentation == losses.triplet == 0


def test_mixed_images_contribute_what_they_have(model: ParseCaps, objective: Objective) -> None:
    mixed = batch([[1.0, NAN, 0.0], [NAN, NAN, NAN]], [-1, 1])
    output = model(mixed.image, reconstruct=True)
    losses = objective(output, mixed)
    first = Output(*(None if part is None else part[:1] for part in output))
    second = Output(*(None if part is None else part[1:] for part in output))
    one = objective(first, Batch(mixed.image[:1], mixed.label[:1], mixed.concepts[:1]))
    other = objective(second, Batch(mixed.image[1:], mixed.label[1:], mixed.concepts[1:]))
    torch.testing.assert_close(losses.classification, other.classification)
    torch.testing.assert_close(losses.presentation, one.presentation)
    torch.testing.assert_close(losses.triplet, one.triplet)
    torch.testing.assert_close(losses.reconstruction, other.reconstruction)
    assert one.classification == one.reconstruction == other.presentation == other.triplet == 0


def test_a_batch_that_knows_nothing_costs_nothing_and_can_be_trained_on(model: ParseCaps, objective: Objective) -> None:
    data = batch([[NAN, NAN, NAN]] * 2, [-1, -1])
    losses = objective(model(data.image), data)
    losses.total.backward()
    assert losses.total == 0
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_gradients_reach_concepts_and_phrases(model: ParseCaps, objective: Objective) -> None:
    data = batch([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]], [0, 1])
    objective(model(data.image), data).total.backward()
    assert model.concepts is not None
    for p in [*model.concepts.readout.parameters(), *objective.parameters()]:
        assert p.grad is not None
        assert p.grad.abs().sum() > 0


def test_a_model_without_concepts() -> None:
    data = batch(None, [0, 1])
    cnn = PlainCNN(num_classes=2, image_size=32)
    output = cnn(data.image)
    losses = Objective()(output, data)
    torch.testing.assert_close(losses.total, class_loss(output.logits, data.label))


@pytest.mark.parametrize("weight", [-1.0, float("inf"), NAN])
def test_a_weight_that_makes_no_sense(weight: float) -> None:
    with pytest.raises(ValueError, match=r"triplet_weight is .*; give 0 \(off\) or a positive number"):
        Objective(triplet_weight=weight)


def test_concepts_that_do_not_fit(model: ParseCaps) -> None:
    data = batch([[1.0, 0.0, 1.0]], [0])
    with pytest.raises(ValueError, match="build the objective with num_concepts=3, concept_dim=8"):
        Objective(num_concepts=2, concept_dim=8)(model(data.image), data)
