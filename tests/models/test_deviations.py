"""Every deviation that `docs/paper.md` names is on and off where the page says so, and no other is there."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from parsecaps import load_config
from parsecaps.config import Config
from parsecaps.models import ParseCaps
from parsecaps.models.summary import count_parameters
from parsecaps.training.terms import loss_weight
from tests.messages import refused

PAGE = Path(__file__).parents[2] / "docs" / "paper.md"
AS_PRINTED, AS_PRINTED_DIGITS = "parsecaps-paper", "parsecaps-paper-digits"
# where the presets for digits have sizes of their own
OF_SIZE = {"heads", "stem_channels", "decoder_channels", "class_dim", "concept_dim"}
CHOSEN = {"losses.consistency": 0, "training.mixup": 0, "augmentation.rotation": 15}  # what `auto` is for many images


def listed() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each deviation with what ours and the printed network have of it; nothing where it holds in both."""
    table = PAGE.read_text(encoding="utf-8").partition("| deviation | ours |")[2].partition("\n\n")[0]
    rows = []
    for line in table.splitlines()[2:]:
        name, *both, _ = (cell.strip() for cell in line.strip("|").split(" | "))
        found = [dict(part.split("=") for part in re.findall(r"`([^`]+=[^`]+)`", each)) for each in both]
        assert all(found) or both == ["always", "always"], line
        rows.append((name, *({key: yaml.safe_load(value) for key, value in each.items()} for each in found)))
    return rows


LISTED = listed()


def there(key: str, model: ParseCaps, config: Config) -> Any:
    """A setting as the code has it."""
    section, _, name = key.partition(".")
    if not name:
        return model.config[key]
    if section == "losses":
        weight = config.training.losses.get(name, "auto")
        return CHOSEN.get(key, loss_weight(config.training, type(model), name)) if weight == "auto" else weight
    value = getattr(getattr(config, section), name)
    return CHOSEN[key] if value == "auto" else value


@pytest.mark.parametrize(("name", "ours", "printed"), LISTED, ids=[row[0][:40] for row in LISTED])
def test_a_deviation_is_where_the_page_says(name: str, ours: dict[str, Any], printed: dict[str, Any]) -> None:
    for preset, recipe, wanted in (
        ("medical", None, ours),
        ("medical-paper", AS_PRINTED, printed),
        ("digits-paper", AS_PRINTED_DIGITS, {key: value for key, value in printed.items() if key not in OF_SIZE}),
    ):
        model = ParseCaps.from_preset(preset, num_classes=3)
        found = {key: there(key, model, load_config(recipe)) for key in wanted}
        assert found == wanted, preset


def test_no_deviation_is_left_out() -> None:
    named = {key for _, ours, _ in LISTED for key in ours}
    for ours, printed in (("medical", "medical-paper"), ("digits", "digits-paper")):
        first, second = (ParseCaps.from_preset(each, num_classes=3).config for each in (ours, printed))
        assert {key for key in first if first[key] != second[key]} <= named
    training, as_printed = Config().training, load_config(AS_PRINTED).training
    for key in as_printed.model_fields_set - {"losses"}:
        ours, theirs = getattr(training, key), getattr(as_printed, key)
        assert ours in ("auto", theirs) or f"training.{key}" in named, key


def test_the_totals_are_those_of_the_paper() -> None:
    """490 K without the reconstruction and 3.6 M with it, on CE-MRI."""
    without = count_parameters(ParseCaps.from_preset("medical-paper", num_classes=3, num_concepts=0))
    model = ParseCaps.from_preset("medical-paper", num_classes=3)
    counted = count_parameters(model)
    assert (without.predicting, counted.predicting, sum(counted)) == (489_920, 491_200, 3_601_121)
    assert [round(each, -4) for each in (without.predicting, counted.predicting)] == [490_000, 490_000]
    assert (model.widths, model.config["dims"]) == ([28, 14, 7, 4], [8, 16, 36, 64])


@pytest.mark.parametrize("recipe", [AS_PRINTED, AS_PRINTED_DIGITS])
def test_the_recipe_is_the_papers(recipe: str) -> None:
    config = load_config(recipe)
    training, changes = config.training, config.augmentation
    assert (training.optimizer, training.learning_rate, training.weight_decay) == ("adamw", 2.5e-3, 5e-4)
    assert (training.batch_size, training.warm_up_epochs, training.schedule) == (64, 5, "cosine")
    assert training.epochs == (300 if recipe == AS_PRINTED else 100)
    assert changes is not None
    drawn = {name: value for name, value in changes.model_dump().items() if value and name != "resampling"}
    assert drawn == {"flip": True, "padding": 4}


def test_images_too_small_are_told_what_would_do() -> None:
    with refused(ValueError):
        ParseCaps.from_preset("medical-paper", num_classes=3, image_size=72)
    assert ParseCaps.from_preset("medical-paper", num_classes=3, image_size=112).widths == [28, 14, 7, 4]
