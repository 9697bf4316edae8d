"""Images that are mixed with each other: in a batch, in the objective, and in a training."""

from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from parsecaps.config import load_config
from parsecaps.functional import class_loss
from parsecaps.training.objective import EpochMeans, Objective
from parsecaps.training.terms import Classification
from parsecaps.types import Batch, Mixed, Output
from tests.training.make import PHANTOM, train


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, torch.tensor([0.5, 1.0, 3.0])])
def test_the_loss_is_that_of_soft_labels(weight: torch.Tensor | None, smoothing: float) -> None:
    torch.manual_seed(0)
    logits, label, other, share = torch.randn(4, 3), torch.tensor([0, 1, 2, -1]), torch.tensor([2, 1, 0, -1]), 0.7
    soft = share * F.one_hot(label[:3], 3) + (1 - share) * F.one_hot(other[:3], 3)
    counts = soft.sum() if weight is None else (soft * weight).sum()
    expected = F.cross_entropy(logits[:3], soft, weight, reduction="sum", label_smoothing=smoothing) / counts
    found = class_loss(logits, label, weight, smoothing, other=other, share=share)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        class_loss(logits, label, weight, other=label, share=0.6), class_loss(logits, label, weight)
    )


def test_the_mean_over_mixtures_adds_up() -> None:
    """Two batches apart and together, by weights of classes that differ between label and other."""
    torch.manual_seed(0)
    objective = Objective([Classification([0.5, 2.0, 3.0])])
    logits, label, other = torch.randn(4, 3), torch.tensor([0, 1, 2, 0]), torch.tensor([2, 0, 1, 0])
    means = EpochMeans(objective, 3)
    for part in (slice(0, 1), slice(1, 4)):
        piece = Batch(torch.zeros(len(label[part]), 1, 4, 4), label[part], mixed=Mixed(other[part], 0.8))
        means.add(logits[part], objective(Output(logits[part]), piece), label[part])
    whole = Batch(torch.zeros(4, 1, 4, 4), label, mixed=Mixed(other, 0.8))
    expected = float(objective.total(objective(Output(logits), whole)))
    assert means.values()["loss"] == pytest.approx(expected, rel=1e-6)


def test_a_training_with_it_is_another_one_and_can_be_repeated(tmp_path: Path) -> None:
    settings = [*PHANTOM, "training.learning_rate=0.003", "training.epochs=6", "training.keep=last"]
    plain = train(load_config(None, settings), run_folder=tmp_path / "plain")
    mixed, again = (
        train(load_config(None, [*settings, "training.mixup=1.0"]), run_folder=tmp_path / name) for name in ("a", "b")
    )
    losses = [[row["train_classification"] for row in run.history] for run in (plain, mixed, again)]
    assert losses[1] == losses[2]
    assert losses[1] != losses[0]
