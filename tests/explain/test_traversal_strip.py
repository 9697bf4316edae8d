import pytest
import torch

from parsecaps.explain.traversal import STEPS, traversal_strips, traverse
from tests.explain.test_traversal import CAPSULE, model_with_decoder


def test_the_strip_holds_the_decoders_pictures_in_order() -> None:
    model = model_with_decoder()
    strips = traversal_strips(model, CAPSULE, ("a", "b", "c", "d"), 2)
    assert [(each.name, each.value) for each in strips] == [("a", pytest.approx(0.4)), ("b", pytest.approx(0.3))]
    wanted = traverse(model, CAPSULE, steps=STEPS)
    for j, strip in enumerate(strips):
        assert strip.values == pytest.approx(wanted.values[j].tolist())
        assert torch.equal(strip.pictures, torch.stack([wanted.picture, *wanted.pictures[j]]))
    assert strips[0].sentence().startswith("The decoder's picture with a as it is (0.40), then set to 0.00, 0.17")


def test_never_more_than_there_are() -> None:
    assert len(traversal_strips(model_with_decoder(), CAPSULE, ("a", "b", "c", "d"), 9)) == 4
