"""The loop and its parts: against a plain loop, and by hand."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parsecaps.config import TrainingSection, load_config
from parsecaps.data.batches import Batches
from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.functional import class_loss
from parsecaps.models import ParseCaps
from parsecaps.training.build import class_weights, concept_weights, pixel_statistics
from parsecaps.training.checkpoint import Position, read_checkpoint
from parsecaps.training.loop import LossWatch, MovingAverage
from parsecaps.training.objective import EpochMeans, Objective
from parsecaps.training.optimizer import Schedule
from parsecaps.training.terms import TermContext
from parsecaps.types import Batch
from tests.data.make import folder_of_pictures
from tests.data.test_batches import prepared as prepared_values
from tests.training.make import PHANTOM, TINY, skewed_manifest, train

PLAIN = [
    *("model.preset=tiny", "model.num_concepts=0", "model.settings.dropout=0.0", "preparation.channels=1"),
    *("augmentation=null", "data.val=0", "data.test=0"),
    *("training.epochs=4", "training.batch_size=8", "training.class_balance=none"),
]


def train_plainly(model: ParseCaps, image: Tensor, label: Tensor, orders: Sequence[np.ndarray]) -> None:
    """The loop with nothing around it: batches of 8, cross-entropy, clipped gradients, the optimizer."""
    schedule, steps = Schedule(epochs=len(orders)), len(label) // 8
    optimizer = schedule.build_optimizer(model)
    model.train()
    for epoch, order in enumerate(orders):
        for i in range(steps):
            rows = torch.from_numpy(order[8 * i : 8 * (i + 1)])
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate(epoch * steps + i, steps)
            optimizer.zero_grad()
            class_loss(model(image[rows]).logits, label[rows]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


def test_steps_are_those_of_the_plain_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same images in the same order, eight steps give the same weights."""
    folder_of_pictures(tmp_path / "pictures", per_class=8, side=32)
    data = open_data(tmp_path / "pictures")
    images = prepare_all(data, Preparation(size=32)).images
    label = torch.tensor([case.label for case in data.cases])
    orders = [np.random.default_rng(i).permutation(16) for i in range(4)]
    monkeypatch.setattr(Batches, "_order", lambda batches, epoch: orders[epoch])
    run = train(load_config(None, [*PLAIN, f"data.path={tmp_path / 'pictures'}"]), run_folder=tmp_path / "run")
    torch.manual_seed(0)
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=0, dropout=0.0)
    model.standardise.use(*pixel_statistics(images, range(16)))
    start = {name: value.clone() for name, value in model.state_dict().items()}
    train_plainly(model, torch.from_numpy(np.array(images)).float() / 255, label, orders)
    ours, theirs = read_checkpoint(run.last_checkpoint)["weights"], model.state_dict()
    for name, value in theirs.items():
        torch.testing.assert_close(ours[f"model.{name}"], value, rtol=1e-5, atol=1e-6)
    assert not any(torch.equal(theirs[name], start[name]) for name in theirs if name.endswith("weight"))


def test_pixel_statistics_are_exact() -> None:
    images = np.random.default_rng(0).integers(0, 256, (300, 3, 8, 8), dtype=np.uint8)
    rows = [*range(0, 300, 2), 1]
    mean, std = pixel_statistics(images, rows)
    chosen = images[rows].astype(np.float64) / 255
    assert mean == pytest.approx(chosen.mean((0, 2, 3)))
    assert std == pytest.approx(chosen.std((0, 2, 3)))
    assert pixel_statistics(np.zeros((2, 1, 4, 4), np.uint8), [0, 1])[1] == [1 / 255]


def batch(concepts: Sequence[Sequence[float]], label: Sequence[int]) -> Batch:
    image = torch.rand(len(label), 1, 32, 32, generator=torch.Generator().manual_seed(len(label)))
    return Batch(image, torch.tensor(label), torch.tensor(concepts))


def objective(**settings: Any) -> Objective:
    training = TrainingSection(**settings)
    model = ParseCaps.from_preset("tiny", num_classes=2)
    return Objective.build(TermContext(training, model, class_weights=[0.5, 2.0]))


