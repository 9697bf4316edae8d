"""Every variant of the ablation builds, and one trains to a row of the table."""

from pathlib import Path

import pytest

from parsecaps.config import Config, load_config
from parsecaps.models import find_model
from studies import ablation


def small(config: Config) -> Config:
    tiny = config.change("data", path="phantom:n=120,size=32").change("model", image_size=32)
    return tiny.change("training", warm_up_epochs=1)


@pytest.mark.parametrize("variant", ablation.VARIANTS)
def test_each_variant_differs_from_the_shipped_one_and_builds(variant: str) -> None:
    shipped = ablation.shipped()
    config = ablation.changed(shipped, variant)
    assert (config == shipped) == (variant == "as_shipped")
    kind = find_model(config.model.kind)
    head = {"head": config.model.head, "num_classes": 2, "num_concepts": 7, "in_channels": 3, "image_size": 64}
    model = kind.from_preset(config.model.preset, **{**config.model.settings, **head})
    assert model.num_concepts == 7


def test_a_row_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ablation, "load_config", lambda name: small(load_config(name)))
    row = ablation.train_variant("plain_cnn", tmp_path / "run", epochs=1, seed=3)
    assert (row["variant"], row["seed"], row["epochs"], row["n"]) == ("plain_cnn", 3, 1, 12)
    value, low, high = row["accuracy"]
    assert 0 <= low <= value <= high <= 100
    assert 0 < row["explanation_error_l2"][0] < 7**0.5
    again = ablation.train_variant("plain_cnn", tmp_path / "run", epochs=1, seed=3)
    assert again == row  # read, not trained
