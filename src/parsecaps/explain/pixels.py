"""From the primary grid to pixels: which of the pixels around a place made it what it is."""

import torch
from einops import rearrange
from torch import Tensor

from parsecaps.explain.path import neutral
from parsecaps.explain.places import Places
from parsecaps.explain.trace import Routes

_POINTS = (0.25, 0.75)


def magnify(relevance: Tensor, places: Places) -> Tensor:
    """Interpolate between the places: (B, K, n) -> (B, K, size, size)."""
    across = places.interpolation().to(relevance)
    grid = rearrange(relevance, "b k (y x) -> b k y x", x=places.width)
    return across.T @ grid @ across


def pixel_contributions(routes: Routes, direction: Tensor) -> Tensor:
    """What each pixel, by differing from the neutral picture, adds to the primary capsules along a direction.

    Gradient times difference through the initial block and the primary capsules, as the mean of two points on the way
    from the neutral picture to the image.

    Shapes:
        - direction: (B, K, n_1, d_1)
        - output: (B, K, size, size), signed
    """
    start = neutral(routes.image)
    difference = routes.image - start
    with torch.enable_grad():
        points = torch.cat([start + part * difference for part in _POINTS]).detach().requires_grad_()
        leaves = routes.leaves(points)
        gradients = [
            torch.autograd.grad(leaves, points, d.repeat(len(_POINTS), 1, 1), retain_graph=True)[0]
            for d in direction.unbind(1)
        ]
    mean = rearrange(torch.stack(gradients, 1), "(p b) k c y x -> p b k c y x", p=len(_POINTS)).mean(0)
    return (mean * difference.unsqueeze(1)).sum(2)


def focus(relevance: Tensor, contributions: Tensor, places: Places) -> Tensor:
    """Evidence at pixels: where the place is evidence and the pixel itself contributed to it.

    The product of the two, scaled to sum to the relevance; in proportion to the relevance alone where no pixel
    contributed. The product finds concepts better than either factor, or than sharing each place's relevance out among
    its pixels, and removing what it shows costs as much presence (measured on the phantom).

    Shapes:
        - relevance: (B, K, n), not negative
        - contributions: (B, K, size, size), not negative
        - output: (B, K, size, size), not negative
    """
    coarse = magnify(relevance, places)
    fine = coarse * contributions
    found = torch.where(fine.sum((-2, -1), keepdim=True) > 0, fine, coarse)
    total = found.sum((-2, -1), keepdim=True)
    return found * (relevance.sum(-1)[..., None, None] / torch.where(total > 0, total, 1))


def smooth(maps: Tensor, step: int) -> Tensor:
    """Share each pixel's value out over the widest odd window below `step` pixels, for places lie no closer than that.

    At the border it is shared out over what is there of the window, so that the sum stays.
    """
    reach = (step - 2) // 2
    if reach < 1:
        return maps
    pixels = torch.arange(maps.shape[-1], device=maps.device)
    window = ((pixels - pixels.unsqueeze(1)).abs() <= reach).to(maps)
    window = window / window.sum(0)  # each column shares out one pixel
    return window @ maps @ window.T
