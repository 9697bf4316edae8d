"""Sparse axial attention routing (Sec. 3.2, Alg. 1): PConvCaps asks, sparse (Eq. 3, 4) and axial attention choose."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from einops import einsum, rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm
from parsecaps.nn.capsules import CapsuleScale, Normalisation, capsule_norm
from parsecaps.nn.couplings import Coupling
from parsecaps.nn.locality import LocalityPrior, Neighbourhood
from parsecaps.nn.routing import Context, Messages, Routing, RoutingConfig, Way


class PConvCaps(nn.Module):
    """The prediction `U_hat` of the parents: depthwise 3x3 convolution on the grid, normalisation, pointwise map.

    The prediction is the query of the routing and is never added to the parents, so that everything in a parent comes
    through couplings. `bias=False` is for a prediction that is batch-normalised afterwards.

    Shapes:
        - input: U_l (B, w * w, in_dim)
        - output: U_hat (B, w' * w', out_dim), w' = ceil(w / stride)
    """

    def __init__(
        self, *, width: int, in_dim: int, out_dim: int, stride: int, normalisation: Normalisation, bias: bool = True
    ) -> None:
        super().__init__()
        self.width = width
        self.depthwise = nn.Conv2d(in_dim, in_dim, 3, stride, padding=1, groups=in_dim, bias=False)
        self.norm = capsule_norm(normalisation, in_dim, bias=bias)
        self.pointwise = nn.Linear(in_dim, out_dim, bias=bias)

    def forward(self, u: Tensor) -> Tensor:
        grid = rearrange(u, "b (h w) d -> b d h w", w=self.width)
        u_hat = rearrange(self.depthwise(grid), "b d h w -> b (h w) d")
        prediction: Tensor = self.pointwise(self.norm(u_hat))
        return prediction


class SparseAttention(nn.Module):
    """`C = entmax(Q K^T / sqrt(d) + prior)`, `U_s = squash(C V)`, with keys and values pointwise in the children.

    Heads choose their children separately. Each is a group of the parent's instantiation parameters; with
    `whole_values`, each head has values for all of them, `U_s = squash(sum over heads of C_h V_h)`, as a convolution
    has for each place. Couplings of a parent sum to 1 with `over="children"`, those of a child with `over="parents"`.
    Deviations from the paper: heads, the locality prior, and, unless `paper_logits`, a learned temperature and
    normalised keys (`docs/paper.md`).

    Shapes:
        - input: children U_l (B, n, in_dim), query U_hat (B, n', out_dim), and what keys are made of, if not the
          children: (B, n, in_dim)
        - output: U_s (B, n', out_dim)
        - couplings: (B, heads, n', n), kept as (B, n', heads, window) where the neighbourhood is windowed
    """

    temperature: Tensor

    def __init__(self, *, width: int, in_dim: int, out_dim: int, stride: int, config: RoutingConfig) -> None:
        super().__init__()
        heads, over = config.heads, config.over
        if out_dim % heads:
            raise ValueError(f"{heads} heads do not divide a capsule dimension of {out_dim}; choose a divisor")
        # a window is of children as they are; keys that are normalised one by one are not linear in them
        linear = over == "children" and (config.paper_logits or config.normalisation == "batch")
        windowed = None if linear else False
        self.neighbourhood = Neighbourhood(width=width, stride=stride, radius=config.radius, windowed=windowed)
        self.heads, self.whole_values, self.squash_form = heads, config.whole_values, config.squash_form
        self.value = nn.Linear(in_dim, out_dim, bias=False)
        if in_dim == out_dim:
            nn.init.eye_(self.value.weight)
        else:
            nn.init.orthogonal_(self.value.weight)
        if self.whole_values:  # starts as groups do: what a head says of the parameters of another is 0
            start = rearrange(_in_groups(self.value.weight.detach(), heads), "h i d -> d (h i)")
            self.value = nn.Linear(heads * in_dim, out_dim, bias=False)
            self.value.weight = nn.Parameter(start.contiguous())
        self.prior = LocalityPrior(
            heads=heads, neighbourhood=self.neighbourhood, preference=config.locality, jitter=config.jitter
        )
        self.key = nn.Linear(in_dim, out_dim, bias=False)
        self.key_norm: nn.Module = nn.Identity()
        if config.paper_logits:
            self.register_buffer("temperature", torch.ones(heads), persistent=False)
        else:
            # the same shift for all children of a parent changes no coupling, but among its parents it would
            norm = partial(capsule_norm, config.normalisation, out_dim, bias=over == "parents")
            self.key_norm = CapsuleScale(out_dim) if linear else norm()
            self.temperature = nn.Parameter(torch.ones(heads))
        self.coupling = Coupling(
            branch="sparse",
            dim=-2 if over == "parents" else -1,
            alpha=config.alpha,
            learned=config.learn_alpha,
            allowed=self.neighbourhood.allowed,
            layout=self.neighbourhood,
        )
        self.way = Way("sparse", chooses=True)

    def forward(self, u: Tensor, q: Tensor, g: Tensor | None = None) -> Tensor:
        g = u if g is None else g
        messages, s = (self._windowed if self.neighbourhood.windowed else self._dense)(u, q, g)
        return squash(self.way(s, messages), self.squash_form)

    @property
    def value_maps(self) -> Tensor:
        """(heads, in_dim, out_dim): what each head makes of a child for the whole parent; 0 outside its own group."""
        if self.whole_values:
            return rearrange(self.value.weight, "d (h i) -> h i d", h=self.heads)
        return _in_groups(self.value.weight, self.heads)

    def _dense(self, u: Tensor, q: Tensor, g: Tensor) -> tuple["CoupledValues", Tensor]:
        k = self.key(g)
        if isinstance(self.key_norm, CapsuleScale):
            q = q * self.key_norm(k)
        else:
            k = self.key_norm(k)
        q = rearrange(q * self._sharpness(), "b n (h d) -> b h n d", h=self.heads)
        prior = self.prior(u.shape[0]).expand(u.shape[0], self.heads, -1, -1)
        c: Tensor = self.coupling(q @ rearrange(k, "b n (h d) -> b h d n", h=self.heads) + prior)
        messages = CoupledValues(self, u, c)
        if self.whole_values:
            return messages, self._values_of(rearrange(c @ u.unsqueeze(1), "b h n i -> b n h i"))
        s = c @ rearrange(self.value(u), "b n (h d) -> b h n d", h=self.heads)
        return messages, rearrange(s, "b h n d -> b n (h d)")

    def _windowed(self, u: Tensor, q: Tensor, g: Tensor) -> tuple["CoupledValues", Tensor]:
        """The same by small matrix products per parent: keys and values are linear, so `q (W u) = (q W) u`."""
        children = self.neighbourhood.gather(u)  # (B, parents, window, in_dim)
        parents = children.shape[1]
        asking = children if g is u else self.neighbourhood.gather(g)
        scale = self.key_norm(self.key(g)) if isinstance(self.key_norm, CapsuleScale) else 1.0
        asked = rearrange(q * (self._sharpness() * scale), "b n (h d) -> h (b n) d", h=self.heads)
        asked = asked @ rearrange(self.key.weight, "(h d) i -> h d i", h=self.heads)
        asked = rearrange(asked, "h (b n) i -> b n h i", n=parents)
        prior = self.prior(u.shape[0]).expand(u.shape[0], parents, self.heads, -1)
        c: Tensor = self.coupling(asked @ asking.mT + prior)  # (B, parents, heads, window)
        return CoupledValues(self, children, c), self._values_of(c @ children)

    def _values_of(self, collected: Tensor) -> Tensor:
        """Map what heads collected (B, parents, heads, in_dim) to values (B, parents, out_dim)."""
        if self.whole_values:
            return self.value(collected.flatten(2))  # type: ignore[no-any-return]
        by_head = rearrange(collected, "b n h i -> h (b n) i")
        s: Tensor = by_head @ rearrange(self.value.weight, "(h d) i -> h i d", h=self.heads)
        return rearrange(s, "h (b n) d -> b n (h d)", n=collected.shape[1])

    def _sharpness(self) -> Tensor:
        width = self.key.weight.shape[0] // self.heads
        return (self.temperature / math.sqrt(width)).repeat_interleave(width)


def _in_groups(weight: Tensor, heads: int) -> Tensor:
    """Split a map (out_dim, in_dim) by heads, each with its own group of the output: (heads, in_dim, out_dim)."""
    own = torch.eye(heads, dtype=weight.dtype, device=weight.device).repeat_interleave(len(weight) // heads, 0)
    return einsum(weight, own, "d i, d h -> h i d")


@dataclass(frozen=True, eq=False)
class CoupledValues(Messages):
    """The messages `c v` of sparse attention, kept as its couplings are.

    Shapes:
        - u: the children (B, n, in_dim), or their windows (B, n', window, in_dim)
        - c: (B, heads, n', n), or windowed (B, n', heads, window)
    """

    attention: SparseAttention
    u: Tensor
    c: Tensor

    @property
    def coupling(self) -> Tensor:
        return self.c

    def along(self, direction: Tensor) -> Tensor:
        asked = einsum(direction, self.attention.value_maps, "b n d, h i d -> b n h i")
        if self.attention.neighbourhood.windowed:
            return self.c * (asked @ self.u.mT)
        return self.c * (rearrange(asked, "b n h i -> b h n i") @ self.u.mT.unsqueeze(1))

    def dense(self, kept: Tensor) -> Tensor:
        return self.attention.neighbourhood.dense(kept)


class AxialAttention(nn.Module):
    """`C_a = entmax(Q^T K_a / sqrt(n') + prior)`, `U_a = squash((C_a V_a^T)^T)`: sparse attention with n and d swapped.

    The children are first averaged onto the parents' grid, and mapped pointwise to keys and values. Deviation, unless
    `paper_logits`: a learned prior in the logits, which starts by preferring each parameter's own value; without it the
    branch starts as a random mixture and slows training.

    Shapes:
        - input: children U_l (B, w * w, in_dim), query U_hat (B, n', out_dim)
        - output: U_a (B, n', out_dim)
        - couplings: (B, 1, out_dim, out_dim)
    """

    prior: Tensor

    def __init__(self, *, width: int, in_dim: int, out_dim: int, stride: int, config: RoutingConfig) -> None:
        super().__init__()
        self.width, self.stride, self.squash_form = width, stride, config.squash_form
        self.value = nn.Linear(in_dim, out_dim, bias=False)
        self.key = nn.Linear(in_dim, out_dim, bias=False)
        if config.paper_logits:
            self.register_buffer("prior", torch.zeros(out_dim, out_dim), persistent=False)
        else:
            nn.init.normal_(self.key.weight, std=0.06 / math.sqrt(in_dim))
            # just below 1 / (alpha - 1), where entmax gives all to one and the prior would have no gradient
            self.prior = nn.Parameter(min(2.0, 0.95 / max(config.alpha - 1, 1e-9)) * torch.eye(out_dim))
        self.coupling = Coupling(
            branch="axial", between="parameters", dim=-1, alpha=config.alpha, learned=config.learn_alpha
        )
        self.way = Way("axial", chooses=False)

    def forward(self, u: Tensor, q: Tensor) -> Tensor:
        mean = self.onto_parents(u)
        logits = (q.mT @ self.key(mean) / math.sqrt(q.shape[1])).unsqueeze(1)
        c = self.coupling(logits + self.prior.expand_as(logits)).squeeze(1)  # (B, d, d)
        s = self.way(self.value(mean) @ c.mT, MeanChildren(self, u, c))
        return squash(s, self.squash_form)

    def onto_parents(self, u: Tensor) -> Tensor:
        """The children on the parents' grid, each parent's own averaged: (B, w * w, d) -> (B, n', d)."""
        if self.stride == 1:
            return u
        grid = rearrange(u, "b (y x) d -> b d y x", x=self.width)
        return rearrange(F.avg_pool2d(grid, self.stride, ceil_mode=True), "b d y x -> b (y x) d")


@dataclass(frozen=True, eq=False)
class MeanChildren(Messages):
    """The messages of axial attention: each child's values, mixed, as its share of its one parent's mean; as (B, n).

    Shapes:
        - u: the children (B, n, in_dim); c: (B, out_dim, out_dim)
    """

    attention: AxialAttention
    u: Tensor
    c: Tensor

    @cached_property
    def parent(self) -> Tensor:
        """The parent of each child: (n,)."""
        steps = torch.arange(self.attention.width, device=self.u.device) // self.attention.stride
        return (steps.unsqueeze(1) * self.parent_width + steps).flatten()

    @property
    def parent_width(self) -> int:
        """That of the grid of the parents."""
        return -(-self.attention.width // self.attention.stride)

    @cached_property
    def coupling(self) -> Tensor:
        width, stride = self.attention.width, self.attention.stride
        side = torch.tensor([float(min(stride, width - i // stride * stride)) for i in range(width)])  # at the border
        share = 1 / (side.unsqueeze(1) * side).flatten()
        return share.to(self.u).expand(len(self.u), -1)

    @cached_property
    def sent(self) -> Tensor:
        """What each child sent, before its share is taken: (B, n, out_dim)."""
        sent: Tensor = self.attention.value(self.u) @ self.c.mT
        return sent

    def along(self, direction: Tensor) -> Tensor:
        return (direction[:, self.parent] * self.sent).sum(-1) * self.coupling

    def dense(self, kept: Tensor) -> Tensor:
        parents = torch.arange(self.parent_width**2, device=kept.device)
        return (kept.unsqueeze(1) * (self.parent == parents.unsqueeze(1))).unsqueeze(1)


class ContextCaps(nn.Module):
    """The maps of the context (B, channels, W, W) as capsules on the children's grid (B, width * width, dim), row by
    row.
    """

    def __init__(self, *, context: Context, width: int, dim: int, squash_form: SquashForm) -> None:
        super().__init__()
        self.squash_form = squash_form
        self.width, self.halving = width, -(-context.width // width)
        self.project = nn.Conv2d(context.channels, dim, 1, bias=False)
        self.norm = nn.BatchNorm2d(dim)
        nn.init.constant_(self.norm.weight, 0.5)

    def forward(self, maps: Tensor) -> Tensor:
        if self.halving > 1:
            maps = F.avg_pool2d(maps, self.halving, ceil_mode=True)
        if maps.shape[-1] < self.width:
            maps = F.interpolate(maps, self.width, mode="nearest")
        return squash(rearrange(self.norm(self.project(maps)), "b d h w -> b (h w) d"), self.squash_form)


def at_once(first: Callable[[], Tensor], second: Callable[[], Tensor], *given: Tensor) -> tuple[Tensor, Tensor]:
    """What two functions make of the `given` tensors: on a GPU at the same time, the second on a stream of its own.

    On a CPU one comes after the other, as each operation takes all threads already.
    """
    device = given[0].device
    if device.type != "cuda" or torch.compiler.is_compiling():
        return first(), second()
    here, beside = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    beside.wait_stream(here)
    one = first()
    with torch.cuda.stream(beside):
        other = second()
    here.wait_stream(beside)
    for tensor in given:  # their memory is not given away while the other stream reads it
        tensor.record_stream(beside)
    other.record_stream(here)
    return one, other


class SAARouting(Routing):
    """`U_{l+1} = U_s + U_a`, both asked by the prediction of PConvCaps, both made of nothing but coupled children.

    Both run at the same time where the device can (`at_once`). `paper_logits` computes the logits as printed, from raw
    queries and keys. With a `context`, its capsules take the children's place in queries and keys: it chooses among the
    children, and adds nothing to the parents (deviation, `docs/paper.md`).

    Shapes:
        - input: U_l (B, n, in_dim), and the maps of the context (B, channels, W, W) where there is one
        - output: U_{l+1} (B, n', out_dim)
    """

    uses = frozenset({"whole_values", "alpha", "learn_alpha", "over", "locality", "jitter", "paper_logits"})
    takes_context = True

    def __init__(
        self,
        *,
        width: int,
        in_dim: int,
        out_dim: int,
        stride: int,
        config: RoutingConfig,
        context: Context | None = None,
    ) -> None:
        sizes = {"width": width, "in_dim": in_dim, "out_dim": out_dim, "stride": stride}
        super().__init__(**sizes, config=config)
        self.context: ContextCaps | None = None
        if context is not None:
            self.context = ContextCaps(context=context, width=width, dim=in_dim, squash_form=config.squash_form)
        bias = config.paper_logits or config.normalisation != "batch"
        self.predict = PConvCaps(**sizes, normalisation=config.normalisation, bias=bias)
        self.query_norm: nn.Module = nn.Identity()
        if not config.paper_logits:
            # all parents start asking for nearly the same; else couplings are random choices (`studies/cell.md`)
            self.query_norm = norm = capsule_norm(config.normalisation, out_dim)
            nn.init.normal_(norm.bias)
            nn.init.constant_(norm.weight, 0.3)
        self.sparse = SparseAttention(**sizes, config=config)
        self.axial = AxialAttention(**sizes, config=config)

    def forward(self, u: Tensor, context: Tensor | None = None) -> Tensor:
        g = u if self.context is None else self.context(context)
        q = self.query_norm(self.predict(g))
        sparse, axial = at_once(lambda: self.sparse(u, q, g), lambda: self.axial(u, q), u, q)
        return sparse + axial
