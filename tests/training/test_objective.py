"""The objective: which image counts in which loss, and with which weight."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from parsecaps.config import load_config
from parsecaps.functional import class_loss, diversity_loss, presentation_loss, reconstruction_loss, triplet_loss
from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.training.checkpoint import read_checkpoint
from parsecaps.training.objective import EpochMeans, Objective
from parsecaps.training.terms import (
    TERMS,
    Classification,
    Diversity,
    Loss,
    Presentation,
    Reconstruction,
    Term,
    Triplet,
)
from parsecaps.types import Batch, Output
from tests.messages import refused
from tests.training.make import PHANTOM, train

NAN = float("nan")
M, DIM, CLASSES = 4, 5, 3


def some_output(batch: int, *, reconstruct: bool = True) -> Output:
    capsules = torch.randn(batch, M, DIM)
    capsules = 0.9 * capsules / capsules.norm(dim=-1, keepdim=True) * torch.rand(batch, M, 1)
    capsules.requires_grad_()
    return Output(
        logits=torch.randn(batch, CLASSES, requires_grad=True),
        concept_capsules=capsules,
        presence=capsules.norm(dim=-1),
        global_capsule=torch.rand(batch, 1, M).softmax(-1),
        reconstruction=torch.randn(batch, 1, 6, 6, requires_grad=True) if reconstruct else None,
    )


def some_batch(batch: int, concepts: Tensor | None = None, label: Tensor | None = None) -> Batch:
    label = torch.randint(0, CLASSES, (batch,)) if label is None else label
    return Batch(torch.rand(batch, 1, 6, 6), label, concepts)


def objective(**changes: Any) -> Objective:
    """The paper's losses, and that for concepts without labels, with their weights."""
    wanted = {
        "class_weights": None,
        "label_smoothing": 0.0,
        "presentation_weight": 0.5,
        "concept_weights": None,
        "triplet_weight": 0.1,
        "num_concepts": M,
        "concept_dim": DIM,
        "reconstruction_weight": 0.0005,
        "diversity_weight": 0.3,
    }
    assert changes.keys() <= wanted.keys()
    w = SimpleNamespace(**{**wanted, **changes})
    terms: list[Term] = [
        Classification(w.class_weights, w.label_smoothing),
        Presentation(w.presentation_weight, w.concept_weights),
        Triplet(w.triplet_weight, num_concepts=w.num_concepts, concept_dim=w.concept_dim),
        Reconstruction(w.reconstruction_weight),
        Diversity(w.diversity_weight),
    ]
    return Objective(terms)


def measured(joint: Objective, output: Output, batch: Batch) -> SimpleNamespace:
    """The mean of each loss by name, and their total."""
    losses = joint(output, batch)
    return SimpleNamespace(total=joint.total(losses), **{name: loss.mean for name, loss in losses.items()})


def add_up(losses: SimpleNamespace) -> Tensor:
    """The losses of the paper, and the one for concepts without labels, written out."""
    paper = losses.classification + 0.5 * losses.presentation + 0.1 * losses.triplet + 0.0005 * losses.reconstruction
    return paper + 0.3 * losses.diversity


def test_with_concepts() -> None:
    output, batch = some_output(5), some_batch(5, torch.randint(0, 2, (5, M)).float())
    joint = objective()
    losses = measured(joint, output, batch)
    torch.testing.assert_close(losses.classification, class_loss(output.logits, batch.label))
    torch.testing.assert_close(losses.presentation, presentation_loss(output.presence, batch.concepts))
    embedded = joint.terms["triplet"].phrases(output.concept_capsules)
    torch.testing.assert_close(losses.triplet, triplet_loss(*embedded, batch.concepts))
    assert losses.presentation > 0
    assert losses.triplet > 0
    assert losses.reconstruction == 0
    torch.testing.assert_close(losses.total, losses.classification + 0.5 * losses.presentation + 0.1 * losses.triplet)


