import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from parsecaps.explain.traversal import STEPS, moved, trained_decoder, traversal_strips, traverse
from parsecaps.models import ParseCaps, PlainCNN
from tests.messages import message, refused


def model_with_decoder() -> ParseCaps:
    """A tiny model whose decoder has seen one batch."""
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=4)
    model.train()(torch.rand(4, 1, 32, 32), reconstruct=True)
    return model.eval()


CAPSULE = torch.tensor([0.4, 0.3, 0.2, 0.1])


@given(st.lists(st.floats(0, 10), min_size=2, max_size=6), st.integers(0, 5), st.floats(0, 1))
def test_a_moved_capsule_sums_to_one_and_keeps_proportions(raw: list[float], index: int, value: float) -> None:
    capsule = torch.tensor([each + 1e-3 for each in raw], dtype=torch.float64)
    capsule, index = capsule / capsule.sum(), index % len(raw)
    result = moved(capsule, index, torch.tensor([value], dtype=torch.float64))[0]
    assert result.sum().item() == pytest.approx(1)
    assert result[index].item() == value
    others = [j for j in range(len(raw)) if j != index]
    rest = 1 - capsule[index]
    assert result[others].numpy() == pytest.approx((capsule[others] * (1 - value) / rest).numpy(), abs=1e-9)


def test_others_that_are_zero_share_the_rest() -> None:
    assert moved(torch.tensor([1.0, 0, 0]), 0, torch.tensor([0.4])).tolist() == [pytest.approx([0.4, 0.3, 0.3])]


def test_each_picture_is_the_decoders() -> None:
    model = model_with_decoder()
    result = traverse(model, CAPSULE[None], steps=5)
    assert result.pictures.shape == (4, 5, 1, 32, 32)
    assert result.values[2].tolist() == [0, 0.25, 0.5, 0.75, 1]
    with torch.no_grad():
        alone = model.decoder(torch.tensor([[[0.3, 0.225, 0.4, 0.075]]]))[0]
        assert torch.allclose(traverse(model, CAPSULE, steps=6).pictures[2, 2], alone, atol=1e-5)
        assert torch.allclose(result.picture, model.decoder(CAPSULE.view(1, 1, 4))[0], atol=1e-6)


def test_where_a_number_is_what_it_was_so_is_the_picture() -> None:
    ranges = np.array([[0.4, 0.9], [0.3, 0.5], [0.2, 0.6], [0.1, 1]])
    result = traverse(model_with_decoder(), CAPSULE, steps=2, ranges=ranges)
    assert torch.allclose(result.pictures[:, 0], result.picture.expand(4, -1, -1, -1), atol=1e-5)
    assert not torch.allclose(result.pictures[0, 1], result.picture, atol=1e-5)


def test_training_mode_changes_neither_pictures_nor_counts() -> None:
    model = model_with_decoder()
    expected = traverse(model, CAPSULE)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    again = traverse(model.train(), CAPSULE)
    assert torch.equal(again.pictures, expected.pictures)
    assert model.training
    assert model.decoder.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_without_a_trained_decoder_it_says_so() -> None:
    with refused(ValueError):
        traverse(PlainCNN(num_classes=2, image_size=32, grid_width=16), CAPSULE)
    fresh = ParseCaps.from_preset("tiny", num_classes=2)
    fresh.train()(torch.rand(4, 1, 32, 32))  # trained, but never asked for a picture
    with refused(ValueError):
        trained_decoder(fresh)
    fresh.eval()(torch.rand(4, 1, 32, 32), reconstruct=True)  # nor does looking train it
    with refused(ValueError):
        trained_decoder(fresh)


def test_what_cannot_move_is_refused() -> None:
    one = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=1)
    one.train()(torch.rand(2, 1, 32, 32), reconstruct=True)
    with refused(ValueError):
        traverse(one, torch.ones(1))
    with refused(ValueError):
        traverse(model_with_decoder(), CAPSULE, steps=1)
    with refused(ValueError):
        traverse(model_with_decoder(), CAPSULE, ranges=np.array([[0, 2]] * 4))


def test_the_strip_holds_the_decoders_pictures_in_order() -> None:
    model = model_with_decoder()
    strips = traversal_strips(model, CAPSULE, ("a", "b", "c", "d"), 2)
    assert [(each.name, each.value) for each in strips] == [("a", pytest.approx(0.4)), ("b", pytest.approx(0.3))]
    wanted = traverse(model, CAPSULE, steps=STEPS)
    for j, strip in enumerate(strips):
        assert strip.values == pytest.approx(wanted.values[j].tolist())
        assert torch.equal(strip.pictures, torch.stack([wanted.picture, *wanted.pictures[j]]))
    message(strips[0].sentence())


def test_never_more_than_there_are() -> None:
    assert len(traversal_strips(model_with_decoder(), CAPSULE, ("a", "b", "c", "d"), 9)) == 4
