from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from parsecaps.config import load_config
from parsecaps.data.cases import UNKNOWN, DataSet
from parsecaps.data.sources import absolute
from parsecaps.training.choose import choose, has_colour, look_at
from tests.data.make import table
from tests.messages import message, refused

NAN = UNKNOWN


def drawn(side: int = 512, counts: Sequence[int] = (30, 30), colour: bool = False) -> DataSet:
    """Cases whose images are drawn: noise of this size, grey or coloured."""
    data = table([(f"{c}{i}", c, 1) for c, count in enumerate(counts) for i in range(count)])

    def draw(rows: Sequence[int]) -> np.ndarray:
        noise = np.random.default_rng(0).integers(0, 256, (len(rows), 3 if colour else 1, side, side), dtype=np.uint8)
        return np.broadcast_to(noise, (len(rows), 3, side, side))

    return replace(data, draw=draw)


def settle(data: DataSet, *overrides: str, processes: int = 1, val: bool = True) -> tuple[object, str]:
    division = ["val" if val and i % 5 == 0 else "train" for i in range(len(data))]
    config, choices = choose(load_config(None, overrides), data, division, processes=processes)  # type: ignore[arg-type]
    return config, "\n".join(map(str, choices))


@pytest.mark.parametrize(
    ("side", "preset", "size"),
    [
        (20, "digits", 28),
        (28, "digits", 28),
        (40, "digits", 40),
        (50, "medical", 64),
        (100, "medical", 96),
        (112, "medical", 112),
    ],
)
def test_size_follows_the_files(side: int, preset: str, size: int) -> None:
    config, text = settle(drawn(side))
    assert (config.model.preset, config.model.image_size) == (preset, size)
    message(text, containing="model.image_size:")


def test_a_rival_gets_the_size_that_it_was_published_for() -> None:
    config, text = settle(drawn(200), "model.kind=CapsNet")
    assert (config.model.preset, config.model.image_size, config.model.num_concepts) == ("medical", 64, 0)
    message(text, containing="model.image_size:")
    assert settle(drawn(50), "model.kind=CapsNet")[0].model.image_size == 64
    assert settle(drawn(28), "model.kind=CapsNet")[0].model.image_size == 28


def test_few_images_are_not_large(monkeypatch: pytest.MonkeyPatch) -> None:
    config, text = settle(drawn(512))
    assert config.model.image_size == 112
    message(text, containing="model.image_size:")
    monkeypatch.setattr("parsecaps.training.choose.FEW_IMAGES", 47)
    assert settle(drawn(512))[0].model.image_size == 224
    assert settle(drawn(200))[0].model.image_size == 128


def test_size_follows_what_is_used_of_the_files() -> None:
    config, text = settle(drawn(400), "preparation.centre=0.25")
    assert config.model.image_size == 96
    message(text, containing="model.image_size:")


def test_size_is_that_of_the_square() -> None:
    data = drawn(112)
    oblong = replace(data, draw=lambda rows: data.draw(rows)[:, :, :70])
    assert settle(oblong)[0].model.image_size == 112  # padded
    assert settle(oblong, "preparation.square=crop")[0].model.image_size == 64


_OF_FEW = {
    "augmentation.resampling": "bicubic",
    "training.mixup": 0.4,
    "training.losses.consistency": 4.0,
    "training.ema": 0.99,
    "training.keep": "last",
    "training.epochs": 40,
}


def test_few_images_have_a_recipe_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    config, text = settle(drawn(64))
    losses = config.training.losses
    values = {key: losses["consistency"] if "losses" in key else attrgetter(key)(config) for key in _OF_FEW}
    assert values == _OF_FEW
    message(text)
    assert config.model.settings == {"whole_values": True}
    assert (config.augmentation.rotation, config.augmentation.colour) == (15.0, 0.0)
    coloured, text = settle(drawn(64, colour=True))
    assert (coloured.augmentation.rotation, coloured.augmentation.colour) == (180.0, 0.2)
    message(text, containing="augmentation.rotation")
    given = settle(drawn(64), "training.mixup=0", "training.keep=best", "model.settings.whole_values=false")[0]
    assert (given.training.mixup, given.training.keep, given.training.patience) == (0.0, "best", 20)
    assert given.model.settings == {"whole_values": False}
    off = settle(drawn(64), "augmentation=null")[0].training
    assert (off.losses["consistency"], off.mixup) == (0.0, 0.4)