@pytest.mark.parametrize("concepts", [None, torch.full((5, M), NAN)], ids=["none", "all unknown"])
def test_without_concepts(concepts: Tensor | None) -> None:
    output, batch = some_output(5), some_batch(5, concepts)
    losses = measured(objective(diversity_weight=0), output, batch)
    assert losses.presentation == 0
    assert losses.triplet == 0
    torch.testing.assert_close(losses.reconstruction, reconstruction_loss(output.reconstruction, batch.image))
    torch.testing.assert_close(losses.total, losses.classification + 0.0005 * losses.reconstruction)


def test_each_image_counts_where_its_labels_allow() -> None:
    concepts = torch.tensor([[1.0, 0, NAN, 1], [NAN] * 4, [NAN, NAN, 0, NAN], [NAN] * 4])
    output, batch = some_output(4), some_batch(4, concepts, torch.tensor([0, -1, -1, 2]))
    joint = objective()
    losses = measured(joint, output, batch)
    known, unknown = [0, 2], [1, 3]
    torch.testing.assert_close(losses.presentation, presentation_loss(output.presence[known], concepts[known]))
    torch.testing.assert_close(
        losses.reconstruction, reconstruction_loss(output.reconstruction[unknown], batch.image[unknown])
    )
    torch.testing.assert_close(losses.classification, class_loss(output.logits[[0, 3]], batch.label[[0, 3]]))
    torch.testing.assert_close(losses.total, add_up(losses))
    losses.total.backward()
    assert output.logits.grad is not None
    assert (output.logits.grad != 0).any(1).tolist() == [True, False, False, True]
    assert output.concept_capsules.grad is not None
    touched = (output.concept_capsules.grad != 0).any(-1)
    assert not touched[concepts.isnan()].any()  # what is unknown costs nothing
    assert touched[0].any()
    assert output.reconstruction.grad is not None
    assert (output.reconstruction.grad != 0).flatten(1).any(1).tolist() == [False, True, False, True]


def test_no_reconstruction_was_asked_for() -> None:
    losses = measured(objective(), some_output(3, reconstruct=False), some_batch(3))
    assert losses.reconstruction == 0
    assert torch.equal(losses.total, losses.classification)


@given(st.integers(0, 4), st.booleans(), st.booleans(), st.integers(0, 100))
def test_any_batch_has_a_finite_loss_and_gradient(size: int, with_concepts: bool, reconstruct: bool, seed: int) -> None:
    torch.manual_seed(seed)
    concepts = torch.randint(0, 3, (size, M)).float()
    concepts[concepts == 2] = NAN
    output = some_output(size, reconstruct=reconstruct)
    batch = some_batch(size, concepts if with_concepts else None, torch.randint(-1, CLASSES, (size,)))
    joint = objective()
    losses = measured(joint, output, batch)
    assert all(loss.shape == () and loss.isfinite() and loss >= 0 for loss in vars(losses).values())
    torch.testing.assert_close(losses.total, add_up(losses))
    losses.total.backward()
    parts = [output.logits, output.concept_capsules, *joint.parameters()]
    assert all(part.grad is not None and part.grad.isfinite().all() for part in parts)


def test_nothing_known_at_all_costs_nothing() -> None:
    output = some_output(3, reconstruct=False)
    losses = measured(objective(), output, some_batch(3, torch.full((3, M), NAN), torch.full((3,), -1)))
    losses.total.backward()
    assert [loss.item() for loss in vars(losses).values()] == [0] * 6
    assert output.logits.grad is not None
    assert (output.logits.grad == 0).all()


def test_a_model_without_concepts_learns_classes_from_any_batch() -> None:
    output = Output(torch.randn(3, CLASSES))
    for joint in (Objective([Classification()]), objective()):
        for concepts in (None, torch.ones(3, M)):
            losses = measured(joint, output, some_batch(3, concepts))
            assert torch.equal(losses.total, losses.classification)


def test_named_weights() -> None:
    output, batch = some_output(4), some_batch(4, torch.tensor([[1.0, 0, 1, 0], [NAN] * 4] * 2))
    joint = objective(presentation_weight=2.0, triplet_weight=0.0, reconstruction_weight=3.0)
    losses = measured(joint, output, batch)
    expected = losses.classification + 2 * losses.presentation + 3 * losses.reconstruction
    torch.testing.assert_close(losses.total, expected)
    assert losses.triplet > 0


