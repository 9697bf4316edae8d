"""The losses of Proto-Caps against loops over images, and prototypes that become training cases, stopped or not."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from parsecaps.config import load_config
from parsecaps.data.batches import Augmentation, Batches
from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.rivals import ProtoCaps, ResNet18
from parsecaps.rivals.protocaps import Attribute, ImageReconstruction, Prototype, push_prototypes
from parsecaps.run import Run
from parsecaps.training import loop
from parsecaps.training.callbacks import Callbacks, Progress
from parsecaps.training.checkpoint import read_tensors
from parsecaps.training.objective import Objective
from parsecaps.training.terms import TermContext
from parsecaps.types import Batch, Output
from tests.training.make import train
from tests.training.test_processes import SCRIPT, run
from tests.training.test_resume import assert_same_run

NAN = float("nan")
CONCEPTS = torch.tensor([[1.0, 0.0, NAN], [0.5, 1.0, 1.0], [NAN, NAN, NAN]])
TRAINING = [
    *("data.path=phantom:n=48,size=32", "model.kind=ProtoCaps", "model.preset=tiny", "training.epochs=4"),
    *("training.batch_size=8", "training.optimizer=adam", "training.learning_rate=0.1", "training.weight_decay=0"),
    *(
        "training.losses.prototype.warm_up=1",
        "training.losses.prototype.push_every=2",
        "training.ema=0.0",
        "training.keep=last",
    ),
    *("augmentation=null", "training.mixup=0.0", "training.losses.consistency=0.0"),
]


def graded() -> ProtoCaps:
    return ProtoCaps.from_preset("tiny", num_classes=2, grades=(3, 2, 4))


def some(model: ProtoCaps) -> tuple[Output, Batch]:
    image = torch.rand(3, 1, 32, 32)
    return model(image, reconstruct=True), Batch(image, torch.tensor([0, 1, -1]), CONCEPTS)


def test_attributes_cost_their_squared_error_where_they_are_known() -> None:
    output, batch = some(graded())
    loss = Attribute(1.0)(output, batch)
    assert output.presence is not None
    p = output.presence.detach().tolist()
    expected = sum(
        (p[i][j] - float(CONCEPTS[i, j])) ** 2 for i in range(3) for j in range(3) if not CONCEPTS[i, j].isnan()
    )
    assert loss.sum.item() == pytest.approx(expected)
    assert float(loss.images) == 2
    nameless = Attribute(1.0)(output, batch._replace(concepts=None))
    assert (nameless.sum.item(), nameless.images.item()) == (0, 0)


def test_every_image_is_reconstructed() -> None:
    output, batch = some(graded())
    assert output.reconstruction is not None
    loss = ImageReconstruction(0.512)(output, batch)
    torch.testing.assert_close(loss.mean, (output.reconstruction - batch.image).square().mean())


def test_capsules_are_drawn_to_their_own_grade_and_away_from_others() -> None:
    model = graded()
    output, batch = some(model)
    loss = Prototype(0.125, model.prototypes)(output, batch)
    capsules, vectors = model.attribute_capsules(batch.image), model.prototypes.weight.split([3, 2, 4])
    grades = {(0, 0): 2, (0, 1): 0, (1, 0): 1, (1, 1): 1, (1, 2): 3}  # image and concept, where it is known
    expected = torch.tensor(0.0)
    for (i, j), own in grades.items():
        distance = (capsules[i, j] - vectors[j]).norm(dim=-1)  # (grades, 2)
        far = [(8 - distance[g]).clamp(min=0).min() for g in range(len(distance)) if g != own]
        expected = expected + (distance[own].min() + 0.1 * sum(far) / len(far)) / 3
    torch.testing.assert_close(loss.sum, expected)
    assert float(loss.images) == 2


def test_prototypes_wait_for_the_warm_up_but_have_gradients_for_several_processes() -> None:
    model = graded()
    output, batch = some(model)
    loss = Prototype(0.125, model.prototypes, warm_up=3)(output, batch)
    assert loss.sum.item() == 0
    loss.mean.backward()
    assert model.prototypes.weight.grad is not None
    assert not model.prototypes.weight.grad.any()


def test_only_a_model_with_the_part_has_the_term() -> None:
    training = load_config(None, ["training.losses.prototype=1", "training.losses.image_reconstruction=1"]).training
    training = training.model_copy(update={"epochs": 40})
    plain = Objective.build(TermContext(training, ResNet18.from_preset("tiny", num_classes=2)))
    assert not {"attribute", "image_reconstruction", "prototype"} & plain.terms.keys()
    built = Objective.build(TermContext(training, graded()))
    assert {"classification", "attribute", "image_reconstruction", "prototype"} <= built.terms.keys()
    term = built.terms["prototype"]
    assert isinstance(term, Prototype)
    assert (term.weight, term.warm_up, term.push_every) == (1.0, 10, 10)  # at most a quarter of the epochs
    assert built.terms["attribute"].weight == 1.0
    assert built.terms["classification"].weight == 1.0


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Batches:
    data = open_data("phantom:n=40,size=32")
    prepared = prepare_all(data, Preparation(size=32, channels=1), folder=tmp_path_factory.mktemp("cache"))
    changed = {"augmentation": Augmentation(), "views": 2, "mixup": 0.4, "shuffle": True, "weights": np.ones(30)}
    return Batches(CaseSet(data, prepared, range(5, 35)), batch_size=8, process=1, processes=2, **changed)


def test_plain_batches_have_each_row_once_as_it_is(batches: Batches) -> None:
    seen = list(batches.plain().epoch(3))
    image = torch.cat([batch.image for batch in seen])
    assert torch.equal(image, torch.from_numpy(batches.images[5:35].copy()).float() / 255)
    assert torch.equal(torch.cat([batch.label for batch in seen]), batches.label[5:35])
    assert {batch.views for batch in seen} == {1}
    assert {batch.mixed for batch in seen} == {None}
    assert (batches.views, batches.processes, batches.shuffle) == (2, 2, True)


def test_a_prototype_takes_the_place_of_the_nearest_case_of_its_grade_that_was_about_right(batches: Batches) -> None:
    model = ProtoCaps.from_preset("tiny", num_classes=2, num_concepts=7)
    with torch.no_grad():
        model.concepts.votes.weight.mul_(100)
        model.presence.weight.zero_()
        model.presence.bias.fill_(-2.0).index_fill_(0, torch.tensor([1]), 2.0)  # 0.12 but 0.88 for the second
    before = model.prototypes.weight.detach().clone()
    image = torch.from_numpy(batches.images.copy()).float() / 255
    capsules = model.eval().attribute_capsules(image).detach()
    push_prototypes(model, batches)
    assert batches.concepts is not None
    for j in range(7):
        for grade in (0, 1):
            right = grade == int(j == 1)
            rows = [i for i in range(5, 35) if batches.concepts[i, j] == grade]
            for k in (0, 1):
                at = 2 * j + grade, k
                if not (right and rows):
                    assert torch.equal(model.prototypes.weight[at], before[at])
                    assert model.prototypes.case[at] == -1
                    continue
                nearest = min(rows, key=lambda i: float((capsules[i, j] - before[at]).norm()))
                assert int(model.prototypes.case[at]) == nearest
                torch.testing.assert_close(model.prototypes.weight[at], capsules[nearest, j])
    assert (model.prototypes.case >= 0).sum() >= 10


def prototypes_of(weights: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return weights["model.prototypes.weight"], weights["model.prototypes.case"]


def test_prototypes_become_training_cases_and_a_stopped_run_goes_on_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_REPORT_SECONDS", 0.0)
    whole = train(load_config(None, TRAINING), run_folder=tmp_path / "whole")

    def press(progress: Progress) -> None:
        if (progress.epoch, progress.batch) == (3, 2):  # after the first push, before the last
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        train(load_config(None, TRAINING), run_folder=tmp_path / "cut", callbacks=Callbacks(progress=press))
    train(resume=tmp_path / "cut")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")

    weights = read_tensors(whole.last_checkpoint)["weights"]
    _, case = prototypes_of(weights)
    assert weights["objective.terms.prototype.active"] == 1
    assert (case >= 0).sum() >= 5
    assert set(case[case >= 0].tolist()) <= set(whole.rows("train"))
    costs = [row["train_prototype"] for row in whole.history]
    assert costs[0] == 0  # the warm-up
    assert min(costs[1:]) > 0


@pytest.mark.parametrize("settings", [["training.ema=0.9"], ["training.keep=best"]])
def test_the_prototypes_of_the_kept_model_are_the_capsules_of_their_cases(settings: list[str], tmp_path: Path) -> None:
    """Though its weights are averages, or of an epoch after which no prototype was replaced."""
    settings = [*TRAINING, "training.losses.prototype.push_every=3", *settings]
    run = train(load_config(None, settings), run_folder=tmp_path / "run")
    model = run.model.network
    assert isinstance(model, ProtoCaps)
    vectors, case = model.prototypes.weight, model.prototypes.case
    assert (case >= 0).any()
    assert set(case[case >= 0].tolist()) <= set(run.rows("train"))
    images = torch.from_numpy(np.array(run.prepared.images)).float() / 255
    with torch.no_grad():
        capsules = model.attribute_capsules(images)
    for grade, k in (case >= 0).nonzero():
        torch.testing.assert_close(vectors[grade, k], capsules[case[grade, k], grade // 2], rtol=1e-4, atol=1e-5)


def test_two_processes_get_the_same_prototypes_as_one(tmp_path: Path) -> None:
    one = train(load_config(None, TRAINING), run_folder=tmp_path / "one")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run([*torchrun, str(SCRIPT), str(tmp_path / "two"), *TRAINING], tmp_path)
    ours, theirs = (read_tensors(Run(tmp_path / name).last_checkpoint)["weights"] for name in ("one", "two"))
    assert (prototypes_of(ours)[1] >= 0).any()
    assert torch.equal(prototypes_of(theirs)[1], prototypes_of(ours)[1])
    torch.testing.assert_close(prototypes_of(theirs)[0], prototypes_of(ours)[0], rtol=1e-3, atol=1e-3)
    assert set(prototypes_of(ours)[1].unique().tolist()) <= {-1, *one.rows("train")}
