"""A model or a run from a stranger: one line for whatever is wrong with its folder, and nothing outside is touched."""

import copy
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.torch import load_file, save_file

import parsecaps
from parsecaps.config import EvaluateConfig, load_config
from parsecaps.data.cases import DataSet
from parsecaps.evaluation import evaluate_run, write_card
from parsecaps.explain.case_memory import remember_run
from parsecaps.model import Model
from parsecaps.prediction.files import ImageFile
from parsecaps.prediction.predict import predict_files
from parsecaps.run import Run
from parsecaps.training import loop
from parsecaps.training.callbacks import Callbacks, Progress
from tests.command import fails
from tests.messages import LIBRARY, refused
from tests.training.make import PHANTOM, train

GOLDEN = Path(__file__).with_name("golden") / "parallel"
IMAGE = GOLDEN.parent / "images" / "nevus.png"
ODD: list[Any] = [None, -1, 0, 10**9, 1e308, "x", [], {}, float("nan"), True, [0] * 5_000, "auto", ...]


class EnoughError(Exception):
    """It trains, so what was edited is no mistake."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "run"))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped in its second epoch."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    config = load_config(None, [*PHANTOM, "training.checkpoint_seconds=0"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_REPORT_SECONDS", 0.0)
        with pytest.raises(EnoughError):
            train(config, run_folder=folder, callbacks=Callbacks(progress=_stop(2, 2)))
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    parsecaps.fit(load_config(None, [*PHANTOM, "training.epochs=1"]), run_folder=folder, callbacks=Callbacks())
    return folder


def _stop(epoch: int, batch: int) -> Callable[[Progress], None]:
    def stop(progress: Progress) -> None:
        if (progress.epoch, progress.batch) >= (epoch, batch):
            raise EnoughError

    return stop


def predict(folder: Path) -> None:
    model = Model.load(folder)
    list(predict_files(model, [ImageFile(IMAGE)], risk=0.2 if model.calibration.quantiles else None))


def explain(folder: Path) -> None:
    Model.load(folder).explain(IMAGE, strict=True)


def evaluate(folder: Path) -> None:
    evaluate_run(folder, EvaluateConfig(resamples=0, device="cpu"))


def show(folder: Path) -> None:
    run = Run(folder)
    write_card(run, run.scores)
    repr(run)


def resume(folder: Path) -> None:
    try:
        train(resume=folder, callbacks=Callbacks(progress=_stop(0, 0)))
    except EnoughError:
        for left in folder.glob(".lock"):
            left.unlink()


def _fields(content: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value; of lists, to the first one."""
    items = (
        content.items() if isinstance(content, dict) else enumerate(content[:1]) if isinstance(content, list) else ()
    )
    for key, value in items:
        yield (*at, key)
        yield from _fields(value, (*at, key))