def test_concept_weights() -> None:
    output, batch = some_output(5), some_batch(5, torch.randint(0, 2, (5, M)).float())
    weights = torch.rand(2, M) + 0.5
    losses = measured(objective(concept_weights=weights.tolist()), output, batch)
    want = presentation_loss(output.presence, batch.concepts, weights=weights)
    torch.testing.assert_close(losses.presentation, want)
    assert losses.presentation != presentation_loss(output.presence, batch.concepts)


def test_class_weights_and_label_smoothing() -> None:
    output, batch = some_output(6), some_batch(6)
    losses = measured(objective(class_weights=[1, 2.0, 0.5], label_smoothing=0.1), output, batch)
    expected = class_loss(output.logits, batch.label, torch.tensor([1.0, 2.0, 0.5]), 0.1)
    torch.testing.assert_close(losses.classification, expected)


def test_phrases_are_learned() -> None:
    output, batch = some_output(4), some_batch(4, torch.ones(4, M))
    learned = objective()
    learned.total(learned(output, batch)).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in learned.parameters())


def test_the_parts_are_in_float32_under_autocast() -> None:
    output, batch = some_output(4), some_batch(4, torch.tensor([[1.0, 0, 1, 0], [NAN] * 4] * 2))
    half = Output(*(None if part is None else part.detach().bfloat16() for part in output))
    with torch.autocast("cpu", torch.bfloat16):
        losses = measured(objective(), half, batch)
    assert all(loss.dtype == torch.float32 and loss.isfinite() for loss in vars(losses).values())


@pytest.mark.parametrize("head", ["parallel", "bottleneck"])
def test_it_trains_a_model(head: str) -> None:
    """Mixed labels: half of the images know their concepts, the others are reconstructed."""
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=2, head=head, dropout=0.0)
    joint = objective(num_concepts=2, concept_dim=model.config["concept_dim"])
    image, label = 0.2 * torch.rand(8, 1, 32, 32), torch.arange(8) % 2
    image[label == 1, :, 8:24, 8:24] += 0.8
    concepts = torch.stack([label, 1 - label], 1).float()
    concepts[4:] = NAN
    batch = Batch(image, label, concepts)
    optimizer = torch.optim.Adam([*model.parameters(), *joint.parameters()], lr=5e-3)
    totals = []
    for _ in range(20):
        losses = measured(joint, model(image, reconstruct=True), batch)
        optimizer.zero_grad()
        losses.total.backward()
        optimizer.step()
        totals.append(losses)
    assert totals[-1].total < totals[0].total
    assert totals[-1].presentation < totals[0].presentation
    assert totals[-1].reconstruction < totals[0].reconstruction


def test_it_takes_the_output_of_the_plain_cnn() -> None:
    model = PlainCNN(num_classes=2, image_size=28, grid_width=14, stem_channels=(4, 4, 4, 4), channels=(4,))
    batch = Batch(torch.rand(2, 1, 28, 28), torch.tensor([0, 1]))
    assert measured(Objective([Classification()]), model(batch.image), batch).total > 0


@pytest.mark.parametrize(
    "changes",
    [
        {"presentation_weight": -1},
        {"triplet_weight": NAN},
        {"reconstruction_weight": float("inf")},
        {"class_weights": [1, -2.0]},
        {"label_smoothing": 1.0},
        {"num_concepts": -1},
    ],
    ids=str,
)
def test_bad_arguments(changes: dict[str, Any]) -> None:
    with refused(ValueError):
        objective(**changes)


