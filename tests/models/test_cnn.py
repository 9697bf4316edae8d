"""The plain CNN keeps the same contract as ParseCaps, without concepts."""

import pytest
import torch
from tests.models.contract import CompileContract, ExportContract, ModelContract

from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.nn import record_couplings


class TestPlainCNN(CompileContract, ExportContract):
    def build(self) -> PlainCNN:
        return PlainCNN(num_classes=3, image_size=32, grid_width=16, stem_channels=(8, 8, 8, 8), channels=(8, 12, 16))


class TestOddColour(ModelContract):
    def build(self) -> PlainCNN:
        return PlainCNN(
            num_classes=2,
            in_channels=3,
            image_size=45,
            grid_width=16,
            stem_channels=(4, 4, 8, 8),
            channels=(8, 8),
        )


def test_it_shares_the_grid_of_parsecaps() -> None:
    cnn, caps = PlainCNN(num_classes=3), ParseCaps.from_preset("medical", num_classes=3)
    assert cnn.initial.width == caps.initial.width
    features = cnn.layers(torch.zeros(1, cnn.initial.layers[-2].num_features, *[cnn.initial.width] * 2))
    assert list(features.shape[2:]) == [caps.widths[-1]] * 2


def test_it_has_no_concepts_no_decoder_and_no_couplings() -> None:
    with pytest.raises(ValueError, match=r"num_concepts is 2; PlainCNN knows no concepts, give 0"):
        PlainCNN(num_classes=3, num_concepts=2)
    model = PlainCNN(num_classes=3, image_size=28).eval()
    with pytest.raises(ValueError, match=r"no decoder; call it without reconstruct"):
        model(torch.rand(1, 1, 28, 28), reconstruct=True)
    with pytest.raises(ValueError, match=r"PlainCNN has no couplings; give"), record_couplings(model):
        pass


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 0}, r"num_classes is 0; give at least 1"),
        ({"in_channels": -1}, r"in_channels is -1; give"),
        ({"image_size": 20}, r"image_size is 20; give at least 28"),
        ({"stem_channels": (8, 8)}, r"2 channel numbers.*give 4"),
    ],
)
def test_bad_arguments(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        PlainCNN(**{"num_classes": 3, **changes})
    assert "\n" not in str(error.value)


def test_an_unknown_preset_says_that_there_are_none() -> None:
    with pytest.raises(ValueError, match=r"preset 'tiny' is unknown") as error:
        PlainCNN.from_preset("tiny", num_classes=3)
    assert "\n" not in str(error.value)
