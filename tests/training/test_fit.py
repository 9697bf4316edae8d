"""`fit` from end to end on small data: what it leaves in the folder, and what it does when something is wrong."""

import csv
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from parsecaps.config import load_config
from parsecaps.data.cache import prepare_all
from parsecaps.data.sources import open_data
from parsecaps.data.splits import rows_of, split_hash
from parsecaps.model import Model
from parsecaps.run import Run
from parsecaps.training import DivergedError
from parsecaps.training import objective as objective_module
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.checkpoint import read_checkpoint, read_tensors
from parsecaps.training.objective import EpochMeans
from parsecaps.training.terms import Loss, Term
from parsecaps.types import Batch, Output
from tests.data.make import folder_of_pictures
from tests.messages import refused
from tests.prediction.make import predict_one
from tests.training.make import PHANTOM, TINY, skewed_manifest, train


def test_the_folder_holds_everything(run: Run) -> None:
    names = {path.name for path in run.folder.iterdir()} - {".lock"}
    files = {"config.yaml", "split.csv", "run.json", "data.json", "history.csv", "fingerprints.safetensors"}
    assert names == files | {"logs", "checkpoints", "bundle", "curves.png", "scores.json", "scores.html"}
    again, about = Run(run.folder), run.about
    assert again.config == run.config
    assert "auto" not in run.config_file.read_text(encoding="utf-8")
    assert about["versions"]["torch"] == version("torch")
    assert about["seeds"] == {"split": 0, "training": 0}
    assert split_hash(again.data, again.division) == about["split_hash"]
    assert again.data_check["split_hash"] == about["split_hash"]
    with run.history_file.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert float(rows[1]["train_loss"]) < float(rows[0]["train_loss"])
    assert about["validation"]["loss"] == pytest.approx(float(rows[run.best_epoch - 1]["val_loss"]))
    assert sorted(path.name for path in run.checkpoint_folder.iterdir()) == [f"best-{run.best_epoch:04}.pt", "last.pt"]


def test_the_bundle_is_all_that_prediction_needs(run: Run) -> None:
    """Its validation accuracy, computed with nothing but the bundle, is the one that training wrote down."""
    model = Model.load(run.bundle_folder)
    data = open_data(run.config.data.path)
    assert (model.classes, model.concepts) == (data.classes, data.concepts)
    prepared = prepare_all(data, model.preparation)
    rows = rows_of(run.division, "val")
    image = torch.from_numpy(prepared.images[rows]).float() / 255
    label = torch.tensor([data.cases[i].label for i in rows])
    with torch.no_grad():
        named = model.network(image).logits.argmax(1)
    recall = [float((named[label == c] == c).float().mean()) for c in range(len(data.classes))]
    best = run.history[run.best_epoch - 1]
    assert best["val_accuracy"] == pytest.approx(float((named == label).float().mean()))
    assert best["val_balanced_accuracy"] == pytest.approx(sum(recall) / len(recall))
    train = torch.from_numpy(prepared.images[rows_of(run.division, "train")]).float() / 255
    assert torch.allclose(model.network.standardise.mean.flatten(), train.mean((0, 2, 3)), atol=1e-6)
    assert torch.allclose(model.network.standardise.std.flatten(), train.std((0, 2, 3)), atol=1e-4)


def test_tensorboard_has_the_curves(run: Run) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.log_folder))
    events.Reload()
    losses = [event.value for event in events.Scalars("val_loss")]
    assert losses == pytest.approx([row["val_loss"] for row in run.history])


