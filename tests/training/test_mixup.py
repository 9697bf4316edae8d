"""Images that are mixed with each other: in a batch, in the objective, and in a training."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from parsecaps.config import load_config
from parsecaps.data.batches import mix
from parsecaps.functional import class_loss
from parsecaps.training.fit import train_run
from parsecaps.training.objective import EpochMeans, Objective
from parsecaps.training.terms import Classification
from parsecaps.types import Batch, Mixed, Output
from tests.training.make import PHANTOM


def batch(views: int = 1) -> Batch:
    """Images that are their own number everywhere, the third without a label, concepts alike."""
    number = torch.arange(6.0)
    image = number.view(-1, 1, 1, 1).expand(6, 1, 4, 4)
    concepts = torch.stack([number, torch.where(number == 1, torch.nan, 0.0)], 1)
    label = torch.tensor([0, 1, -1, 2, 1, 0])
    whole = Batch(image, label, concepts)
    if views > 1:
        whole = Batch(image.repeat(views, 1, 1, 1), label.repeat(views), concepts.repeat(views, 1), views=views)
    return whole


@pytest.mark.parametrize("seed", range(5))
def test_image_concepts_and_label_are_mixed_alike(seed: int) -> None:
    whole = batch()
    found = mix(whole, 0.4, np.random.default_rng(seed))
    assert found.mixed is not None
    share = found.mixed.share
    assert 0.5 <= share <= 1
    mixture = found.image[:, 0, 0, 0]
    other = ((mixture - share * torch.arange(6.0)) / (1 - share)).round().long()
    torch.testing.assert_close(mixture, share * torch.arange(6.0) + (1 - share) * other)
    assert found.mixed.label.tolist() == whole.label[other].tolist()
    assert found.concepts is not None
    torch.testing.assert_close(found.concepts[:, 0], mixture)
    assert found.concepts[:, 1].isnan().tolist() == [i == 1 or other[i].item() == 1 for i in range(6)]
    assert found.label.equal(whole.label)
    assert other[2] == 2  # no other is without a label
    assert ((found.mixed.label < 0) == (whole.label < 0)).all()


def test_all_views_of_an_image_are_mixed_with_the_same_one() -> None:
    found = mix(batch(views=2), 0.4, np.random.default_rng(0))
    assert found.image[:6].equal(found.image[6:])
    assert found.image.std(0).max() > 0
    assert found.mixed is not None
    assert found.mixed.label[:6].equal(found.mixed.label[6:])


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
    plain = train_run(load_config(None, settings), run_folder=tmp_path / "plain")
    mixed, again = (
        train_run(load_config(None, [*settings, "training.mixup=1.0"]), run_folder=tmp_path / name)
        for name in ("a", "b")
    )
    losses = [[row["train_classification"] for row in run.history] for run in (plain, mixed, again)]
    assert losses[1] == losses[2]
    assert losses[1] != losses[0]