def test_the_means_of_an_epoch_do_not_depend_on_the_batches() -> None:
    """Means over all images at once, and over three batches of other sizes, with labels missing here and there."""
    nan = float("nan")
    concepts = [[1, nan, 0], [nan, nan, nan], [0, 0, 1], [nan, 1, nan], [nan, nan, nan], [1, 1, 1]]
    whole = batch(concepts, [0, 1, -1, 1, 1, 0])
    model = ParseCaps.from_preset("tiny", num_classes=2).eval()
    joint = objective(label_smoothing=0.1, losses={"reconstruction": 0.01})

    @torch.no_grad()
    def means(parts: Sequence[slice]) -> dict[str, float]:
        found = EpochMeans(joint, 2)
        for part in parts:
            piece = Batch(whole.image[part], whole.label[part], whole.concepts[part])
            output = model(piece.image, reconstruct=True)
            found.add(output.logits, joint(output, piece), piece.label)
        return found.values()

    at_once = means([slice(0, 6)])
    assert means([slice(0, 1), slice(1, 4), slice(4, 6)]) == pytest.approx(at_once, rel=1e-4)
    with torch.no_grad():
        output = model(whole.image, reconstruct=True)
        assert at_once["loss"] == pytest.approx(float(joint.total(joint(output, whole))), rel=1e-5)
    named, known = output.logits.argmax(1), whole.label >= 0
    assert at_once["accuracy"] == pytest.approx(float((named == whole.label)[known].float().mean()))


def test_diversity_counts_where_no_concept_has_a_label() -> None:
    model = ParseCaps.from_preset("tiny", num_classes=2).eval()
    joint, whole = objective(), Batch(torch.rand(6, 1, 32, 32), torch.tensor([0, 1, 0, 1, 0, 1]))
    with torch.no_grad():
        output = model(whole.image, reconstruct=True)
        losses = joint(output, whole)
    found = EpochMeans(joint, 2)
    found.add(output.logits, losses, whole.label)
    values = found.values()
    assert values["diversity"] == pytest.approx(float(losses["diversity"].mean))
    assert values["diversity"] > 0
    assert values["loss"] == pytest.approx(float(joint.total(losses)), rel=1e-5)


def test_the_average_follows_the_weights(tmp_path: Path) -> None:
    """Over a few steps without anything random, against the recursion written down."""
    model = ParseCaps.from_preset("tiny", num_classes=2)
    average = MovingAverage(model, 0.5)
    name = "classes.readout.bias"
    weight = model.state_dict()[name]
    expected = weight.clone()
    for step in range(1, 15):
        weight += step
        model.initial.layers[1].num_batches_tracked += 1
        average.update(model)
        decay = min(0.5, step / (step + 10))
        expected = decay * expected + (1 - decay) * weight
    assert torch.allclose(average.model.state_dict()[name], expected, rtol=1e-5)
    assert average.model.initial.layers[1].num_batches_tracked == 14
    config = load_config(None, [*PHANTOM, "training.ema=0.9", "training.epochs=1"])
    run = train(config, run_folder=tmp_path / "run")
    assert np.isfinite([row["val_loss"] for row in run.history]).all()
    last, kept = read_checkpoint(run.last_checkpoint), run.model.network.state_dict()
    assert all(torch.equal(kept[key], last["average"]["weights"][key]) for key in kept)
    assert not torch.equal(kept[name], last["weights"][f"model.{name}"])


def test_sampling_balances_the_classes() -> None:
    data, images = prepared_values(20)
    cases = [replace(case, label=0 if i < 16 else 1) for i, case in enumerate(data.cases)]
    data = replace(data, cases=cases, classes=("x", "y"))
    labels = [case.label for case in cases]
    weights = class_weights(labels, 2)
    assert weights == [20 / 32, 20 / 8]
    each = [weights[label] for label in labels]
    batches = Batches(CaseSet(data, images, range(20)), batch_size=10, shuffle=True, weights=each, seed=1)
    drawn = torch.cat([b.label for epoch in range(60) for b in batches.epoch(epoch)])
    assert len(drawn) == 1200
    assert 0.45 < float(drawn.float().mean()) < 0.55
    rows = batches.rows_in(3, 1)
    assert [labels[row] for row in rows] == list(batches.epoch(3))[1].label.tolist()


def test_concepts_are_balanced_as_far_as_asked() -> None:
    truth = np.array([[1.0, 0.0, np.nan], [0.0, 0.0, np.nan], [0.0, 0.0, np.nan], [0.0, np.nan, np.nan]])
    absent, present = np.array(concept_weights(truth, 1.0))
    assert (absent[0] * 3, present[0] * 1) == pytest.approx((2, 2))  # both sides weigh the same
    assert absent[1:].tolist() == [1, 1]  # nothing to balance
    absent, present = np.array(concept_weights(truth, 0.5))
    assert present[0] / absent[0] == pytest.approx(3**0.5)
    assert (3 * absent[0] + present[0]) / 4 == pytest.approx(1)
    assert np.array(concept_weights(truth, 0.0))[:, 0].tolist() == [1, 1]


