"""A network on a trunk trains, stops, goes on and is started from like any other."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from parsecaps.config import load_config
from parsecaps.models import ParseCaps
from parsecaps.nn import TRUNKS
from parsecaps.run import Run
from parsecaps.system.signals import TerminatedError
from parsecaps.training import loop
from parsecaps.training.callbacks import Callbacks, Progress
from parsecaps.training.fit import fit
from parsecaps.training.optimizer import Schedule
from tests.messages import message, refused
from tests.training.make import train
from tests.training.test_resume import assert_same_run

SMALL = ["dims=[4,8,8]", "cells=[1,1]", "heads=[2,2]", "radius=[1,1]", "decoder_channels=[8,8,8,8]"]
DATA = ["data.path=phantom:n=48,size=64", "model.image_size=64", "training.epochs=2", "training.batch_size=8"]
ON_TRUNK = [*DATA, "model.settings.trunk=lite0", *(f"model.settings.{each}" for each in SMALL)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained for two epochs, and scored."""
    folder = tmp_path_factory.mktemp("trunk") / "run"
    return fit(load_config(None, ON_TRUNK), run_folder=folder, callbacks=Callbacks())


def test_the_choice_of_the_trunk_is_written_down(run: Run) -> None:
    message(*run.about["choices"], containing="trunk")
    assert run.model.network.config["trunk"] == "lite0"
    assert run.model.network.config["context"]
    assert "| trunk | lite0, weights of ImageNet (Apache-2.0) |" in run.card_file.read_text(encoding="utf-8")


def test_both_streams_begin_with_the_weights_that_come_with_the_package(run: Run) -> None:
    shipped, network = TRUNKS["lite0"].weights.read(), run.model.network
    for part in (network.initial, network.context):
        own = part.layers.state_dict()
        for name in ("4.expand.conv.weight", "11.project.conv.weight"):
            assert not torch.equal(own[name], shipped[name])  # it learned
            near = torch.cosine_similarity(own[name].flatten(), shipped[name].flatten(), dim=0)
            assert near > 0.9


def test_stopped_and_resumed_it_ends_with_the_same_bits(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_REPORT_SECONDS", 0.0)

    def press(progress: Progress) -> None:
        if (progress.epoch, progress.batch) == (1, 1):
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(TerminatedError):
        train(load_config(None, ON_TRUNK), run_folder=tmp_path / "run", callbacks=Callbacks(progress=press))
    train(resume=tmp_path / "run")
    assert_same_run(run.folder, tmp_path / "run")


@pytest.mark.parametrize(("trunk", "rate"), [("lite0", 0.3), ("PlainCNN", 1.0)])
def test_a_trunk_with_weights_learns_slower(trunk: str, rate: float) -> None:
    settings = {"dims": (4, 8), "cells": (1,), "heads": (2,), "radius": (1,), "trunk": trunk, "image_size": 32}
    model = ParseCaps.from_preset("trunk", num_classes=2, head="bottleneck", **settings)
    for taken, start_rate in (([], 1.0), ([name for name, _ in model.named_parameters()], 0.5)):
        built = Schedule(epochs=2, start_rate=start_rate).build_optimizer(model, taken)
        rates = {id(p): group.get("factor", 1.0) for group in built.param_groups for p in group["params"]}
        for name, weight in model.named_parameters():
            factor = {"initial": rate, "context": rate, "classes": 10.0}.get(name.partition(".")[0], 1.0)
            assert rates[id(weight)] == pytest.approx(factor * start_rate), name


def test_it_can_be_started_from(run: Run, tmp_path: Path) -> None:
    """All of it is taken, the trunk too, and the new network is built like it."""
    start = [f"model.start={run.folder}", "training.learning_rate=1.0e-9", "data.allow_leaks=true"]
    other = train(load_config(None, [*DATA, *start]), run_folder=tmp_path / "other")
    assert other.origin is not None
    assert other.origin.taken == other.origin.parameters
    weights = run.model.network.initial.layers.state_dict()
    for name, weight in other.model.network.initial.layers.named_parameters():
        torch.testing.assert_close(weight, weights[name], rtol=1e-5, atol=1e-6)


def other_trunk(tmp_path: Path) -> str:
    settings = {"dims": (4, 8), "cells": (1,), "heads": (2,), "radius": (1,), "image_size": 32}
    ParseCaps.from_preset("trunk", num_classes=2, trunk="PlainCNN", **settings).save_pretrained(tmp_path / "other")
    return str(tmp_path / "other")


def no_trunk(tmp_path: Path) -> str:
    ParseCaps.from_preset("tiny", num_classes=2).save_pretrained(tmp_path / "plain")
    return str(tmp_path / "plain")


def imagenet(tmp_path: Path) -> str:
    return "imagenet"


@pytest.mark.parametrize("start", [other_trunk, no_trunk, imagenet])
def test_weights_with_another_trunk_are_refused_in_one_line(start: Callable[[Path], str], tmp_path: Path) -> None:
    with refused(ValueError):
        train(load_config(None, [*ON_TRUNK, f"model.start={start(tmp_path)}"]), run_folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
