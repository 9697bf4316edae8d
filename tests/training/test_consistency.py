"""Several views of an image that are to get the same answer: in a batch, in the objective, and in a training."""

from pathlib import Path

import pytest
import torch

from parsecaps.config import load_config
from parsecaps.data.batches import Augmentation
from parsecaps.functional import consistency_loss
from parsecaps.run import Run
from parsecaps.training.objective import EpochMeans, Objective
from parsecaps.training.terms import Classification, Consistency
from parsecaps.types import Batch, Output
from tests.messages import refused
from tests.training.make import PHANTOM, train

SETTINGS = [*PHANTOM, "training.learning_rate=0.003", "training.epochs=6", "training.keep=last"]


def two_views() -> tuple[Output, Batch]:
    torch.manual_seed(0)
    batch = Batch(torch.rand(6, 1, 8, 8), torch.tensor([0, 1, -1] * 2), views=2)
    return Output(torch.randn(6, 2, requires_grad=True)), batch


def objective(weight: float) -> Objective:
    return Objective([Classification(), Consistency(weight)])


def test_it_counts_with_its_weight_and_only_where_there_are_views() -> None:
    output, batch = two_views()
    found = [objective(weight)(output, batch) for weight in (3.0, 0.0)]
    with_it, without = (objective(3.0).total(each) for each in found)
    torch.testing.assert_close(found[0]["consistency"].mean, consistency_loss(output.logits, 2))
    torch.testing.assert_close(with_it, without + 3 * found[0]["consistency"].mean)
    assert found[1]["consistency"].mean == 0
    assert objective(3.0)(output, batch._replace(views=1))["consistency"].mean == 0
    with refused(ValueError):
        objective(-1)


def test_an_image_without_a_label_counts() -> None:
    output, batch = two_views()
    joint = objective(3.0)
    joint.total(joint(output, batch)).backward()
    assert output.logits.grad is not None
    assert output.logits.grad[[2, 5]].abs().min() > 0


def test_the_mean_of_an_epoch_is_over_the_batches_with_views() -> None:
    output, batch = two_views()
    joint, output = objective(3.0), Output(output.logits.detach())
    means, losses = EpochMeans(joint, 2), joint(output, batch)
    means.add(output.logits, losses, batch.label)
    values = means.values()
    assert values["consistency"] == pytest.approx(float(losses["consistency"].mean))
    assert values["loss"] == pytest.approx(float(joint.total(losses)))
    means.add(output.logits, joint(output, batch._replace(views=1)), batch.label)
    assert means.values()["consistency"] == pytest.approx(float(losses["consistency"].mean))


def spread(run: Run) -> float:
    """How far the answers to two views of random images are from each other."""
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(64, 3, 8, 8, generator=generator).repeat_interleave(4, 2).repeat_interleave(4, 3)
    views = [Augmentation()(image, generator) for _ in range(2)]
    model = run.model.network
    with torch.no_grad():
        return float(consistency_loss(model(torch.cat(views)).logits, 2))


def test_a_training_with_it_gives_steadier_answers(tmp_path: Path) -> None:
    plain = train(load_config(None, SETTINGS), run_folder=tmp_path / "plain")
    steady = train(load_config(None, [*SETTINGS, "training.losses.consistency=20"]), run_folder=tmp_path / "steady")
    assert spread(steady) < 0.5 * spread(plain)
    assert all(row["train_consistency"] > 0 == row["val_consistency"] for row in steady.history)
    assert all(row["train_consistency"] == 0 for row in plain.history)
