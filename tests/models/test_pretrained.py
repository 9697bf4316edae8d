"""A model's folder: what is written, that reading it runs no code, and errors for folders that are broken."""

import json
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from parsecaps.models import ParseCaps, PlainCNN, PretrainedModel, all_models, load_model
from tests.messages import LIBRARY, refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ParseCaps.from_preset("tiny", num_classes=3).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_is_made_with_a_readable_configuration(tmp_path: Path) -> None:
    model = ParseCaps.from_preset("tiny", num_classes=3, dropout=0.25)
    model.save_pretrained(tmp_path / "a" / "b")
    names = sorted(path.name for path in (tmp_path / "a" / "b").iterdir())
    assert names == ["config.json", "model.safetensors"]
    stored = json.loads((tmp_path / "a" / "b" / "config.json").read_text(encoding="utf-8"))
    assert stored["model"] == "ParseCaps"
    assert stored["config"]["dropout"] == 0.25
    assert ParseCaps.from_config(stored["config"]).config == model.config


def test_saving_again_replaces(folder: Path) -> None:
    other = ParseCaps.from_preset("tiny", num_classes=5)
    other.save_pretrained(folder)
    assert load_model(folder).num_classes == 5


def test_others_may_read_it_as_far_as_the_umask_says(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        ParseCaps.from_preset("tiny", num_classes=2).save_pretrained(tmp_path / "model")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").iterdir()}
    assert modes == {"config.json": 0o640, "model.safetensors": 0o640}


def test_loading_runs_no_pickle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("something is unpickled")

    for owner, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(owner, name, refuse)
    monkeypatch.setattr(torch.serialization, "load", refuse)
    assert isinstance(load_model(folder), ParseCaps)
    assert isinstance(ParseCaps.from_pretrained(str(folder)), ParseCaps)


def test_every_kind_of_model_is_known_by_its_name() -> None:
    assert {name: kind.__name__ for name, kind in all_models().items()} == {name: name for name in all_models()}
    assert all(issubclass(kind, PretrainedModel) for kind in all_models().values())


def test_loading_leaves_the_random_numbers_of_the_caller_reproducible(folder: Path) -> None:
    torch.manual_seed(0)
    first = load_model(folder)
    torch.manual_seed(1)
    second = load_model(folder)
    for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def empty_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def pickled_weights(folder: Path) -> None:
    torch.save({"a": torch.ones(2)}, folder / "model.safetensors")


def missing_tensor(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(sorted(tensors)[0])
    save_file(tensors, folder / "model.safetensors")


def broken_json(folder: Path) -> None:
    (folder / "config.json").write_text('{"model": "ParseCaps",\n "config": {', encoding="utf-8")


def binary_json(folder: Path) -> None:
    (folder / "config.json").write_bytes(b"\xff\xfe\x00\x01")


def other_json(folder: Path) -> None:
    (folder / "config.json").write_text("[1, 2]", encoding="utf-8")


def change_config(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "config.json"
        stored = json.loads(path.read_text(encoding="utf-8"))
        change(stored)
        path.write_text(json.dumps(stored), encoding="utf-8")

    return apply


BROKEN: dict[str, Callable[[Path], None]] = {
    "no weights": without_weights,
    "no configuration": without_config,
    "cut weights": cut_weights,
    "empty weights": empty_weights,
    "pickled weights": pickled_weights,
    "a tensor is missing": missing_tensor,
    "broken json": broken_json,
    "binary json": binary_json,
    "other json": other_json,
    "other size": change_config(lambda s: s["config"].update(num_classes=7)),
    "unknown setting": change_config(lambda s: s["config"].update(num_clases=7)),
    "unknown kind": change_config(lambda s: s.update(model="Perceptron")),
    "kind is a list": change_config(lambda s: s.update(model=["ParseCaps"])),
    "settings are a list": change_config(lambda s: s.update(config=[1])),
    "a setting is missing": change_config(lambda s: s["config"].pop("num_classes")),
    "a setting is text": change_config(lambda s: s["config"].update(num_classes="three")),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_folder_gets_one_line(name: str, folder: Path) -> None:
    BROKEN[name](folder)
    with refused((ValueError, FileNotFoundError), hide=LIBRARY):
        load_model(folder)


def test_a_missing_folder(tmp_path: Path) -> None:
    with refused(FileNotFoundError):
        load_model(tmp_path / "nowhere")


def test_another_kind_of_model(folder: Path) -> None:
    with refused(ValueError):
        PlainCNN.from_pretrained(folder)


@pytest.mark.parametrize("preset", ["medcal", "xyz"])
def test_an_unknown_preset(preset: str) -> None:
    with refused(ValueError):
        ParseCaps.from_preset(preset, num_classes=2)


def test_the_configuration_is_its_own() -> None:
    dims = [4, 8, 12, 16]
    model = ParseCaps.from_preset("tiny", num_classes=2, dims=dims)
    dims.append(99)
    assert model.config["dims"] == [4, 8, 12, 16]


def test_the_settings_of_the_routing_are_flat() -> None:
    model = ParseCaps.from_preset("tiny", num_classes=2, alpha=1.3, whole_values=True, jitter=0.1)
    assert (model.config["alpha"], model.config["whole_values"], model.config["routing"]) == (1.3, True, "saa")
    assert model.config["heads"] == [2, 2, 4]
    other = ParseCaps.from_config(model.config)
    assert other.blocks[2][0].routing.sparse.heads == 4
    assert other.blocks[0][0].routing.sparse.whole_values
