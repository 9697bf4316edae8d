"""Which kind of change costs what: the digits as they are changed, and the scores of a run."""

from pathlib import Path

import numpy as np
import torch

from parsecaps.config import load_config
from studies.affine_parts import KINDS, accuracies, changed
from tests.data.sources.layouts import write_mnist
from tests.training.make import TINY, train


def bar() -> torch.Tensor:
    """An upright bar, slightly wider than it must be for a row to tell its middle."""
    digits = torch.zeros(8, 28, 28, dtype=torch.uint8)
    digits[:, 6:22, 12:16] = 255
    return digits


def middles(images: torch.Tensor) -> np.ndarray:
    """The middle of the ink of each image, x and y: (n, 2)."""
    ink = images[:, 0] / images.sum((1, 2, 3)).view(-1, 1, 1)
    line = torch.arange(40.0)
    return torch.stack([(ink.sum(1) * line).sum(1), (ink.sum(2) * line).sum(1)], 1).numpy()


def test_a_kind_changes_nothing_else() -> None:
    still = changed(bar(), "in the middle")
    assert still.shape == (8, 1, 40, 40)
    assert all(torch.equal(image, still[0]) for image in still)
    np.testing.assert_allclose(middles(still), 19.5, atol=0.02)
    ink = still.sum((1, 2, 3))
    moved, turned, scaled = (changed(bar(), kind) for kind in ("anywhere", "turned", "scaled"))
    assert middles(moved).std(0).min() > 2
    torch.testing.assert_close(moved.sum((1, 2, 3)), ink, rtol=0.02, atol=0)
    np.testing.assert_allclose(middles(turned), 19.5, atol=0.05)
    torch.testing.assert_close(turned.sum((1, 2, 3)), ink, rtol=0.02, atol=0)
    assert float((turned - still).abs().amax()) > 0.3
    np.testing.assert_allclose(middles(scaled), 19.5, atol=0.05)
    assert float(scaled.sum((1, 2, 3)).std()) > 0.05 * float(ink[0])


def test_scores_of_a_run(tmp_path: Path) -> None:
    root = write_mnist(tmp_path / "mnist", 40)
    settings = [*TINY, "model.num_concepts=0", "model.image_size=40", "preparation.channels=1", "data.val=0.4"]
    run = tmp_path / "run"
    train(load_config(None, [f"data.path=affnist-like:{root},per_digit=2", *settings]), run_folder=run)
    found = accuracies(run)
    assert list(found) == list(KINDS)
    assert all(0 <= value <= 100 for value in found.values())