def _edited(content: Any, at: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(content)
    place = changed
    for key in at[:-1]:
        place = place[key]
    if value is ...:
        del place[at[-1]]
    else:
        place[at[-1]] = value
    return changed


@pytest.mark.parametrize(
    ("file", "use", "every"),
    [
        ("bundle/config.json", predict, 5),
        ("bundle/bundle.json", explain, 3),
        ("bundle/calibration.json", predict, 2),
        ("config.yaml", evaluate, 61),
        ("config.yaml", resume, 61),
        ("run.json", show, 11),
        ("run.json", resume, 17),
        ("data.json", show, 59),
        ("scores.json", show, 71),
    ],
)
def test_any_value_of_any_file_gives_an_answer_or_one_line(
    file: str, use: Callable[[Path], None], every: int, finished: Path, stopped: Path, tmp_path: Path
) -> None:
    """Every so many of all edits; with `every` 1 all of them."""
    folder = Path(shutil.copytree(stopped if use is resume else finished, tmp_path / "run"))
    path, written = folder / file, (folder / file).read_text(encoding="utf-8")
    content = yaml.safe_load(written) if path.suffix == ".yaml" else json.loads(written)
    edits = [(at, value) for at in _fields(content) for value in ODD]
    for at, value in edits[::every]:
        changed = _edited(content, at, value)
        path.write_text(yaml.safe_dump(changed) if path.suffix == ".yaml" else json.dumps(changed), encoding="utf-8")
        line = ""
        try:
            use(folder)
        except (OSError, ValueError) as error:
            line = str(error)
        except Exception as error:
            pytest.fail(f"{file}, {at} = {str(value)[:50]}: {error!r}")
        assert "\n" not in line, (at, value)
        assert len(line) < 1500, (at, value)


def _text(name: str, text: str) -> Callable[[Path], None]:
    return lambda run: (run / name).write_text(text, encoding="utf-8") and None


def _config(**changes: Any) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        path = run / "bundle" / "config.json"
        stored = json.loads(path.read_text(encoding="utf-8"))
        stored["config"] |= changes
        path.write_text(json.dumps(stored), encoding="utf-8")

    return edit


def _not_finite(run: Path) -> None:
    path = run / "bundle" / "model.safetensors"
    tensors = load_file(path)
    tensors["decoder.bias"].view(-1)[0] = float("nan")
    save_file(tensors, path)


def _bomb(name: str) -> Callable[[Path], None]:
    """A quarter of a gigabyte of zeros in as many kilobytes."""

    def write(run: Path) -> None:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**25,)})
        with zipfile.ZipFile(run / name, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("logits.npy", "w") as file:
            file.write(header.getvalue())
            for _ in range(16):
                file.write(bytes(2**24))

    return write


def _claims(name: str) -> Callable[[Path], None]:
    """An array that says it has a million millions of numbers."""

    def write(run: Path) -> None:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
        with zipfile.ZipFile(run / name, "w") as archive:
            archive.writestr("logits.npy", header.getvalue())

    return write


LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(30))
TEMPERED = '{"temperature": %s, "quantiles": null, "note": null}'
BAD: dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
    "a weight is not finite": (_not_finite, predict),
    "many classes": (_config(num_classes=10**9), predict),
    "a large grid": (_config(grid_width=4096, image_size=4096), predict),
    "many cells": (_config(cells=[10**9, 1, 1]), predict),
    "a large image": (_config(image_size=10**9), predict),
    "deep JSON": (_text("bundle/config.json", "[" * 100_000), predict),
    "deep settings": (_text("config.yaml", "a: " + "[" * 10_000), evaluate),
    "billion laughs": (_text("config.yaml", LAUGHS), evaluate),
    "a date that is none": (_text("config.yaml", "data: 2001-99-99"), evaluate),
    "cases that are a bomb": (_bomb("known_cases/memory.npz"), explain),
    "a header that lies": (_claims("known_cases/memory.npz"), explain),
    "no temperature": (_text("bundle/calibration.json", TEMPERED % "NaN"), predict),
    "temperature 0": (_text("bundle/calibration.json", TEMPERED % "0"), predict),
    "temperature below 0": (_text("bundle/calibration.json", TEMPERED % "-1"), predict),
    "an endless temperature": (_text("bundle/calibration.json", TEMPERED % "1e999"), predict),
    "a split of frames": (_text("split.csv", "image,frame,split\n000000,²,train\n"), evaluate),
    "scores of nothing": (_text("scores.json", "{}"), show),
}


@pytest.mark.parametrize("name", BAD)
def test_a_folder_that_is_not_as_we_write_it_is_refused_in_one_line(name: str, run: Path) -> None:
    damage, use = BAD[name]
    damage(run)
    with refused((ValueError, OSError), hide=LIBRARY):
        use(run)


def test_history_that_was_edited(finished: Path, tmp_path: Path) -> None:
    run = Run(shutil.copytree(finished, tmp_path / "run"))
    for text in ("", "epoch\n1\n", "epoch,train_loss,train_accuracy\n1,x,2\n", "epoch,train_loss,train_accuracy\n1\n"):
        run.history_file.write_text(text, encoding="utf-8")
        with refused(ValueError, hide=LIBRARY):
            _ = run.history


def test_names_that_are_there_twice_are_refused(run: Path) -> None:
    path = run / "bundle" / "bundle.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    for field, names in (("classes", ["nevus"] * 2), ("concepts", ["a"] * 7)):
        path.write_text(json.dumps({**stored, field: names}), encoding="utf-8")
        with refused(ValueError):
            Model.load(run)
    for field in ("classes", "concepts"):
        with refused(ValueError):
            DataSet("films", Path("films"), **{"classes": (), "concepts": (), field: ("a", "b", "a")}, cases=[])


