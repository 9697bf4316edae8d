"""Where children lie, seen from their parents, and the prior for near ones (deviation, `docs/paper.md`)."""

import math
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.functional.squash import is_exporting

_CORNERS = ((-0.5, -0.5), (-0.5, 0.5), (0.5, -0.5), (0.5, 0.5))
_MOST_PAIRS = 2**24  # of parents and children
_RING = ((0, 0), (0, 1), (1, 0), (0, -1), (-1, 0), (1, 1), (-1, -1), (1, -1), (-1, 1))


class Neighbourhood:
    """The children that each parent may choose, on square grids of `width` and `ceil(width / stride)`.

    A parent lies at the middle of its `stride x stride` own children, and sees `radius` more on each side. If a window
    is much smaller than the grid, or `windowed` is given, couplings are kept as windows `(parents, heads, window)`
    instead of a dense matrix `(heads, parents, children)`.
    """

    def __init__(self, *, width: int, stride: int, radius: int | None, windowed: bool | None = None) -> None:
        self.width, self.stride = width, stride
        parent_width = -(-width // stride)
        reach = width if radius is None else radius
        self.side = stride + 2 * reach
        self.padding = (reach, stride * (parent_width - 1) + self.side - width - reach)
        self.windowed = 4 * self.side**2 <= width**2 if windowed is None else windowed
        pairs = parent_width**2 * (self.side**2 if self.windowed else width**2)
        if reach < 0 or pairs > _MOST_PAIRS:
            raise ValueError(f"a grid of {width} with a radius of {radius} has {pairs:,} pairs; give smaller ones")
        # relative: child minus parent, in steps of the children's grid
        if self.windowed:
            self.relative = _pairs(torch.arange(self.side) - reach - (stride - 1) / 2)  # (window, 2)
            inside = self.gather(torch.ones(1, width**2, 1))
            self.allowed = inside.mT[0] > 0  # (parents, 1, window)
            self.children = self.gather(torch.arange(width**2).double().view(1, -1, 1))[0, :, :, 0].long()
        else:
            centre = torch.arange(parent_width) * stride + (stride - 1) / 2
            self.relative = _pairs(torch.arange(width).float()) - _pairs(centre).unsqueeze(1)  # (parents, children, 2)
            self.allowed = self.relative.abs().amax(-1) <= reach + (stride - 1) / 2

    def gather(self, u: Tensor) -> Tensor:
        """Each parent's window: (B, width * width, d) -> (B, parents, window, d)."""
        return gather_windows(u, self.width, self.side, self.stride, self.padding)

    def dense(self, c: Tensor) -> Tensor:
        """Couplings as they are kept -> (B, heads, parents, children)."""
        if not self.windowed:
            return c
        c = c.transpose(1, 2)  # (B, heads, parents, window)
        out = c.new_zeros(*c.shape[:3], self.width**2)
        return out.scatter_add_(-1, self.children.to(c.device).expand_as(c), c)

    def kept(self, dense: Tensor) -> Tensor:
        """The inverse of `dense`: (B, heads, parents, children) as couplings are kept; 0 outside the grid."""
        if not self.windowed:
            return dense
        index = self.children.to(dense.device).expand(*dense.shape[:3], -1)
        return dense.gather(-1, index).transpose(1, 2) * self.allowed.to(dense.device)


class LocalityPrior(nn.Module):
    """Logits `-|x - spot|^2 * sharpness` for a child at `x` relative to its parent, a spot and a sharpness per head.

    The spots start on a parent's own children if the grid is halved, else on the parent's own place and around it.
    Outside the neighbourhood the logit is -inf, so the coupling is exactly zero; without a `preference` the logit is 0
    everywhere inside.

    With a `jitter`, places are changed for each training image by a random linear map, the identity and normal numbers
    of that standard deviation: so parents learn to find their children in turned, sheared or scaled images.

    Shapes:
        - input: the number of images
        - output: (B or 1, parents, heads, window) or (B or 1, heads, parents, children), as the neighbourhood keeps its
          couplings
    """

    relative: Tensor
    outside: Tensor

    def __init__(self, *, heads: int, neighbourhood: Neighbourhood, preference: bool, jitter: float) -> None:
        super().__init__()
        if not 0 <= jitter < math.inf:
            raise ValueError(f"jitter is {jitter}; give 0 (off) or a positive number")
        self.preference, self.jitter = preference, jitter
        if preference:
            starts = _CORNERS if neighbourhood.stride == 2 else _RING
            spots = [starts[i % len(starts)] for i in range(heads)]
            self.spot = nn.Parameter(torch.tensor(spots, dtype=torch.float32))
            self.log_sharpness = nn.Parameter(torch.zeros(heads))
        outside = torch.zeros(neighbourhood.allowed.shape).masked_fill(~neighbourhood.allowed, -math.inf)
        self.register_buffer("relative", neighbourhood.relative, persistent=False)
        self.register_buffer("outside", outside, persistent=False)

    def forward(self, images: int) -> Tensor:
        if not self.preference:
            return self.outside.unsqueeze(0)
        place = self.relative.unsqueeze(0)  # (1, window, 2) or (1, parents, children, 2)
        if self.jitter and self.training:
            change = torch.eye(2).to(place) + self.jitter * torch.randn(images, 2, 2).to(place)
            place = place @ change.view(images, *[1] * (place.dim() - 3), 2, 2)
        # |x - spot|^2 without |spot|^2, which is the same for all children of a parent
        near = 2 * place @ self.spot.T - place.square().sum(-1, keepdim=True)
        logits = rearrange(near * self.log_sharpness.exp(), "b ... heads -> b heads ...")
        if self.relative.dim() == 2:
            logits = logits.unsqueeze(1)  # the same for all parents
        return logits + self.outside


def _pairs(values: Tensor) -> Tensor:
    """(k,) -> (k * k, 2): every point of the grid with these coordinates, row by row."""
    return torch.cartesian_prod(values, values)


def gather_windows(u: Tensor, width: int, side: int, stride: int, padding: tuple[int, int]) -> Tensor:
    """Give each parent the capsules of its `side x side` window, row by row; outside the grid they are zero.

    The windows start `padding[0]` before the grid and end `padding[1]` behind it. This copies long runs of memory, and
    its gradient is a sum of `side * side` shifted grids.

    Shapes:
        - u: (B, width * width, d)
        - output: (B, parents, side * side, d)

    >>> gather_windows(torch.arange(4.0).view(1, 4, 1), width=2, side=2, stride=2, padding=(0, 0))[0, 0, :, 0]
    tensor([0., 1., 2., 3.])
    """
    windows: Tensor = _GatherWindows.apply(u, width, side, stride, padding)  # type: ignore[no-untyped-call]
    return windows


class _GatherWindows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, width: int, side: int, stride: int, padding: tuple[int, int]) -> Tensor:
        ctx.geometry = (width, side, stride, padding)
        grid = F.pad(u.view(u.shape[0], width, width, u.shape[2]), (0, 0, *padding, *padding))
        windows = grid.unfold(1, side, stride).unfold(2, side, stride)  # (B, y, x, d, side, side)
        parents = windows.shape[1] * windows.shape[2]
        return windows.permute(0, 1, 2, 4, 5, 3).reshape(u.shape[0], parents, side * side, u.shape[2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        width, side, stride, (first, last) = ctx.geometry
        batch, parents, _, dim = grad.shape
        parent_width = math.isqrt(parents)
        padded = width + first + last
        span = stride * (parent_width - 1) + 1
        grad = grad.reshape(batch, parent_width, parent_width, side, side, dim)
        if is_exporting():  # two products with zeros and ones, instead of an operation for each place of a window
            place = (stride * torch.arange(parent_width).unsqueeze(1) + torch.arange(side)).flatten() - first
            there = (place == torch.arange(width).unsqueeze(1)).to(grad)  # (width, parent_width * side)
            rows = rearrange(grad, "b y x i j d -> b (y i) (x j d)")
            columns = rearrange(there @ rows, "b y (k d) -> b y k d", d=dim)
            return (there @ columns).flatten(1, 2), None, None, None, None
        grid = grad.new_zeros(batch, padded, padded, dim)
        for y in range(side):
            for x in range(side):
                grid[:, y : y + span : stride, x : x + span : stride] += grad[:, :, :, y, x]
        inner = grid[:, first : first + width, first : first + width]
        return inner.reshape(batch, width * width, dim), None, None, None, None