def test_a_run_balances_its_concepts(tmp_path: Path) -> None:
    """By the labels of the training part, and of no other."""
    settings = [*TINY, f"data.path={skewed_manifest(tmp_path)}", "training.concept_balance=1.0"]
    run = train(load_config(None, settings), run_folder=tmp_path / "run")
    want = concept_weights(np.array([run.data.cases[row].concepts for row in run.rows("train")]), 1.0)
    stored = read_checkpoint(run.last_checkpoint)["weights"]["objective.terms.presentation.concept_weights"]
    torch.testing.assert_close(stored, torch.tensor(want))


def test_the_best_epoch_is_balanced_then_of_least_loss() -> None:
    rows = [{"val_balanced_accuracy": a, "val_loss": b} for a, b in ((0.5, 1.0), (0.8, 2.0), (0.8, 1.5), (0.7, 0.1))]
    assert Position(history=rows).best == 2
    assert Position(history=rows, chooses=False).best == 3
    assert Position(history=[{"train_loss": 1.0}, {"train_loss": 2.0}]).best == 1


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_bottleneck_learns_ten_times_as_fast(optimizer: Any) -> None:
    model = ParseCaps.from_preset("tiny", num_classes=3, num_concepts=4, head="bottleneck")
    taken = [name for name, _ in model.named_parameters() if name.startswith(("classes", "stem"))]
    built = Schedule(epochs=2, optimizer=optimizer, start_rate=0.5).build_optimizer(model, taken)
    rates = {id(p): group.get("factor", 1.0) for group in built.param_groups for p in group["params"]}
    names = {name: rates.pop(id(weight)) for name, weight in model.named_parameters()}
    assert not rates
    assert {names["classes.weight"], names["classes.bias"]} == {5.0}  # taken, and so at half of that
    others = {rate for name, rate in names.items() if not name.startswith(("classes", "stem"))}
    assert others == {1.0}


def test_the_schedule_warms_up_and_ends_at_zero() -> None:
    schedule = Schedule(epochs=20, warm_up_epochs=5)
    factors = [schedule.rate(step, 10) / schedule.learning_rate for step in range(200)]
    assert factors[0] == pytest.approx(1 / 50)
    assert factors[49] == factors[50] == pytest.approx(1.0)
    assert factors[125] == pytest.approx(0.5)
    assert 0 < factors[199] < 1e-3
    assert all(a >= b for a, b in pairwise(factors[50:]))


def first_wrong(losses: Sequence[float]) -> int | None:
    """The step of the first loss that is called wrong."""
    watch = LossWatch()
    wrong = [bool(watch.add(step, torch.tensor(loss))) for step, loss in enumerate(losses)]
    return wrong.index(True) if any(wrong) else None


def test_a_loss_that_rises_again_has_not_diverged() -> None:
    assert first_wrong([0.002, *[0.8] * 30]) is None  # from trained weights, then a harder batch
    assert first_wrong([0.0, 0.0, *[250.0] * 30]) is None  # nothing counts in the first two batches
    assert first_wrong([*[1e-4] * 50, 3.0, *[1e-4] * 50]) is None  # one hard image
    assert first_wrong(np.geomspace(7.0, 1e-3, 500).tolist() + [0.5] * 10) is None


def test_a_diverging_loss_is_found_soon() -> None:
    assert first_wrong([2.0, 1.9, 250.0]) == 2
    assert first_wrong([0.0, *[2.0] * 5, float("nan")]) == 6
    assert first_wrong([float("inf")]) == 0
    assert first_wrong([2.0] * 30 + [2.0 * 1.05**step for step in range(200)]) == 30 + 95  # 1.05^95 is just above 100


def test_a_watch_goes_on_as_it_was() -> None:
    whole, first, second = LossWatch(), LossWatch(), LossWatch()
    losses = torch.linspace(3, 1, 30)
    for step, loss in enumerate(losses):
        whole.add(step, loss)
        (first if step < 13 else second).add(step, loss)
        if step == 12:
            second.load_state_dict(first.state_dict())
    assert float(whole.usual) == float(second.usual) == float(losses[10:].median())


def test_a_run_may_start_from_nearly_nothing_to_lose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch costs a thousandth of what the others do, as with weights that know its images."""
    honest, seen = Objective.total, []

    def total(self: Objective, losses: Any) -> Tensor:
        seen.append(None)
        return honest(self, losses) * (1e-3 if len(seen) <= 2 else 1.0)  # it is asked twice in a step

    monkeypatch.setattr(Objective, "total", total)
    run = train(load_config(None, [*PHANTOM, "training.epochs=1"]), run_folder=tmp_path / "run")
    assert run.is_trained
