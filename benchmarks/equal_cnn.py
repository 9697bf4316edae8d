"""A plain CNN that costs as much as another model, to compare speed at equal work."""

from typing import Any

from parsecaps.models.cnn import PlainCNN
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.models.summary import count_flops

_STEM, _LAYERS = (32, 64, 64, 64), (64, 96, 96)  # the proportions that are kept
_TRIALS = 12


def cnn_of_equal_flops(model: PretrainedModel) -> PlainCNN:
    """The `PlainCNN` for the same images, classes and grid whose FLOPs come nearest to the model's without its decoder.

    All widths are scaled by one number, found by bisection; the last layers then take up what rounding left over.
    """
    target = count_flops(model)
    low, high = 0.0, 16.0
    for _ in range(_TRIALS):
        scale = (low + high) / 2
        if count_flops(_scaled(model, scale, scale)) < target:
            low = scale
        else:
            high = scale
    wide, narrow = _scaled(model, low, low), _scaled(model, high, high)
    candidates = [wide, narrow, *(_scaled(model, low, low * k / 4) for k in range(1, 17) if low)]
    return min(candidates, key=lambda cnn: abs(count_flops(cnn) - target))


def _scaled(model: PretrainedModel, stem: float, layers: float) -> PlainCNN:
    config: dict[str, Any] = model.config
    return PlainCNN(
        num_classes=model.num_classes,
        in_channels=model.in_channels,
        image_size=model.image_size,
        grid_width=config["grid_width"],
        stem_channels=tuple(max(1, round(width * stem)) for width in _STEM),
        channels=tuple(max(1, round(width * layers)) for width in _LAYERS),
    )
