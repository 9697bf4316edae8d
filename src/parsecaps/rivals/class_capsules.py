"""Networks that end in a capsule for each class: the model, the routings that make these capsules, decoder and losses.

A routing of class capsules is a layer, made from a `ClassRoutingConfig`: votes (B, K, n, d) in, capsules (B, K, d) out.
Its sum goes through a `Way`, as in `nn.routing`. One of your own needs no more than an entry in `CLASS_ROUTINGS`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Self

import torch
from einops import einsum
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.functional import margin_loss, squash
from parsecaps.functional.squash import SquashForm, check_form
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.capsules import Axes, CapsuleLayer, SharedVotes, Votes
from parsecaps.nn.couplings import Coupling
from parsecaps.nn.heads import length
from parsecaps.nn.routing import Messages, Way
from parsecaps.training.terms import ClassTerm, Loss, Term, TermContext
from parsecaps.types import Batch, Output

LARGEST_DECODED = 128  # pixels: a decoder has a row of weights for each
TINY = {"image_size": 32, "types": 4, "primary_dim": 4, "decoder_sizes": (32,)}
_MOST_ITERATIONS = 100


class ClassCapsuleModel(PretrainedModel):
    """A score for each class from the length of its capsule, and a decoder that draws the image from one capsule.

    Concepts have no place in it. A subclass builds `stem`, `primary` and `classes`, or overrides `capsules`.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with scores as logits, class capsules and, where it was asked for, the picture of the longest
    """

    names_concepts: ClassVar[bool] = False
    without_decoder = "build it with decoder=True"

    stem: nn.Sequential
    primary: nn.Module
    classes: nn.Module

    def add_decoder(self, wanted: bool | None, *, dim: int, sizes: Sequence[int]) -> None:
        """Build the decoder of class capsules of `dim`, if wanted; None is for images up to 128 pixels."""
        if self.image_size <= LARGEST_DECODED if wanted is None else wanted:
            shape = (self.in_channels, self.image_size, self.image_size)
            self.decoder = ClassDecoder(num_classes=self.num_classes, dim=dim, shape=shape, sizes=sizes)

    def capsules(self, image: Tensor) -> Tensor:
        """The class capsules (B, num_classes, class_dim) of a standardised image, channels last in memory."""
        return self.classes(self.primary(self.stem(image)))  # type: ignore[no-any-return]

    def scores(self, capsules: Tensor) -> Tensor:
        """(B, num_classes, class_dim) -> (B, num_classes)."""
        return length(capsules)

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        capsules = self.capsules(image.contiguous(memory_format=torch.channels_last))
        scores = self.scores(capsules)
        picture = self.decode(capsules, scores.argmax(1)) if reconstruct else None
        return Output(scores, class_capsules=capsules, reconstruction=picture)

    def decode(self, class_capsules: Tensor, index: Tensor) -> Tensor:
        """The picture (B, in_channels, image_size, image_size) of the capsule of the class `index` (B,) int64."""
        self.check_decoder()
        assert self.decoder is not None
        return self.decoder(class_capsules, index)  # type: ignore[no-any-return]


def channels_last(*layers: nn.Module) -> nn.Sequential:
    """Layers in a row, whose weights lie in memory as the images that they see."""
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def pixel_layers(features: int, sizes: Sequence[int], shape: Sequence[int]) -> list[nn.Module]:
    """Fully connected layers of these sizes with ReLU between them, and a sigmoid for the pixels of a shape."""
    widths = (features, *sizes)
    hidden = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU(inplace=True))]
    return [*hidden, nn.Linear(widths[-1], math.prod(shape)), nn.Sigmoid()]


class ClassDecoder(nn.Module):
    """The image from one class capsule, by fully connected layers and a sigmoid (Sabour, Frosst and Hinton 2017).

    Shapes:
        - input: class capsules (B, K, d), index (B,) int64, the class of each image
        - output: (B, *shape), in [0, 1]; the shape has the channels first
    """

    def __init__(
        self, *, num_classes: int, dim: int, shape: tuple[int, int, int], sizes: Sequence[int] = (512, 1024)
    ) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.Sequential(*pixel_layers(num_classes * dim, sizes, shape))

    def forward(self, class_capsules: Tensor, index: Tensor) -> Tensor:
        chosen = F.one_hot(index, class_capsules.shape[1]).to(class_capsules.dtype)
        pixels: Tensor = self.layers((class_capsules * chosen.unsqueeze(-1)).flatten(1))
        return pixels.view(-1, *self.shape)


@dataclass(frozen=True, kw_only=True)
class ClassRoutingConfig:
    """The sizes and settings of a routing of class capsules; `bias` gives each class a direction to start from."""

    capsules: int
    classes: int
    dim: int
    iterations: int = 3
    bias: bool = False
    squash_form: SquashForm = "quadratic"

    def __post_init__(self) -> None:
        if not 1 <= self.iterations <= _MOST_ITERATIONS:
            raise ValueError(f"iterations is {self.iterations}; give from 1 to {_MOST_ITERATIONS}")
        check_form(self.squash_form)


@dataclass(frozen=True, eq=False)
class ClassMessages(Messages):
    """The messages of children to classes, computed only when asked for; kept as (B, 1, K, n).

    Shapes:
        - taken: how much of each child: nothing -> (B, K, n)
        - said: what it says along a direction: (B, K, d) -> (B, K, n)
    """

    taken: Callable[[], Tensor]
    said: Callable[[Tensor], Tensor]

    @property
    def coupling(self) -> Tensor:
        return self.taken().unsqueeze(1)

    def along(self, direction: Tensor) -> Tensor:
        return self.coupling * self.said(direction).unsqueeze(1)


def coupled_votes(u_hat: Tensor, c: Tensor) -> ClassMessages:
    """The messages `c u_hat` of votes (B, K, n, d) and couplings (B, K, n)."""
    return ClassMessages(lambda: c, lambda direction: (u_hat @ direction.unsqueeze(-1)).squeeze(-1))


class DynamicClassRouting(CapsuleLayer):
    """Routing by agreement (Sabour, Frosst and Hinton 2017): `c = softmax(b)` over the classes, `v = squash(c u_hat)`.

    The logits b start at 0 and grow by the agreement `u_hat . v` after each of the `iterations` but the last. Gradients
    flow through all of them, as in the authors' code. A bias is added to every sum before its squash.

    Shapes:
        - input: votes (B, K, n, d)
        - output: class capsules (B, K, d)
        - couplings: (B, 1, K, n)
    """

    AXES: ClassVar[Axes] = {"bias": ("outputs", "")}
    coupling_kind: ClassVar[type[Coupling]] = Coupling

    def __init__(self, config: ClassRoutingConfig) -> None:
        super().__init__()
        self.iterations, self.squash_form, self.classes = config.iterations, config.squash_form, config.classes
        self.coupling = self.coupling_kind(branch="agreement", dim=-2, alpha=1.0)
        self.way = Way("agreement", chooses=True)
        self.bias = nn.Parameter(torch.full((config.classes, config.dim), 0.1)) if config.bias else None

    def forward(self, u_hat: Tensor) -> Tensor:
        if self.iterations == 1:
            b = u_hat[..., 0] * 0
        else:
            # softmax of zeros: all classes share each child alike
            v = self._squash(u_hat.sum(2) / self.classes)
            b = self._agreement(u_hat, v)
        for _ in range(self.iterations - 2):
            v = self._squash(self._sum(b.softmax(1), u_hat))
            b = b + self._agreement(u_hat, v)
        c = self.coupling(b.unsqueeze(1)).squeeze(1)  # (B, K, n)
        return self._squash(self.way(self._sum(c, u_hat), coupled_votes(u_hat, c)))

    def _squash(self, s: Tensor) -> Tensor:
        return squash(s if self.bias is None else s + self.bias, self.squash_form)

    def _sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        return (c.unsqueeze(2) @ u_hat).squeeze(2)

    def _agreement(self, u_hat: Tensor, v: Tensor) -> Tensor:
        return (u_hat @ v.unsqueeze(-1)).squeeze(-1)


class SelfAttentionClassRouting(CapsuleLayer):
    """Self-attention (Mazzia, Salvetti and Chiaberge 2021): a vote counts as much as it agrees with all other votes.

    For each class `a_i = u_i . (sum of u_k) / sqrt(d)`, `c = softmax(a)` over the classes, and then a learned number is
    added for each pair, so couplings do not sum to 1. One pass, no iteration.

    Shapes:
        - input: votes (B, K, n, d)
        - output: class capsules (B, K, d)
        - couplings: (B, 1, K, n), without the learned number
    """

    AXES: ClassVar[Axes] = {"bias": ("outputs", "")}

    def __init__(self, config: ClassRoutingConfig) -> None:
        super().__init__()
        self.squash_form = config.squash_form
        self.bias = nn.Parameter(torch.zeros(config.classes, config.capsules))
        self.coupling = Coupling(branch="self-attention", dim=-2, alpha=1.0)
        self.way = Way("self-attention", chooses=True)

    def forward(self, u_hat: Tensor) -> Tensor:
        total = u_hat.sum(2).unsqueeze(-1)
        a = (u_hat @ total).squeeze(-1) / math.sqrt(u_hat.shape[-1])  # (B, K, n)
        c = self.coupling(a.unsqueeze(1)).squeeze(1) + self.bias
        s = (c.unsqueeze(2) @ u_hat).squeeze(2)
        return squash(self.way(s, coupled_votes(u_hat, c)), self.squash_form)


CLASS_ROUTINGS: dict[str, Callable[[ClassRoutingConfig], CapsuleLayer]] = {
    "dynamic": DynamicClassRouting,
    "self-attention": SelfAttentionClassRouting,
}


class ClassCapsules(nn.Module):
    """Votes of all capsules (B, capsules, in_dim) for all classes, and a routing (or its name): (B, K, dim)."""

    def __init__(self, *, in_dim: int, routing: str | CapsuleLayer, config: ClassRoutingConfig) -> None:
        super().__init__()
        if isinstance(routing, str) and routing not in CLASS_ROUTINGS:
            raise ValueError(f"routing is {routing!r}; choose one of {', '.join(CLASS_ROUTINGS)}")
        self.votes = Votes(capsules=config.capsules, in_dim=in_dim, parents=config.classes, out_dim=config.dim)
        self.routing = CLASS_ROUTINGS[routing](config) if isinstance(routing, str) else routing

    def forward(self, u: Tensor) -> Tensor:
        return self.routing(self.votes(u))  # type: ignore[no-any-return]


class UnroutedCapsules(CapsuleLayer):
    """Aff-CapsNet (Gu and Tresp 2020): one matrix for each class, and no routing: (B, n, in_dim) -> (B, K, dim)."""

    def __init__(self, *, in_dim: int, classes: int, dim: int) -> None:
        super().__init__()
        self.votes = SharedVotes(in_dim=in_dim, parents=classes, out_dim=dim)
        self.way = Way("mean", chooses=False)

    def forward(self, u: Tensor) -> Tensor:
        total = self.votes(u.mean(1, keepdim=True)).squeeze(2)  # the same as the mean of all votes
        messages = ClassMessages(
            lambda: u.new_full((len(u), total.shape[1], u.shape[1]), 1 / u.shape[1]),
            lambda direction: einsum(self.votes.weight, direction, "k i d, b k d -> b k i") @ u.mT,
        )
        return squash(self.way(total, messages), "quadratic")


class Margin(ClassTerm):
    """The capsule of an image's class is long and the others are short."""

    name = "margin"

    def __init__(self, weight: float, margins: tuple[float, float, float] = (0.9, 0.1, 0.5), **weights: Any) -> None:
        super().__init__(weight=weight, **weights)
        if not margins[0] > margins[1]:
            raise ValueError(f"margins are {margins}; give the first, of a long capsule, above the second")
        self.margins = margins

    def mean(self, logits: Tensor, label: Tensor, **more: Any) -> Tensor:
        return margin_loss(logits, label, self.margins, **more)


class ClassReconstruction(Term):
    """Mean squared error, over the pixels, of the picture decoded from the capsule of the true class, if known."""

    name = "class_reconstruction"
    needs = frozenset({"decoder"})

    def __init__(self, weight: float, model: PretrainedModel) -> None:
        super().__init__(weight)
        self._model = [model]  # in a list: not a second owner of the weights

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        return super().applies(context) and context.model.decoder is not None

    @classmethod
    def build(cls, context: TermContext) -> Self:
        return cls(model=context.model, **context.arguments(cls.name))

    def forward(self, output: Output, batch: Batch) -> Loss:
        assert output.class_capsules is not None
        known = batch.label >= 0
        picture = self._model[0].decode(output.class_capsules, batch.label.clamp(min=0))  # type: ignore[operator]
        error = (picture.float() - batch.image).square().mean((1, 2, 3))
        return Loss(torch.where(known, error, 0).sum(), known.sum().float())