def test_the_same_seed_gives_the_same_run_also_without_tensorboard_and_another_does_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parsecaps.training.build.is_installed", lambda module: module != "tensorboard")
    state = torch.get_rng_state()
    again = train(load_config(run.config_file), run_folder=tmp_path / "again")
    assert run.log_folder.is_dir()
    assert not again.log_folder.exists()
    assert [row["val_loss"] for row in again.history] == [row["val_loss"] for row in run.history]
    assert torch.equal(torch.get_rng_state(), state)  # the user's own random numbers are left alone
    other = train(load_config(run.config_file, ["training.seed=1"]), run_folder=tmp_path / "other")
    weights = [each.model.network.state_dict() for each in (run, again, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["primary.project.weight"], weights[2]["primary.project.weight"])


def test_a_folder_of_images_without_concepts(tmp_path: Path) -> None:
    folder_of_pictures(tmp_path / "pictures", per_class=20, side=32)
    lines: list[str] = []
    settings = [*TINY, "training.epochs=1", "data.val=0", "training.precision=bf16"]
    config = load_config(None, settings).change("data", path=str(tmp_path / "pictures"), val=0)
    run = train(config, run_folder=tmp_path / "run", callbacks=Callbacks(log=lines.append))
    assert any(line.startswith("losses: classification, reconstruction") for line in lines)
    assert run.history[0]["train_reconstruction"] > 0
    assert "val_loss" not in run.history[0]  # nobody to validate on: the last epoch is kept
    assert run.model.concepts[0] == "unnamed 1"
    assert set(predict_one(run.model, tmp_path / "pictures/a/0.png").probabilities or {}) == {"a", "b"}


def test_unsafe_data_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    manifest = skewed_manifest(tmp_path)
    (tmp_path / "pictures/a/0.png").write_bytes(b"not an image")
    config = load_config(None, [f"data.path={manifest}", *TINY, "training.epochs=1"])
    lines: list[str] = []
    with refused(ValueError):
        train(config, run_folder=tmp_path / "run", callbacks=Callbacks(log=lines.append))
    assert any("a/0.png" in line for line in lines)
    assert not (tmp_path / "run").exists()
    run = train(config.change("data", skip_bad=True), run_folder=tmp_path / "run")
    data = open_data(str(manifest))
    division = run.division
    assert [data.cases[i].image.name for i, part in enumerate(division) if part is None] == ["0.png"]


def test_wrong_settings_leave_no_folder(tmp_path: Path) -> None:
    with refused(ValueError):
        train(load_config(None, [*PHANTOM, "model.settings.dropot=0"]), run_folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Poison(Term):
    """Goes wrong in one training step: in the loss, or only in its gradient."""

    name = "poison"
    in_loss = True
    label = torch.empty(0)

    optional = False
    calls = 0

    def forward(self, output: Output, batch: Batch) -> Loss:
        self.calls += self.training
        poison = torch.zeros(())
        if self.training and self.calls == 8:
            type(self).label = batch.label
            poison = torch.tensor(torch.nan) if self.in_loss else (output.logits * 0).sum().sqrt()
        return Loss(poison, torch.ones(()))


@pytest.mark.parametrize("in_loss", [True, False], ids=["loss", "gradient"])
def test_a_loss_gone_wrong_names_the_batch(in_loss: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective_module, "TERMS", [*objective_module.TERMS, Poison])
    monkeypatch.setattr(Poison, "in_loss", in_loss)
    settings = [*PHANTOM, "training.checkpoint_seconds=0"]
    with refused(DivergedError, hide=r"[\d, ]{20,}") as error:
        train(load_config(None, settings), run_folder=tmp_path / "run")
    data = open_data("phantom:n=72,size=32")
    named = re.findall(r"\d{6}", str(error.value))
    assert [data.cases[int(name)].label for name in named] == Poison.label.tolist()
    kept = read_checkpoint(Run(tmp_path / "run").last_checkpoint)
    assert kept["position"]["step"] == 7
    assert all(bool(value.isfinite().all()) for value in kept["weights"].values())


def test_a_diverging_loss_stops(tmp_path: Path) -> None:
    with refused(DivergedError, hide=r"batch \d \([\d, ]+\)"):
        train(load_config(None, [*PHANTOM, "training.learning_rate=1e6"]), run_folder=tmp_path / "run")


def test_early_stopping_keeps_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation, which has 11 images, is made to say: good, better, worse, worse."""
    scores, honest = iter([0.5, 0.7, 0.6, 0.6, 0.9]), EpochMeans.values

    def values(means: EpochMeans) -> dict[str, float]:
        found = honest(means)
        return found | {"balanced_accuracy": next(scores)} if means.confusion.sum() == 11 else found

    monkeypatch.setattr(EpochMeans, "values", values)
    settings = [*PHANTOM, "training.epochs=9", "training.patience=2", "training.batch_size=23"]
    run = train(load_config(None, settings), run_folder=tmp_path / "run")
    assert (len(run.history), run.best_epoch) == (4, 2)
    best, last = read_tensors(run.best_checkpoint(2)), read_checkpoint(run.last_checkpoint)["weights"]
    kept = run.model.network.state_dict()
    assert all(torch.equal(kept[name], best[name]) for name in kept)
    assert not all(torch.equal(kept[name], last[f"model.{name}"]) for name in kept)


def test_the_last_epoch_is_kept_where_validation_shall_not_choose(tmp_path: Path) -> None:
    settings = [*PHANTOM, "training.keep=last", "training.epochs=3"]
    lines: list[str] = []
    run = train(load_config(None, settings), run_folder=tmp_path / "run", callbacks=Callbacks(log=lines.append))
    assert run.best_epoch == 3
    assert not [line for line in lines if "(best)" in line]
    assert Run(tmp_path / "run").best_checkpoint(3).is_file()
    assert train(resume=tmp_path / "run").best_epoch == 3
