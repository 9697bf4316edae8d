"""CBM and CEM keep the contract of every model, have the published sizes, and decide by their concepts alone."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from parsecaps.config import TrainingSection
from parsecaps.models import load_model
from parsecaps.rivals import CBM, CEM, ResNet18
from parsecaps.training.objective import Objective
from parsecaps.training.terms import TermContext
from parsecaps.types import Batch
from tests.models.contract import CompileContract, ExportContract, ModelContract, warmed_up


class TestCBM(ExportContract):
    wrong = ({"mode": "both"}, {"passes": "all"}, {"mode": "independent", "passes": "logit"})

    def build(self) -> CBM:
        return CBM.from_preset("tiny", num_classes=3)


class TestSequentialInColour(ModelContract):
    def build(self) -> CBM:
        return CBM.from_preset("tiny", num_classes=2, in_channels=3, mode="sequential")


class TestIndependentOnAResidualNetwork(ModelContract):
    def build(self) -> CBM:
        settings = {"backbone": "ResNet18", "image_size": 45, "mode": "independent"}
        return CBM.from_preset("tiny", num_classes=3, **settings)


class TestCEM(CompileContract, ExportContract):
    wrong = ({"backbone": "ParseCaps"}, {"backbone_preset": "huge"}, {"randint": 1.5}, {"embedding_dim": 0})

    def build(self) -> CEM:
        return CEM.from_preset("tiny", num_classes=3)

    def test_the_logits_are_linear_in_the_presences_of_an_image(self) -> None:
        model = warmed_up(self.build())
        image = self.images(model)
        output = model(image)
        vectors, _, logits = model.concepts(model.backbone.features(model.standardise(image)))
        torch.testing.assert_close(output.presence, logits.sigmoid())
        for presence in (torch.zeros(3, 3), torch.rand(3, 3), torch.ones(3, 3)):
            mixed = presence[..., None] * vectors[:, :, 0] + (1 - presence[..., None]) * vectors[:, :, 1]
            wanted = mixed.flatten(1) @ model.classes.weight.flatten(1).T + model.classes.bias
            torch.testing.assert_close(model.decide(output, presence), wanted)
        assert (output.concept_weights.std(0) > 1e-4).any(), "the weights differ between images"


def count(*parts: torch.nn.Module) -> int:
    return sum(p.numel() for part in parts for p in part.parameters())


def test_sizes_are_those_of_the_published_models() -> None:
    sizes = {"num_classes": 2, "num_concepts": 7, "in_channels": 3}
    assert count(CBM(**sizes, backbone="ResNet34")) == 21_288_279
    cem = CEM(**sizes, backbone="ResNet18")  # which has 512 features too
    assert count(cem.concepts, cem.classes) == 115_171
    assert count(cem.backbone) == count(ResNet18(num_classes=2, in_channels=3)) - 2 * 513


def objective(model: CBM | CEM) -> Objective:
    return Objective.build(TermContext(TrainingSection(), model))


def gradients(model: CBM | CEM, concepts: Tensor, term: str = "classification") -> dict[str, float]:
    """How large the gradients of a loss are in the backbone, the layer of the concepts and that of the classes."""
    torch.manual_seed(3)
    batch = Batch(torch.rand(4, 1, 32, 32), torch.tensor([0, 1, 1, 0]), concepts)
    made = objective(model).train()
    model.zero_grad()
    made(model.train()(batch.image), batch)[term].mean.backward()
    parts = {"backbone": model.backbone, "concepts": model.concepts, "classes": model.classes}
    return {
        name: max((float(p.grad.abs().max()) for p in part.parameters() if p.grad is not None), default=0.0)
        for name, part in parts.items()
    }


@pytest.mark.parametrize(
    ("mode", "passes", "reaches"),
    [
        ("joint", "presence", True),
        ("joint", "logit", True),
        ("sequential", "logit", False),
        ("independent", "presence", False),
    ],
)
def test_what_the_loss_of_the_classes_reaches(mode: str, passes: str, reaches: bool) -> None:
    model = CBM.from_preset("tiny", num_classes=2, mode=mode, passes=passes)
    concepts = torch.tensor([[1.0, 0, 1], [0, 0, 1], [1, torch.nan, 0], [0, 1, 1]])
    found = gradients(model, concepts)
    assert found["classes"] > 1e-4
    assert (found["concepts"] > 1e-6, found["backbone"] > 1e-6) == (reaches, reaches)
    of_concepts = gradients(model, concepts, "concept_cross_entropy")
    assert of_concepts["backbone"] > 1e-6
    assert of_concepts["classes"] == 0


@pytest.mark.parametrize(
    ("mode", "now", "before"),
    [("joint", "logit", "presence"), ("sequential", "logit", "logit"), ("independent", "presence", "presence")],
)
def test_a_saved_model_reads_what_it_learned_to_read(mode: str, now: str, before: str, tmp_path: Path) -> None:
    """Also one whose configuration says `auto`, from when a joint model passed presences on."""
    model, image = CBM.from_preset("tiny", num_classes=2, mode=mode).eval(), torch.rand(2, 1, 32, 32)
    output = model(image)
    read = {"logit": output.concept_features, "presence": output.presence}
    assert model.config["passes"] == now
    model.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    for passes, wanted in ((now, now), ("auto", before)):
        file.write_text(file.read_text().replace(f'"passes": "{now}"', f'"passes": "{passes}"'))
        loaded = load_model(tmp_path)
        expected = read[wanted] @ model.classes.weight.T + model.classes.bias
        torch.testing.assert_close(loaded(image).logits, expected)
        assert loaded.config["passes"] == wanted


def test_independent_classes_learn_from_true_concepts_alone() -> None:
    model = CBM.from_preset("tiny", num_classes=2, mode="independent").train()
    made, concepts = objective(model).train(), torch.tensor([[1.0, 0, 1], [0, 0, torch.nan]])
    batch = Batch(torch.rand(2, 1, 32, 32), torch.tensor([0, 1]), concepts)
    output = model(batch.image)
    read = torch.where(concepts.isnan(), output.presence, concepts)
    wanted = torch.nn.functional.cross_entropy(read @ model.classes.weight.T + model.classes.bias, batch.label)
    torch.testing.assert_close(made(output, batch)["classification"].mean, wanted)
    # a validation is of what the model itself sees
    wanted = torch.nn.functional.cross_entropy(output.logits, batch.label)
    torch.testing.assert_close(made.eval()(output, batch)["classification"].mean, wanted)


def test_randint_sets_a_quarter_of_the_concepts_by_one_draw_for_a_batch() -> None:
    model = CEM.from_preset("tiny", num_classes=2, num_concepts=4)
    made, concepts = objective(model).train(), torch.tensor([[1.0, 0, 1, torch.nan]] * 5)
    batch = Batch(torch.rand(5, 1, 32, 32), torch.zeros(5).long(), concepts)
    output = model(batch.image)
    seen: list[Tensor] = []
    decide = model.decide
    model.decide = lambda output, presence: [seen.append(presence.detach()), decide(output, presence)][1]  # type: ignore[method-assign]
    for seed in range(400):
        torch.manual_seed(seed)
        made(output, batch)
    replaced = torch.stack([presence != output.presence for presence in seen])  # (draws, images, concepts)
    assert (replaced == replaced[:, :1]).all(), "the same concepts in all images of a batch"
    share = replaced[:, 0].float().mean(0).numpy()
    assert share[3] == 0  # of which the truth is unknown
    np.testing.assert_allclose(share[:3], 0.25, atol=0.08)
    assert all(
        (presence[:, :3][replaced[i][:, :3]] == concepts[:, :3][replaced[i][:, :3]]).all()
        for i, presence in enumerate(seen)
    )


def test_a_set_concept_gets_no_gradient_from_the_classes() -> None:
    model = CEM.from_preset("tiny", num_classes=2, randint=1.0)
    output = model(torch.rand(2, 1, 32, 32))
    output.presence.retain_grad()
    model.decide(output, torch.ones(2, 3))[:, 0].sum().backward()
    assert output.presence.grad.abs().max() < 1e-6
