"""Several views of an image that are to get the same answer: in a batch, in the objective, and in a training."""

from pathlib import Path

import pytest
import torch

from parsecaps.config import load_config
from parsecaps.data.augment import Augmentation
from parsecaps.functional import consistency_loss
from parsecaps.training.fit import Run, fit
from parsecaps.training.objective import Objective
from parsecaps.training.tally import Tally, count_images
from parsecaps.types import Batch, Output
from tests.training.make import PHANTOM

SETTINGS = [*PHANTOM, "training.learning_rate=0.003", "training.epochs=6", "training.keep=last"]


def two_views() -> tuple[Output, Batch]:
    torch.manual_seed(0)
    batch = Batch(torch.rand(6, 1, 8, 8), torch.tensor([0, 1, -1] * 2), views=2)
    return Output(torch.randn(6, 2, requires_grad=True)), batch


def test_it_counts_with_its_weight_and_only_where_there_are_views() -> None:
    output, batch = two_views()
    with_it, without = (Objective(consistency_weight=weight)(output, batch) for weight in (3.0, 0.0))
    torch.testing.assert_close(with_it.consistency, consistency_loss(output.logits, 2))
    torch.testing.assert_close(with_it.total, without.total + 3 * with_it.consistency)
    assert without.consistency == 0
    assert Objective(consistency_weight=3.0)(output, batch._replace(views=1)).consistency == 0
    with pytest.raises(ValueError, match="consistency_weight is -1; give 0"):
        Objective(consistency_weight=-1)


def test_an_image_without_a_label_counts() -> None:
    output, batch = two_views()
    Objective(consistency_weight=3.0)(output, batch).total.backward()
    assert output.logits.grad is not None
    assert output.logits.grad[[2, 5]].abs().min() > 0


def test_a_tally_has_the_mean_over_the_batches_with_views() -> None:
    output, batch = two_views()
    objective, tally = Objective(consistency_weight=3.0), Tally(2)
    output = Output(output.logits.detach())
    losses = objective(output, batch)
    tally.add(output, losses, count_images(batch, objective), batch)
    values = tally.values(objective)
    assert values["consistency"] == pytest.approx(float(losses.consistency))
    assert values["loss"] == pytest.approx(float(losses.total))
    plain = batch._replace(views=1)
    tally.add(output, objective(output, plain), count_images(plain, objective), plain)
    assert tally.values(objective)["consistency"] == pytest.approx(float(losses.consistency))


def spread(run: Run) -> float:
    """How far the answers to two views of random images are from each other."""
    generator = torch.Generator().manual_seed(1)
    image = torch.rand(64, 3, 8, 8, generator=generator).repeat_interleave(4, 2).repeat_interleave(4, 3)
    views = [Augmentation()(image, generator) for _ in range(2)]
    model = run.load().model
    with torch.no_grad():
        return float(consistency_loss(model(torch.cat(views)).logits, 2))


def test_a_training_with_it_gives_steadier_answers(tmp_path: Path) -> None:
    plain = fit(load_config(None, SETTINGS), run_folder=tmp_path / "plain")
    steady = fit(load_config(None, [*SETTINGS, "training.consistency_weight=20"]), run_folder=tmp_path / "steady")
    assert spread(steady) < 0.5 * spread(plain)
    assert all(row["train_consistency"] > 0 == row["val_consistency"] for row in steady.history)
    assert all(row["train_consistency"] == 0 for row in plain.history)
