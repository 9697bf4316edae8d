"""Masks as a further target: what they cost, whom they teach, and a training with them."""

import csv
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from parsecaps.audit.run import audit_model
from parsecaps.config import load_config
from parsecaps.models import FlatCaps, ParseCaps
from parsecaps.pipeline import fit as pipeline
from parsecaps.training import watch
from parsecaps.training.fit import Listeners, fit
from parsecaps.training.mask_guide import MaskGuide
from tests.data.make import folder_of_pictures
from tests.training.make import TINY
from tests.training.test_resume import assert_same_run

SETTINGS = [*TINY, "model.num_concepts=0", "training.mask_weight=3"]


def tiny(kind: type[ParseCaps] = ParseCaps) -> tuple[ParseCaps, MaskGuide]:
    torch.manual_seed(0)
    model = kind.from_preset("tiny", num_classes=2, num_concepts=0)
    return model, MaskGuide(model)


def square(count: int) -> Tensor:
    mask = torch.zeros(count, 32, 32)
    mask[:, 8:24, 4:16] = 1
    return mask


@pytest.mark.parametrize("kind", [ParseCaps, FlatCaps])
def test_gradients_reach_the_first_two_blocks_and_no_further(kind: type[ParseCaps]) -> None:
    model, guide = tiny(kind)
    model(torch.rand(3, 1, 32, 32))
    guide(square(3)).backward()
    touched = {
        name.split(".")[1] for name, p in model.named_parameters() if name.startswith("blocks") and p.grad is not None
    }
    assert touched == {"0", "1"}
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in guide.parameters())


def test_it_is_the_cross_entropy_of_the_share_that_is_covered() -> None:
    model, guide = tiny()
    for head in guide.heads:
        torch.nn.init.zeros_(head[1].weight)
        torch.nn.init.constant_(head[1].bias, 2.0)
    model(torch.rand(3, 1, 32, 32))
    share, said = float(square(1).mean()), torch.tensor(2.0).sigmoid()
    wanted = -(share * said.log() + (1 - share) * (1 - said).log())
    assert float(guide(square(3)).detach()) == pytest.approx(float(wanted), rel=1e-5)


def test_unknown_masks_cost_nothing_and_count_for_nothing() -> None:
    model, guide = tiny()
    image, mask = torch.rand(3, 1, 32, 32), square(3)
    model.eval()(image)
    mask[2] = torch.nan
    partly = guide(mask)
    model(image[:2])
    torch.testing.assert_close(partly, guide(mask[:2]))
    model(image)
    nothing = guide(torch.full((3, 32, 32), torch.nan))
    assert float(nothing.detach()) == 0
    nothing.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in guide.parameters())


def outlined(root: Path) -> Path:
    """Pictures with a bright square each, most of them with a mask of it."""
    folder_of_pictures(root / "pictures", per_class=20, side=32)
    random, path = np.random.default_rng(0), root / "cases.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "patient", "mask"])
        for label in "ab":
            for i in range(20):
                picture = np.array(Image.open(root / f"pictures/{label}/{i}.png").convert("L")) // 3
                mask = np.zeros((32, 32), np.uint8)
                top, left = random.integers(0, 20, 2)
                mask[top : top + 12, left : left + 12] = 255
                Image.fromarray(np.where(mask > 0, 230, picture).astype(np.uint8)).save(
                    root / f"pictures/{label}/{i}.png"
                )
                Image.fromarray(mask).save(root / f"{label}{i}.png")
                writer.writerow([f"pictures/{label}/{i}.png", label, f"{label}{i}", f"{label}{i}.png" if i % 5 else ""])
    return path


def test_a_training_with_masks_learns_them_and_says_so(tmp_path: Path) -> None:
    data = f"data.path={outlined(tmp_path)}"
    config = load_config(None, [data, *SETTINGS, "training.epochs=12", "training.keep=last"])
    run = pipeline.fit(config, run_folder=tmp_path / "run", listeners=Listeners())
    cost = [row["train_mask"] for row in run.history]
    assert cost[-1] < 0.8 * cost[0]
    plain = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=0)
    assert run.load().model.state_dict().keys() == plain.state_dict().keys()  # the heads are thrown away
    card = (run.folder.bundle / "README.md").read_text(encoding="utf-8")
    assert "masks of training images were a target of training (weight 3.0)" in card
    assert "the validation part chose nothing" in card
    found = audit_model(run.folder.path, limit=1, resamples=0)
    assert found.notes[0].startswith("masks were a target of its training")


def test_stopped_and_resumed_it_ends_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = f"data.path={outlined(tmp_path)}"
    monkeypatch.setattr(watch, "_SECONDS", 0.0)
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    fit(load_config(None, [data, *SETTINGS]), run_folder=whole)

    def stop(progress: watch.Progress) -> None:
        if (progress.epoch, progress.batch) == (1, 1):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fit(load_config(None, [data, *SETTINGS]), run_folder=stopped, listeners=Listeners(progress=stop))
    fit(resume=stopped)
    assert_same_run(whole, stopped)
