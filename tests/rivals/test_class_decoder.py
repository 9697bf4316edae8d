"""The decoder sees the capsule of one class and nothing of the others."""

import torch

from parsecaps.rivals.class_capsules import ClassDecoder


def build() -> ClassDecoder:
    return ClassDecoder(num_classes=3, dim=4, shape=(2, 5, 5), sizes=(8, 16))


def test_only_the_capsule_asked_for_is_drawn() -> None:
    decoder, capsules, index = build(), torch.randn(2, 3, 4), torch.tensor([2, 0])
    picture = decoder(capsules, index)
    assert picture.shape == (2, 2, 5, 5)
    assert 0 <= picture.min() <= picture.max() <= 1
    others = capsules.clone()
    others[0, :2], others[1, 1:] = 9.0, -9.0
    torch.testing.assert_close(decoder(others, index), picture)
    others[0, 2] += 1
    assert not torch.allclose(decoder(others, index)[0], picture[0])


def test_the_same_numbers_at_another_place_are_another_picture() -> None:
    decoder, capsules = build(), torch.randn(1, 1, 4).expand(1, 3, 4)
    assert not torch.allclose(decoder(capsules, torch.tensor([0])), decoder(capsules, torch.tensor([1])))


def test_the_layers_are_fully_connected() -> None:
    sizes = [12 * 8 + 8, 8 * 16 + 16, 16 * 50 + 50]
    assert sum(weight.numel() for weight in build().parameters()) == sum(sizes)
