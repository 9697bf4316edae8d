"""How alike the capsules of a layer are: the distribution of their similarities (Sec. 4.5, supplement on redundancy).

For each image, the cosine of the angle between every two capsules of a layer. The further left, the less redundant.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.nn.capsules import CapsuleLayer
from parsecaps.nn.recorder import hooked

NUM_BINS = 40
MOST = 1024  # positions of a feature map that take part, evenly spread: pairs are their square
_SHORTEST = 1e-6  # a capsule below this length points nowhere


@dataclass(frozen=True)
class LayerSimilarity:
    """The similarities of the capsules of a layer, over all pairs of an image and all images.

    `share` is what share of the pairs has a similarity in each of 40 equal bins from -1 to 1, `by_capsule` what share
    of the capsules has a mean similarity to the others there. `empty` is the share of capsules of length 0, which make
    no pairs; `mean` is None where no pair is left.
    """

    layer: str
    capsules: int
    dim: int
    pairs: int
    mean: float | None
    share: list[float]
    by_capsule: list[float]
    empty: float


def capsule_similarity(model: nn.Module, batches: Iterable[Tensor]) -> list[LayerSimilarity]:
    """The similarities in each capsule layer of a model, in the order of the layers.

    In a model without any, the output of every ReLU that is a feature map (B, d, h, w): a position counts as a capsule;
    of more than 1,024, that many evenly spread.

    Shapes:
        - batches: images (B, channels, size, size)
    """
    modules = [(name, each) for name, each in model.named_modules() if isinstance(each, CapsuleLayer | nn.ReLU)]
    capsules = [each for each in modules if isinstance(each[1], CapsuleLayer)]
    histograms: dict[nn.Module, _Histogram] = {module: _Histogram(name) for name, module in capsules or modules}

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if output.dim() == 4:
            histograms[module].add(output.flatten(2).mT)
        elif output.dim() == 3:
            histograms[module].add(output)

    training = model.training
    model.eval()
    try:
        with hooked(histograms, note), torch.no_grad():
            for image in batches:
                model(image)
    finally:
        model.train(training)
    results = [each.result() for each in histograms.values() if each.seen]
    if not results:
        kind = type(model).__name__
        raise ValueError(f"no layer of this {kind} gave capsules or feature maps; give another model, and some images")
    return results


class _Histogram:
    """The histogram of a layer while batches come in."""

    def __init__(self, layer: str) -> None:
        self.layer = layer
        self.histogram, self.total = np.zeros(NUM_BINS, dtype=np.int64), 0.0
        self.by_capsule = np.zeros(NUM_BINS, dtype=np.int64)
        self.seen = self.empty = self.capsules = self.dim = 0

    def add(self, u: Tensor) -> None:
        u = u.detach().float()
        if u.shape[1] > MOST:
            u = u[:, torch.linspace(0, u.shape[1] - 1, MOST, device=u.device).long()]
        images, self.capsules, self.dim = u.shape
        long = u.norm(dim=-1) > _SHORTEST
        self.seen += images * self.capsules
        self.empty += int((~long).sum())
        first, second = torch.triu_indices(self.capsules, self.capsules, 1)
        for each, usable in zip(F.normalize(u, dim=-1), long, strict=True):  # one image at a time: (n, n) is large
            cosines = (each @ each.mT).clamp(-1, 1)
            similar = cosines[first, second][usable[first] & usable[second]]
            self.histogram += _histogram(similar)
            self.total += float(similar.double().sum())
            if (alive := cosines[usable][:, usable]).numel() > 1:
                self.by_capsule += _histogram((alive.sum(1) - alive.diagonal()) / (len(alive) - 1))

    def result(self) -> LayerSimilarity:
        pairs = int(self.histogram.sum())
        mean = self.total / pairs if pairs else None
        share, by_capsule = ((each / max(int(each.sum()), 1)).tolist() for each in (self.histogram, self.by_capsule))
        empty = self.empty / max(self.seen, 1)
        return LayerSimilarity(self.layer, self.capsules, self.dim, pairs, mean, share, by_capsule, empty)


def _histogram(values: Tensor) -> np.ndarray:
    counted: np.ndarray = torch.histc(values, NUM_BINS, -1, 1).long().cpu().numpy()
    return counted
