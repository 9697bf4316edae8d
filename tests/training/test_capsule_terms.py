"""The losses of capsule networks without concepts, as terms of the objective, and trainings with them."""

from pathlib import Path

import pytest
import torch

from parsecaps.config import Config, load_config
from parsecaps.functional import margin_loss
from parsecaps.model import Model
from parsecaps.models import ParseCaps, PretrainedModel
from parsecaps.rivals import CapsNet
from parsecaps.rivals.class_capsules import ClassReconstruction, Margin
from parsecaps.run import Run
from parsecaps.training import loop
from parsecaps.training.build import join_processes
from parsecaps.training.objective import Objective
from parsecaps.training.terms import TermContext
from parsecaps.types import Batch
from tests.messages import refused
from tests.training.make import PHANTOM, train

IMAGE = torch.rand(4, 1, 32, 32, generator=torch.Generator().manual_seed(0))
BATCH = Batch(IMAGE, torch.tensor([0, 2, -1, 1]))


def objective_of(model: PretrainedModel, *settings: str) -> Objective:
    return Objective.build(TermContext(load_config(None, settings).training, model))


def test_each_model_has_its_own_losses() -> None:
    model = CapsNet.from_preset("tiny", num_classes=3)
    terms = objective_of(model).terms
    assert (terms["margin"].weight, terms["class_reconstruction"].weight) == (1.0, 0.392)
    assert terms["classification"].weight == 0
    assert "margin" not in objective_of(ParseCaps.from_preset("tiny", num_classes=3)).terms
    assert "class_reconstruction" not in objective_of(model, "training.losses.class_reconstruction=0").terms
    without = CapsNet.from_preset("tiny", num_classes=3, decoder=False)
    assert "class_reconstruction" not in objective_of(without).terms


def test_the_margins_are_settings() -> None:
    model = CapsNet.from_preset("tiny", num_classes=3).eval()
    output = model(IMAGE)
    for margins in ((0.9, 0.1, 0.5), (0.95, 0.05, 0.8)):
        term = objective_of(model, f"training.losses.margin.margins={list(margins)}").terms["margin"]
        torch.testing.assert_close(term(output, BATCH).mean, margin_loss(output.logits, BATCH.label, margins))
    with refused(ValueError):
        Margin(1.0, (0.1, 0.9, 0.5))


def test_the_picture_is_of_the_true_class_whatever_the_model_sees() -> None:
    model = CapsNet.from_preset("tiny", num_classes=3).eval()
    output = model(IMAGE)
    found = ClassReconstruction(1.0, model)(output, BATCH)
    drawn = model.decode(output.class_capsules, torch.tensor([0, 2, 0, 1]))
    error = (drawn - IMAGE).square().mean((1, 2, 3))
    assert found.images == 3
    torch.testing.assert_close(found.sum, error[[0, 1, 3]].sum())


def test_a_batch_without_labels_still_reaches_every_weight() -> None:
    """As data parallelism wants it."""
    model = CapsNet.from_preset("tiny", num_classes=3)
    objective = objective_of(model)
    unknown = BATCH._replace(label=torch.full((4,), -1))
    objective.total(objective(model(IMAGE), unknown)).backward()
    assert all(weight.grad is not None for weight in model.parameters())
    assert not any("_model" in name for name in objective.state_dict())


def capsnet(*settings: str) -> Config:
    return load_config(None, [*PHANTOM, "model.kind=CapsNet", "training.optimizer=adam", *settings])


def test_it_trains_and_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    schedule = ["training.schedule=steps", "training.decay=0.5", "training.decay_epochs=1", "training.warm_up_epochs=0"]
    train(capsnet(*schedule), run_folder=tmp_path / "run")
    run = Run(tmp_path / "run")
    assert type(Model.load(run.bundle_folder).network) is CapsNet
    rows = run.history_file.read_text().splitlines()
    rate = rows[0].split(",").index("learning_rate")
    assert [float(row.split(",")[rate]) for row in rows[1:]] == [0.0015, 0.00075]


@pytest.mark.parametrize(("weight", "idle"), [("auto", False), ("0", True)])
def test_a_decoder_that_is_not_trained_is_known_as_idle(
    weight: str, idle: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(*parts: object, idle_parameters: bool, **others: object) -> object:
        seen.append(idle_parameters)
        return join_processes(*parts, idle_parameters=idle_parameters, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "join_processes", spy)
    config = capsnet(f"training.losses.class_reconstruction={weight}", "training.epochs=1")
    train(config, run_folder=tmp_path / "run")
    assert seen == [idle]