def test_an_answer_that_is_not_finite_is_an_error_of_that_image(run: Path) -> None:
    """A bright image makes huge numbers of this weight, a black one none."""
    path = run / "bundle" / "model.safetensors"
    tensors = load_file(path)
    tensors["standardise.mean"].zero_()
    tensors["initial.layers.0.weight"].fill_(3e38)
    tensors["initial.layers.1.running_mean"].zero_()
    save_file(tensors, path)
    black = run / "black.png"
    from PIL import Image

    Image.new("RGB", (40, 40)).save(black)
    answers = list(predict_files(Model.load(run), [ImageFile(each) for each in (black, IMAGE, black)]))
    assert [bool(each.error) for each in answers] == [False, True, False]
    assert "no finite numbers" in answers[1].error
    assert (answers[1].label, answers[1].probabilities) == ("", None)
    for name in ("known_cases/memory.npz", "bundle/strict.safetensors"):  # of the model as it was
        (run / name).unlink()
    with refused(ValueError):
        Model.load(run).explain(IMAGE)


LINKS = [".bundle.1.tmp", "checkpoints", "bundle", "logs", "run.json", "checkpoints/.last.pt.7.tmp", "deep/er"]


@pytest.mark.parametrize("name", LINKS)
def test_a_link_out_of_a_run_is_refused_before_anything_is_written(name: str, stopped: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "model.safetensors").write_text("precious", encoding="utf-8")
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    link = run / name
    if link.is_dir():
        shutil.rmtree(link)
    link.unlink(missing_ok=True)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(victim if link.suffix in ("", ".tmp") and not name.endswith(".7.tmp") else victim / "new")
    before = sorted(run.rglob("*"))
    for write in (
        lambda: train(resume=run),
        lambda: remember_run(run),
        lambda: train(load_config(None, PHANTOM), run_folder=run),
    ):
        with refused(ValueError):
            write()
    for command in (["evaluate"], ["audit"], ["discover"], ["name"], ["remember"], ["train", "--resume"]):
        more = ["names.csv"] if command == ["name"] else []
        fails(*command, run, *more)
    assert sorted(run.rglob("*")) == before
    assert [(path.name, path.read_text(encoding="utf-8")) for path in victim.iterdir()] == [
        ("model.safetensors", "precious")
    ]


def test_what_killed_processes_left_goes_and_nothing_else(stopped: Path, tmp_path: Path) -> None:
    run = Run(shutil.copytree(stopped, tmp_path / "run"))
    ours = [".run.json.123.tmp", ".config.yaml.1.tmp", "checkpoints/.last.pt.7.tmp", "checkpoints/.best-0001.pt.7.tmp"]
    ours += [".bundle.12.tmp/model.safetensors", ".bundle.12.tmp/.bundle.json.12.tmp"]
    theirs = [".run.json.tmp", ".notes.txt.12.tmp", "checkpoints/best-mine.pt", "checkpoints/.best.pt.7.tmp"]
    theirs += [".bundle.x.tmp/model.safetensors"]
    for name in [*ours, *theirs]:
        (run.folder / name).parent.mkdir(exist_ok=True)
        (run.folder / name).write_text("left", encoding="utf-8")
    foreign = run.folder / ".bundle.13.tmp" / "thesis.doc"
    foreign.parent.mkdir()
    foreign.write_text("mine", encoding="utf-8")
    with refused(ValueError):
        train(resume=run.folder)
    shutil.rmtree(foreign.parent)
    train(resume=run.folder)
    assert run.is_trained
    assert not [name for name in ours if (run.folder / name).exists()]
    assert not (run.folder / ".bundle.12.tmp").exists()
    assert [name for name in theirs if (run.folder / name).is_file()] == theirs


def test_a_model_that_is_there_already_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "model.safetensors").write_text("precious", encoding="utf-8")
    with refused(ValueError):
        train(load_config(None, PHANTOM), run_folder=tmp_path)
    assert [os.path.relpath(path, tmp_path) for path in tmp_path.rglob("*.*")] == ["bundle/model.safetensors"]


def test_weights_that_stopped_being_finite_become_no_model(stopped: Path, tmp_path: Path) -> None:
    from parsecaps.training.checkpoint import read_checkpoint, read_tensors, write_tensors

    run = Run(shutil.copytree(stopped, tmp_path / "run"))
    (best,) = run.checkpoint_folder.glob("best-*.pt")
    weights = read_tensors(best)
    weights["decoder.bias"].fill_(float("inf"))
    write_tensors(best, weights)
    stored = read_checkpoint(run.last_checkpoint)
    stored["position"]["done"] = True
    write_tensors(run.last_checkpoint, stored)
    with refused(ValueError):
        train(resume=run.folder)
    assert not run.is_trained
