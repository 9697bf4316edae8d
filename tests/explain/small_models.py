"""Small models of every kind that explanations must serve, with weights that are not at their start."""

import torch

from parsecaps.explain.attribution_path import neutral_image, trace
from parsecaps.models import ParseCaps
from parsecaps.nn.heads import CapsuleReadout
from parsecaps.nn.recorder import hooked
from parsecaps.types import Output

KINDS: dict[str, dict[str, object]] = {
    "default": {},
    "windowed": {"grid_width": 12, "image_size": 48, "radius": (1, 1, 1)},
    "over parents": {"over": "parents"},
    "whole values": {"whole_values": True},
    "whole values, windowed": {"grid_width": 12, "image_size": 48, "radius": (1, 1, 1), "whole_values": True},
    "layer norm": {"normalisation": "layer"},
    "dynamic": {"routing": "dynamic"},
    "dynamic, bottleneck": {"routing": "dynamic", "head": "bottleneck", "grid_width": 12, "image_size": 48},
    "odd size": {"image_size": 41},
    "bottleneck": {"head": "bottleneck"},
    "colour": {"in_channels": 3},
    "paper's cell": {
        "heads": (1, 1, 1),
        "radius": (-1, -1, -1),
        "locality": False,
        "paper_logits": True,
        "normalisation": "layer",
        "squash_form": "quadratic",
    },
    "trunk": {"trunk": "PlainCNN", "image_size": 48, "head": "bottleneck"},
    "two streams": {"trunk": "PlainCNN", "image_size": 64, "tile": 16, "context": "trunk", "context_cells": 2},
    "two streams, bottleneck": {
        "trunk": "PlainCNN",
        "image_size": 48,
        "tile": 16,
        "margin": 16,
        "context": "trunk",
        "head": "bottleneck",
        "whole_values": True,
    },
}


def small_model(seed: int = 0, **changes: object) -> ParseCaps:
    """The tiny preset on a grid of 10, 5, 3, 2 and again 2."""
    torch.manual_seed(seed)
    settings = {"image_size": 40, "grid_width": 10, **changes}
    model = ParseCaps.from_preset("tiny", num_classes=2, **settings).double().eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model


def random_image(model: ParseCaps, count: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.rand(
        count, model.in_channels, model.image_size, model.image_size, generator=generator, dtype=torch.float64
    )


@torch.no_grad()
def neutral_answer(model: ParseCaps, image: torch.Tensor) -> Output:
    """What the model says of the neutral image, chosen by the context of the image where there is one."""
    context = [] if model.context is None else [model.context]
    maps = [module(model.standardise(image)) for module in context]
    with hooked(context, lambda module, inputs, outcome: maps[0]):
        output: Output = model(neutral_image(image))
    return output


@torch.no_grad()
def make_steep(model: ParseCaps, image: torch.Tensor) -> None:
    """Change the heads so that presences are near 0 for the neutral image and clearly above for these images."""
    traced = trace(model, image)
    neutral = model.norm(traced.run_cells(traced.leaves(neutral_image(traced.image)))).mean(0)
    spread = (model.norm(traced.layers[-1]) - neutral).norm(dim=-1).mean()
    for readout in model.modules():
        if isinstance(readout, CapsuleReadout):
            readout.over_capsules += torch.randn_like(readout.over_capsules) / readout.over_capsules.shape[1]
            readout.over_dim *= 2 / spread / readout.over_dim.norm(dim=1).mean()
            readout.bias.copy_(0.1 * readout.bias - readout.over_capsules @ (neutral @ readout.over_dim))