@pytest.mark.parametrize("many", ["images", "preset"])
def test_many_images_and_other_presets_have_the_plain_one(many: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if many == "images":
        monkeypatch.setattr("parsecaps.training.choose.FEW_IMAGES", 47)
    config = settle(drawn(64, colour=True), *(["model.preset=medical-paper"] if many == "preset" else []))[0]
    training, changes = config.training, config.augmentation
    assert (training.mixup, training.losses["consistency"], training.ema, training.keep) == (0.0, 0.0, 0.0, "best")
    assert (training.epochs, training.patience) == (100, 50)
    assert (changes.rotation, changes.colour, changes.resampling) == (15.0, 0.0, "bilinear")
    assert config.model.settings == {}


def test_other_networks_share_the_recipe_but_not_the_capsules() -> None:
    config = settle(drawn(64), "model.kind=ResNet18")[0]
    assert (config.training.mixup, config.model.settings) == (0.4, {})


def test_images_without_labels_teach_by_their_views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parsecaps.training.choose.FEW_IMAGES", 0)
    data = drawn(64)
    some = replace(data, cases=[replace(case, label=-1) if i % 9 == 0 else case for i, case in enumerate(data.cases)])
    assert settle(data)[0].training.losses["consistency"] == 0
    config, text = settle(some)
    assert config.training.losses["consistency"] == 4
    message(text, containing="training.losses.consistency:")


def test_a_network_is_built_like_the_one_it_starts_from() -> None:
    data, division = drawn(64), ["train"] * 60
    trunk = {"dims": [4, 8, 12, 16], "whole_values": False}
    config, choices = choose(load_config(None, ["model.start=w"]), data, division, trunk=trunk)
    assert config.model.settings == trunk
    message(*choices, containing="model.settings:")
    asked = load_config(None, ["model.start=w", "model.preset=medical", "model.settings.dropout=0.3"])
    assert choose(asked, data, division, trunk=trunk)[0].model.settings == {"whole_values": True, "dropout": 0.3}


def test_nothing_stays_auto_and_what_is_given_stays() -> None:
    config, text = settle(drawn(64))
    assert "auto" not in config.to_yaml()
    again, said = choose(config, drawn(64), ["train"] * 60)
    assert again == config
    assert [choice.what for choice in said] == ["losses"]
    config, text = settle(drawn(512), "model.image_size=112", "training.epochs=7", "preparation.channels=3")
    assert (config.model.preset, config.model.image_size, config.training.epochs) == ("medical", 112, 7)
    assert config.preparation.channels == 3
    assert "epochs" not in text.replace("epochs without", "")


def test_colour_is_seen_in_the_pixels() -> None:
    assert settle(drawn(64, colour=True))[0].preparation.channels == 3
    config, text = settle(drawn(64))  # three channels in the file, all the same
    assert config.preparation.channels == 1
    message(text, containing="channels")
    grey = np.random.default_rng(0).integers(0, 256, (16, 16, 1)) + np.array([0, 1, 2])
    assert not has_colour(grey)
    assert not has_colour(grey[:, :, 0])
    assert has_colour(grey + np.array([0, 0, 40]))


@pytest.mark.parametrize(("known", "concepts"), [(None, 8), ([(1.0, 0.0)], 2), ([(1.0, NAN), (NAN, NAN)], 2)])
def test_losses_follow_the_labels(known: list[tuple[float, ...]] | None, concepts: int) -> None:
    data = drawn(64)
    if known is not None:
        cases = [replace(case, concepts=known[i % len(known)]) for i, case in enumerate(data.cases)]
        data = replace(data, concepts=("x", "y"), cases=cases)
    config, text = settle(data)
    message(text, containing="losses: ")
    assert config.model.num_concepts == concepts


def test_skewed_classes_are_balanced() -> None:
    config, text = settle(drawn(64, counts=(60, 30)))
    assert config.training.class_balance == "weights"
    message(text, containing="class_balance")
    assert settle(drawn(64, counts=(44, 30)))[0].training.class_balance == "none"
    assert settle(drawn(64, counts=(60, 30)), "training.class_balance=sampling")[0].training.class_balance == "sampling"


def test_length_follows_the_number_of_images() -> None:
    few, many = settle(drawn(64))[0].training, settle(drawn(64, counts=(5000, 5000)))[0].training
    assert (few.epochs, few.batch_size, few.patience) == (40, 16, 0)
    assert (many.epochs, many.batch_size, many.patience) == (12, 16, 10)
    assert settle(drawn(64, counts=(2000, 2000)))[0].training.epochs == 16  # 50,000 images in two views
    assert settle(drawn(64, counts=(8000, 8000)))[0].training.batch_size == 64
    assert settle(drawn(64), "training.keep=best", val=False)[0].training.patience == 0
    assert settle(drawn(64), "training.keep=best")[0].training.patience == 20
    config, text = settle(drawn(64, counts=(8, 7)), processes=2)
    assert config.training.batch_size == 12  # all of the 12 training images
    message(text, containing="batch_size")


def test_digits_are_not_mirrored() -> None:
    assert settle(drawn(64))[0].augmentation.flip is True
    assert settle(replace(drawn(28), source="mnist"))[0].augmentation.flip is False
    assert settle(drawn(64), "augmentation=null")[0].augmentation is None


def test_a_trunk_has_its_own_preset_where_the_model_has_one() -> None:
    config, text = settle(drawn(64), "model.settings.trunk=lite0")
    assert (config.model.preset, config.model.image_size) == ("trunk", 128)
    message(text, containing="trunk: ")
    message(settle(drawn(64), "model.settings.trunk=PlainCNN")[1], containing="trunk: ")
    assert settle(drawn(64), "model.preset=trunk")[0].model.settings == {"whole_values": True}
    assert settle(drawn(64), "model.settings.trunk=none")[0].model.preset == "medical"
    assert settle(drawn(64), "model.settings.trunk=lite0", "model.kind=FlatCaps")[0].model.preset == "medical"


def test_impossible_wishes_are_refused() -> None:
    data = drawn(64)
    named = replace(data, concepts=("x",), cases=[replace(case, concepts=(1.0,)) for case in data.cases])
    with refused(ValueError):
        settle(named, "model.num_concepts=3")
    with refused(ValueError):
        settle(data, "model.preset=medcal")
    with refused(ValueError):
        settle(data, "model.settings.trunk=lite0", "model.settings.tile=big")
    asked = "training.losses.consistency=2"
    message(settle(data, asked)[1], containing="losses: ")
    with refused(ValueError):
        settle(data, asked, "augmentation=null")
    with refused(ValueError):
        choose(load_config(), data, ["test"] * len(data))
    with refused(ValueError):
        look_at(replace(data, draw=None), range(len(data)))


def test_paths_are_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    assert absolute("images") == str(tmp_path / "images")
    assert absolute("folder:images") == f"folder:{tmp_path / 'images'}"
    assert absolute("phantom:n=3") == "phantom:n=3"
