"""The decoder: an image of the right size from the global capsule."""

import pytest
import torch
from torch import nn

from parsecaps.nn import Decoder


@pytest.mark.parametrize(("size", "channels"), [(28, 1), (32, 3), (45, 1), (100, 3)])
def test_it_gives_the_size_of_the_image(size: int, channels: int) -> None:
    decoder = Decoder(num_concepts=5, channels=(8, 6, 4, 2), out_channels=channels, image_size=size)
    assert decoder(torch.rand(2, 1, 5).softmax(-1)).shape == (2, channels, size, size)
    assert sum(isinstance(layer, nn.ConvTranspose2d) for layer in decoder.modules()) == 4


def test_the_picture_depends_on_the_global_capsule_everywhere() -> None:
    decoder = Decoder(num_concepts=3, channels=(8, 6, 4, 4), out_channels=1, image_size=32).eval()
    pictures = decoder(torch.eye(3).unsqueeze(1))
    assert (pictures[0] != pictures[1]).float().mean() > 0.9


def test_it_learns_a_picture_for_each_concept() -> None:
    decoder = Decoder(num_concepts=2, channels=(16, 8, 8, 8), out_channels=1, image_size=32)
    concepts, target = torch.eye(2).unsqueeze(1), torch.randn(2, 1, 1, 1).expand(2, 1, 32, 32)
    optimizer = torch.optim.Adam(decoder.parameters(), lr=0.02)
    errors = []
    for _ in range(30):
        error = (decoder(concepts) - target).square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        errors.append(error.item())
    assert errors[-1] < errors[0] / 4


def test_wrong_number_of_channels() -> None:
    with pytest.raises(ValueError, match=r"3 channel numbers; give 4"):
        Decoder(num_concepts=3, channels=(8, 8, 8), out_channels=1, image_size=28)