@pytest.mark.parametrize(
    ("joint", "concepts"),
    [
        (objective(num_concepts=0), None),
        (objective(concept_dim=6), None),
        (objective(), torch.ones(2, 3)),
        (objective(class_weights=[1, 1]), None),
    ],
    ids=["no concepts", "dimension", "batch", "class weights"],
)
def test_what_does_not_fit_together(joint: Objective, concepts: Tensor | None) -> None:
    with refused(ValueError):
        joint(some_output(2), some_batch(2, concepts))


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_diversity_counts_where_the_data_name_no_concepts(weight: float) -> None:
    output = some_output(8)
    joint = objective(diversity_weight=weight)
    losses = measured(joint, output, some_batch(8))
    plain = measured(objective(diversity_weight=0), output, some_batch(8))
    assert losses.diversity == (diversity_loss(output.presence) if weight else 0)
    labelled = some_batch(8, torch.full((8, M), NAN))  # unknown, but of data that name concepts
    assert measured(joint, output, labelled).diversity == 0
    without = measured(objective(diversity_weight=0), output, labelled)
    assert torch.equal(measured(joint, output, labelled).total, without.total)
    assert plain.diversity == 0
    rest = losses.classification + 0.0005 * losses.reconstruction
    torch.testing.assert_close(losses.total, rest + weight * losses.diversity)


def test_of_several_sets_an_answer_is_right_among_its_own_classes() -> None:
    logits = torch.tensor([[1.0, 0.0, 9.0, 8.0], [2.0, 3.0, 0.0, 9.0], [9.0, 0.0, 1.0, 2.0], [0.0, 9.0, 1.0, 0.0]])
    batch = Batch(torch.rand(4, 1, 6, 6), torch.tensor([0, 0, 3, -1]))
    joint = Objective([Classification(class_sets=[0, 0, 1, 1])])
    assert torch.equal(joint.class_sets, torch.tensor([0, 0, 1, 1]))
    means = EpochMeans(joint, 4)
    means.add(logits, joint(Output(logits), batch), batch.label)
    values = means.values()
    assert values["accuracy"] == pytest.approx(2 / 3)  # the second is taken for class 1
    assert values["balanced_accuracy"] == pytest.approx((0.5 + 1) / 2)
    own = [
        torch.nn.functional.cross_entropy(row, torch.tensor(label))
        for row, label in zip((logits[0, :2], logits[1, :2], logits[2, 2:]), (0, 0, 1), strict=True)
    ]
    assert values["classification"] == pytest.approx(float(sum(own)) / 3)
    apart = Objective([Classification()])
    assert apart.class_sets is None
    means = EpochMeans(apart, 4)
    means.add(logits, apart(Output(logits), batch), batch.label)
    assert means.values()["accuracy"] == 0


def test_several_sets_have_no_label_smoothing() -> None:
    with refused(ValueError):
        Classification(label_smoothing=0.1, class_sets=[0, 1])
    assert Classification(label_smoothing=0.1).label_smoothing == 0.1
    assert "class_sets" not in Classification(class_sets=[0, 1]).state_dict()  # a checkpoint without is read too


class Sparsity(Term):
    """A loss of somebody else: the mean presence of the concepts."""

    name = "sparsity"

    def forward(self, output: Output, batch: Batch) -> Loss:
        assert output.presence is not None
        images = torch.tensor(float(len(batch.label)))
        return Loss(output.presence.mean(1).sum(), images)


def test_a_loss_from_outside_is_one_more_term(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in the total, the history, the log and the checkpoint, and nothing else knows of it."""
    monkeypatch.setattr("parsecaps.training.terms.TERMS", terms := [*TERMS, Sparsity])
    monkeypatch.setattr("parsecaps.training.objective.TERMS", terms)
    with refused(ValueError):
        train(load_config(None, [*PHANTOM, "training.losses.sparsety=1"]), run_folder=tmp_path / "run")
    with refused(ValueError):
        train(load_config(None, [*PHANTOM, "training.losses.sparsity={weight: 1, most: 3}"]), run_folder=tmp_path)
    run = train(load_config(None, [*PHANTOM, "training.losses.sparsity=0.25"]), run_folder=tmp_path / "run")
    known = {"classification": 1.0, "presentation": 0.5, "triplet": 0.1, "sparsity": 0.25}
    for row in run.history:
        assert row["train_sparsity"] > 0
        total = sum(weight * row[f"val_{name}"] for name, weight in known.items())
        assert row["val_loss"] == pytest.approx(total, rel=1e-6)
    assert "sparsity" in read_checkpoint(run.last_checkpoint)["means"]["sums"]
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.log_folder))
    events.Reload()
    assert [event.value for event in events.Scalars("val_sparsity")] == pytest.approx(
        [row["val_sparsity"] for row in run.history]
    )
