"""Measures of lesions as a further target: what they cost, and a training with them."""

from pathlib import Path

import pytest
import torch

from parsecaps.audit.run import audit_model
from parsecaps.config import load_config
from parsecaps.models import FlatCaps, ParseCaps
from parsecaps.pipeline import fit as pipeline
from parsecaps.training.fit import Listeners
from parsecaps.training.measure_guide import MeasureGuide
from studies.tumour_measures import MEASURES
from tests.training.make import TINY
from tests.training.test_mask_guide import outlined

SETTINGS = [*TINY, "model.num_concepts=0", "training.measure_weight=5"]


@pytest.mark.parametrize("kind", [ParseCaps, FlatCaps])
def test_it_is_the_squared_error_and_reaches_the_whole_tree(kind: type[ParseCaps]) -> None:
    torch.manual_seed(0)
    model = kind.from_preset("tiny", num_classes=2, num_concepts=0)
    guide = MeasureGuide(model)
    image, measures = torch.rand(3, 1, 32, 32), torch.randn(3, len(MEASURES))
    model.train()(image)
    (top,) = guide._heard
    cost = guide(measures)
    torch.testing.assert_close(cost, (guide.head(top.flatten(1)) - measures).square().mean())
    cost.backward()
    untouched = [name for name, p in model.named_parameters() if p.grad is None]
    assert {name.split(".")[0] for name in untouched} == {"classes"}


def test_images_without_measures_cost_nothing_and_count_for_nothing() -> None:
    torch.manual_seed(0)
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=0).eval()
    guide, image, measures = MeasureGuide(model), torch.rand(3, 1, 32, 32), torch.randn(3, len(MEASURES))
    model(image)
    measures[2] = torch.nan
    partly = guide(measures)
    model(image[:2])
    torch.testing.assert_close(partly, guide(measures[:2]))
    model(image)
    nothing = guide(torch.full_like(measures, torch.nan))
    assert float(nothing.detach()) == 0
    nothing.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in guide.parameters())


def test_a_training_with_measures_learns_them_and_says_so(tmp_path: Path) -> None:
    data = f"data.path={outlined(tmp_path)}"
    config = load_config(
        None, [data, *SETTINGS, "training.epochs=16", "training.keep=last", "training.learning_rate=0.01"]
    )
    run = pipeline.fit(config, run_folder=tmp_path / "run", listeners=Listeners())
    cost = [row["train_measure"] for row in run.history]
    assert cost[-1] < 0.8 * cost[0]
    plain = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=0)
    assert run.load().model.state_dict().keys() == plain.state_dict().keys()  # the head is thrown away
    card = (run.folder.bundle / "README.md").read_text(encoding="utf-8")
    assert "measured of the lesions by the masks of training images was a target of training (weight 5.0)" in card
    found = audit_model(run.folder.path, limit=1, resamples=0)
    assert found.notes[0].startswith("masks were a target of its training")
