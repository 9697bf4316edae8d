from dataclasses import fields
from pathlib import Path

import pytest

from docs.site.reference import settings_page
from parsecaps.config import (
    Config,
    PreparationSection,
    known_keys,
    load_config,
    shipped_configs,
)
from tests.messages import LIBRARY, refused


def test_defaults_are_those_of_the_code() -> None:
    """`config` may not import the code it configures, so the numbers stand in two places."""
    from parsecaps.data.preparation import Preparation

    prepared = {field.name for field in fields(Preparation)} - {"size"}
    assert prepared == set(PreparationSection.model_fields)
    preparation = Preparation(size=28)
    assert (PreparationSection().square, PreparationSection().scaling) == (preparation.square, preparation.scaling)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    config = load_config(None, ["training.epochs=3", "model.settings.dims=[4, 8, 12, 16]", "data.test_fold=[1, 2]"])
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(path) == config
    assert load_config(path, ["training.epochs=auto"]).training.epochs == "auto"
    assert config.data.test_fold == (1, 2)


def test_a_file_is_changed_by_set(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text("training:\n  epochs: 7\n  learning_rate: 1e-3\naugmentation: null\n", encoding="utf-8")
    config = load_config(path, ["training.batch_size=4", "model.settings.dropout=0", "data.path='a: b'"])
    assert (config.training.epochs, config.training.batch_size, config.training.learning_rate) == (7, 4, 0.001)
    assert config.augmentation is None
    assert (config.model.settings, config.data.path) == ({"dropout": 0}, "a: b")
    path.write_text("", encoding="utf-8")
    assert load_config(path) == Config()


@pytest.mark.parametrize(
    "written",
    [
        "training.epoch=3",
        "epochs=3",
        "model.learning_rate=1",
        "agmentation.flip=false",
        "data.testfold=[1]",
        "model.image_sizes=0",
    ],
)
def test_an_unknown_key_names_the_nearest(written: str, tmp_path: Path) -> None:
    key = written.partition("=")[0]
    with refused(ValueError):
        load_config(None, [written])
    section, _, name = key.partition(".")
    path = tmp_path / "c.yaml"
    path.write_text(f"{section}:\n  {name}: 3\n" if name else f"{section}: 3\n", encoding="utf-8")
    with refused(ValueError):
        load_config(path)


@pytest.mark.parametrize(
    "override",
    [
        "training.epochs=many",
        "training.epochs=0",
        "data.val=1.5",
        "training.class_balance=weight",
        "training.learning_rate=.nan",
        "training=5",
        "training.epochs",
        "data.path=[",
    ],
)
def test_a_wrong_value_is_one_line(override: str) -> None:
    with refused(ValueError):
        load_config(None, [override])


def test_a_file_may_be_like_one_that_is_shipped(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("like: capsnet-brain\ntraining: {epochs: 3}\n")
    mine, brain = load_config(file), load_config("capsnet-brain")
    assert mine.training.epochs == 3
    assert mine.change("training", epochs=brain.training.epochs) == brain
    capsnet = load_config("capsnet").training  # which that is like in turn
    assert (brain.training.optimizer, brain.training.decay) == (capsnet.optimizer, capsnet.decay) == ("adam", 0.96)


@pytest.mark.parametrize("text", ["training: [", "- 1\n", "training:\n  epochs: x\n", "like: nothing\n"])
def test_a_wrong_file_is_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text, encoding="utf-8")
    with refused(ValueError, hide=LIBRARY):
        load_config(path)
    with refused(FileNotFoundError):
        load_config(tmp_path / "gone.yaml")


def test_a_key_of_a_section_that_is_off_says_how_to_turn_it_on(tmp_path: Path) -> None:
    path = tmp_path / "off.yaml"
    path.write_text("augmentation: null\n", encoding="utf-8")
    with refused(ValueError):
        load_config(path, ["augmentation.colour=0.1"])
    on = load_config(path, ["augmentation={}", "augmentation.colour=0.1"]).augmentation
    assert on is not None
    assert on.colour == 0.1


def test_the_page_of_settings_names_every_key_and_every_shipped_configuration() -> None:
    tables = settings_page()
    assert [key for key in known_keys() if "." in key and f"| `{key}` |" not in tables] == []
    page = (Path(__file__).parent.parent / "docs" / "settings.md").read_text(encoding="utf-8")
    assert [name for name in shipped_configs() if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", shipped_configs())
def test_shipped_configurations_are_known_by_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of that name comes first; the comment on top says how to use it."""
    from importlib.resources import files

    monkeypatch.chdir(tmp_path)
    shipped = load_config(name, ["training.seed=7"])
    assert shipped.training.seed == 7
    assert shipped.change("training", seed=0) != Config()
    text = (files("parsecaps") / "configs" / f"{name}.yaml").read_text(encoding="utf-8")
    assert "parsecaps demo" in text if name.startswith("demo") else f"--config {name}" in text
    (tmp_path / name).mkdir()
    assert load_config(name, ["training.seed=7"]) == shipped  # a folder of data may be called so
    (tmp_path / name).rmdir()
    (tmp_path / name).write_text("training: {epochs: 3}", encoding="utf-8")
    assert load_config(name) == Config().change("training", epochs=3)


def test_a_name_that_is_not_shipped() -> None:
    with refused(FileNotFoundError):
        load_config("cemry")


def test_settings_of_losses_are_read_by_their_names_of_version_0_2(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("training: {semantic_weight: 0.4, margin_weight: auto, margins: [0.8, 0.2, 0.5]}", encoding="utf-8")
    config = load_config(path, ["training.triplet_weight=0.2", "training.prototype_push=3"])
    new = ["semantic=0.4", "margin.margins=[0.8, 0.2, 0.5]", "margin=auto", "prototype.push_every=3", "triplet=0.2"]
    assert config == load_config(None, [f"training.losses.{each}" for each in new])
    assert load_config(path, ["training.losses.semantic=0.1"]).training.losses["semantic"] == 0.1
    path.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(path) == config
    with refused(ValueError):
        load_config(None, ["training.triplet_weight=-1"])


def test_changes_of_losses_add_to_those_there() -> None:
    config = Config().change("training", losses={"triplet": 0.2}).change("training", losses={"margin": 1.0}, seed=3)
    assert config.training.losses == {"triplet": 0.2, "margin": 1.0}
