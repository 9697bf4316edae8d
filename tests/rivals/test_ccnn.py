"""CCNN and CoherentCNN keep the contract, have the published sizes, and learn by maps of concepts."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from parsecaps.config import TrainingSection
from parsecaps.explain.attribution import grad_cam
from parsecaps.explain.attribution_path import Target
from parsecaps.models import load_model
from parsecaps.nn.heads import RATE
from parsecaps.rivals import CCNN, CoherentCNN, ResNet18
from parsecaps.training.objective import Objective
from parsecaps.training.terms import TermContext
from parsecaps.types import Batch
from tests.messages import refused
from tests.models.contract import ExportContract, ModelContract, warmed_up


class TestCCNN(ExportContract):
    def build(self) -> CCNN:
        return CCNN.from_preset("tiny", num_classes=3)


class TestCoherentOnConvolutionsInColour(ModelContract):
    def build(self) -> CoherentCNN:
        return CoherentCNN.from_preset("tiny", num_classes=2, in_channels=3, backbone="ConvVGG16")


class TestOnANetworkWithLinearLayers(ModelContract):
    def build(self) -> CCNN:
        return CCNN.from_preset("tiny", num_classes=2, backbone="VGG19")


def count(*parts: nn.Module) -> int:
    return sum(p.numel() for part in parts for p in part.parameters())


def test_sizes_are_those_of_the_published_models() -> None:
    sizes = {"num_classes": 2, "num_concepts": 8, "in_channels": 3, "backbone": "ConvVGG16"}
    assert count(CoherentCNN(**sizes)) == 14_718_810
    assert count(CCNN(**sizes)) == 14_718_810 - 2  # without a bias


@pytest.mark.parametrize("kind", [CCNN, CoherentCNN])
def test_the_classes_are_a_sum_over_mean_activations(kind: type[CCNN]) -> None:
    model = warmed_up(kind.from_preset("tiny", num_classes=2))
    output = model(torch.rand(4, 1, 32, 32))
    activation = output.concept_features.mean((2, 3))
    bias = 0 if model.classes.bias is None else model.classes.bias
    torch.testing.assert_close(output.logits, activation @ model.classes.weight.T + bias)
    torch.testing.assert_close(output.presence.atanh() / RATE, activation, rtol=1e-4, atol=1e-4)
    assert math.tanh(RATE * math.atanh(0.7)) == pytest.approx(0.5)  # where a concept is said to be present


def test_the_map_of_a_concept_is_its_grad_cam() -> None:
    model = warmed_up(CCNN.from_preset("tiny", num_classes=2, image_size=64))
    image = torch.rand(2, 1, 64, 64)
    maps = model(image).concept_features
    found = grad_cam(model, image, [Target("concepts", j) for j in range(3)])
    assert found.shape == (2, 3, 64, 64)
    seen = maps.flatten(2).amax(2) > 0
    assert seen.any()
    for i, j in seen.nonzero().tolist():
        top = maps[i, j].flatten().argmax().item()
        scale = 64 // maps.shape[-1]
        row, column = (place * scale + scale // 2 for place in divmod(top, maps.shape[-1]))
        assert found[i, j, row, column] >= 0.8 * found[i, j].max()


def objective(model: nn.Module, **weights: float) -> Objective:
    training = TrainingSection(losses={"diversity": 0.0, **weights})
    return Objective.build(TermContext(training, model))


def test_semantic_and_counter_loss_share_one_joint_space_of_the_published_size() -> None:
    made = objective(CCNN.from_preset("tiny", num_classes=2))
    semantic, counter = made.terms["semantic"], made.terms["counter"]
    assert semantic.phrases is counter.phrases
    assert count(semantic) == 5_904 + 3 * 50  # and the phrases, which are learned
    assert count(made) == count(semantic)
    assert {name: term.weight for name, term in made.terms.items() if term.weight} == dict(CCNN.losses)
    assert "coherence" in objective(CoherentCNN.from_preset("tiny", num_classes=2)).terms


@pytest.mark.parametrize("kind", [CCNN, CoherentCNN])
def test_training_finds_the_concepts(kind: type[CCNN]) -> None:
    """Concept 0 is a bright spot on the left, 1 on the right; the class is whether the first is there."""
    torch.manual_seed(0)
    concepts = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]).repeat(4, 1)
    image, mask = 0.1 * torch.rand(16, 1, 32, 32), torch.zeros(16, 1, 28, 28)
    for i, (left, right) in enumerate(concepts.tolist()):
        image[i, :, 10:22, 4:12] += left
        image[i, :, 10:22, 20:28] += right
        mask[i, :, 9:19] = 1
    batch = Batch(image, concepts[:, 0].long(), concepts, mask=mask)
    model = kind.from_preset("tiny", num_classes=2, num_concepts=2, dropout=0.1)
    made = objective(model)
    model.start(batch.label, concepts)
    assert model.classes.weight[1].tolist() == pytest.approx([0.1, 0])
    optimizer = torch.optim.Adam([*model.parameters(), *made.parameters()], lr=3e-3)
    first = last = 0.0
    for _ in range(60):
        losses = made(model.train()(image), batch)
        total = made.total(losses)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        first, last = first or total.item(), total.item()
    assert set(losses) >= set(kind.losses)
    assert last < 0.7 * first
    output = model.eval()(image)
    assert (output.logits.argmax(1) == batch.label).float().mean() > 0.9
    own = torch.stack([output.presence[concepts[:, j] == 1, j].mean() for j in range(2)])
    others = torch.stack([output.presence[concepts[:, j] == 0, j].mean() for j in range(2)])
    assert (own > others).all()


def test_a_model_without_maps_is_refused_such_a_loss() -> None:
    with refused(ValueError):
        objective(ResNet18.from_preset("tiny", num_classes=2), counter=0.2)
    with refused(ValueError):
        objective(ResNet18.from_preset("tiny", num_classes=2, num_concepts=0), concept_cross_entropy=1.0)
    made = objective(ResNet18.from_preset("tiny", num_classes=2), concept_cross_entropy=1.0)
    output = ResNet18.from_preset("tiny", num_classes=2)(torch.rand(2, 1, 32, 32))
    batch = Batch(torch.rand(2, 1, 32, 32), torch.tensor([0, 1]), torch.tensor([[1.0, 0, 1], [0, 0, 1]]))
    wanted = nn.functional.binary_cross_entropy(output.presence, batch.concepts)
    torch.testing.assert_close(made(output, batch)["concept_cross_entropy"].mean, wanted, rtol=1e-4, atol=1e-5)


def test_published_size_can_be_read_back(tmp_path: Path) -> None:
    model = CCNN(num_classes=2, num_concepts=3, image_size=96, backbone="ConvVGG16").eval()
    model.save_pretrained(tmp_path)
    image = torch.rand(1, 1, 96, 96)
    torch.testing.assert_close(load_model(tmp_path)(image).logits, model(image).logits)
