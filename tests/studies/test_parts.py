"""The synthetic task: the same for the same seed, and solvable by composition alone."""

import torch

from studies.parts import CLASSES, draw_parts


def test_shapes_range_and_classes() -> None:
    image, label = draw_parts(600, seed=0)
    assert torch.equal(image, draw_parts(600, seed=0)[0])
    assert image.shape == (600, 1, 32, 32)
    assert 0 <= image.min() <= image.max() <= 1
    assert label.unique().tolist() == list(range(len(CLASSES)))


def test_every_image_has_the_same_parts() -> None:
    """So the number of drawn pixels does not tell the classes apart."""
    image, _ = draw_parts(200, seed=1, noise=0.0)
    assert (image > 0).sum((1, 2, 3)).unique().tolist() == [16 + 9 + 9 + 9]
