"""Explained cases for tests of documents and pages."""

from dataclasses import replace
from pathlib import Path

import torch

from parsecaps.explain.explanation import Explanation
from tests.explain.make_explained import make_folder

NAMES = ["<i>a</i>.png", "b.png", "a-very-long-name-without-any-place-to-break-it/" * 3 + "c.png"]


def smooth_image(seed: int, size: int = 32) -> torch.Tensor:
    noise = torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(noise, (size, size), mode="bicubic").clamp(0, 1)[0]


def make_cases(folder: Path) -> list[Explanation]:
    """Three cases: one right, one wrong, one of unknown truth that abstains."""
    model = make_folder(folder, "bottleneck")
    cases = [model.explain(smooth_image(i), name=name, trees=2) for i, name in enumerate(NAMES)]
    other = next(name for name in cases[1].probabilities if name != cases[1].diagnosis)
    both = list(cases[2].probabilities)
    return [
        replace(cases[0], truth=cases[0].diagnosis),
        replace(cases[1], truth=other),
        replace(cases[2], possible=both, abstain=True, diagnosis=other),
    ]
