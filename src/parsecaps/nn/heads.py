"""The heads on the top capsules: classes (FullyCaps, or a bottleneck), concepts and decoder (Sec. 3.1)."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import torch
from einops import einsum, rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm, check_form
from parsecaps.nn.capsules import Axes, CapsuleLayer
from parsecaps.types import Output

Scale = Literal["presence", "logit", "activation"]  # of the numbers that a bottleneck adds up
MARGINS = (0.1, 0.9)  # the presence of an absent and of a present concept that training aims at (Sec. 3.3.1)
RATE = math.atanh(0.5) / math.atanh(0.7)
_PRESENCE_RATE = 10.0  # of the learning rate: presences are below 1, so a sure diagnosis needs weights of about 10


class ConceptReadout(nn.Module):
    """A layer that gives the concepts of images: all that a model that decides by its concepts knows behind it."""


class CapsuleReadout(CapsuleLayer):
    """Two linear maps, one over `d` and one over `n`, a bias, then squash: a few capsules from all top capsules.

    Without the bias only the map over `n`, which starts as the mean, would tell the capsules apart, by place alone.
    Near the bias the length is linear in the top capsules. The bias and the exponential squash are deviations
    (`docs/paper.md`).

    Shapes:
        - input: (B, in_capsules, in_dim)
        - output: (B, out_capsules, out_dim), each of length below 1
    """

    AXES: ClassVar[Axes] = {"over_capsules": ("outputs", "capsules"), "bias": ("outputs", "")}

    def __init__(
        self,
        *,
        in_capsules: int,
        in_dim: int,
        out_capsules: int,
        out_dim: int,
        squash_form: SquashForm = "exponential",
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.squash_form = check_form(squash_form)
        self.over_dim = nn.Parameter(0.3 * torch.randn(in_dim, out_dim) / math.sqrt(3 * in_dim))
        self.over_capsules = nn.Parameter((1 + 0.1 * torch.randn(out_capsules, in_capsules)) / in_capsules)
        self.bias = nn.Parameter(0.7 * F.normalize(torch.randn(out_capsules, out_dim), dim=-1)) if bias else None

    def forward(self, u: Tensor) -> Tensor:
        s = self.over_capsules @ (u @ self.over_dim)
        return squash(s if self.bias is None else s + self.bias, self.squash_form)

    def shares(self, u: Tensor) -> Tensor:
        """What each top capsule adds to the bias of each capsule: (B, out_capsules, in_capsules, out_dim)."""
        return einsum(self.over_capsules, u @ self.over_dim, "out n, b n d -> b out n d")


class FullyCaps(nn.Module):
    """Class capsules (B, num_classes, class_dim) of all top capsules (B, in_capsules, in_dim), and their lengths, below
    1, times a scale, learned unless fixed, as logits (B, num_classes) (deviation, `docs/paper.md`).

    What else is given goes to the `CapsuleReadout`.
    """

    scale: Tensor

    def __init__(
        self, *, num_classes: int, class_dim: int, scale: float, learn_scale: bool = True, **readout: Any
    ) -> None:
        super().__init__()
        self.readout = CapsuleReadout(out_capsules=num_classes, out_dim=class_dim, **readout)
        start = torch.tensor(float(scale))
        if learn_scale:
            self.scale = nn.Parameter(start)
        else:
            self.register_buffer("scale", start)

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor]:
        capsules = self.readout(u)
        return self.scale * length(capsules), capsules


class ConceptLayer(ConceptReadout):
    """Concept capsules, whose lengths say how present each concept is, and the global capsule made of them.

    Each concept capsule is mapped to one number; softmax over the concepts gives the global capsule. Presence is the
    length, not the softmax, so concepts that occur together do not compete (deviation, `docs/paper.md`). What else is
    given goes to the `CapsuleReadout`.

    Shapes:
        - input: (B, in_capsules, in_dim)
        - output: concept capsules (B, m, concept_dim), presence (B, m), global capsule (B, 1, m)
    """

    AXES: ClassVar[Axes] = {"to_global": ("concepts", "")}

    def __init__(self, *, num_concepts: int, concept_dim: int, **readout: Any) -> None:
        super().__init__()
        self.readout = CapsuleReadout(out_capsules=num_concepts, out_dim=concept_dim, **readout)
        self.to_global = nn.Parameter(torch.randn(num_concepts, concept_dim))

    def forward(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        capsules = self.readout(u)
        numbers = (capsules * self.to_global).sum(-1)
        return capsules, length(capsules), numbers.softmax(-1).unsqueeze(1)


class LinearConcepts(ConceptReadout):
    """Presences of concepts without capsules, by a linear layer and a sigmoid: (B, in_dim) -> (B, m)."""

    AXES: ClassVar[Axes] = {"linear.weight": ("concepts", ""), "linear.bias": ("concepts",)}

    def __init__(self, *, in_dim: int, num_concepts: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_dim, num_concepts)

    def forward(self, features: Tensor) -> Tensor:
        presence: Tensor = self.linear(features).sigmoid()
        return presence


class LinearReasoning(NamedTuple):
    """How the logits of images follow from their concepts alone: `weight @ values + bias`.

    The values are the presences, on a `scale`. `margins` are the presences that training aims at for an absent and for
    a present concept.

    Shapes:
        - weight: (K, m), or (B, K, m) where each image has its own; bias: (K,) or (B, K), likewise
    """

    weight: Tensor
    bias: Tensor
    scale: Scale = "presence"
    margins: tuple[float, float] = MARGINS

    @property
    def by_image(self) -> bool:
        """Whether each image has weights of its own."""
        return self.weight.dim() == 3


class ConceptDecision(nn.Module, ABC):
    """A head that decides by the concepts alone, linear in them for each image; weights of presences learn faster."""

    learning_rate_factor: float = 1.0

    @abstractmethod
    def reasoning(self, output: Output | None) -> LinearReasoning:
        """How it decides in the images of an output; without one, in every image, or in none if weights differ."""

    @abstractmethod
    def decide(self, output: Output, presence: Tensor) -> Tensor:
        """The logits (B, num_classes) of an output if these were its presences (B, m)."""


class Bottleneck(ConceptDecision):
    """Logits as a linear function of the presences alone: the stated reasons are the only reasons.

    The contributions of the concepts to each class and the bias add up to the logit. They may be on another `scale`
    than the presence: its "logit", or the "activation" of which it is `tanh(RATE * activation)`.

    Shapes:
        - input: presence (B, m), or the numbers behind it
        - output: logits (B, num_classes), contributions (B, num_classes, m)
    """

    AXES: ClassVar[Axes] = {"weight": ("classes", "concepts"), "bias": ("classes",)}

    def __init__(self, *, num_concepts: int, num_classes: int, scale: Scale = "presence", bias: bool = True) -> None:
        super().__init__()
        if scale not in get_args(Scale):
            raise ValueError(f"scale is {scale!r}; choose one of {', '.join(get_args(Scale))}")
        self.scale = scale
        self.learning_rate_factor = _PRESENCE_RATE if scale == "presence" else 1.0
        self.weight = nn.Parameter(torch.randn(num_classes, num_concepts) / math.sqrt(num_concepts))
        self.bias = nn.Parameter(torch.zeros(num_classes)) if bias else None

    def forward(self, presence: Tensor) -> tuple[Tensor, Tensor]:
        contributions = presence.unsqueeze(1) * self.weight
        logits = contributions.sum(-1)
        return logits if self.bias is None else logits + self.bias, contributions

    def reasoning(self, output: Output | None = None) -> LinearReasoning:
        weight = self.weight.detach()
        if self.scale == "activation":
            weight = weight.double() / RATE
        bias = weight.new_zeros(len(weight)) if self.bias is None else self.bias.detach()
        return LinearReasoning(weight, bias, self.scale)

    def decide(self, output: Output, presence: Tensor) -> Tensor:
        presence = presence.detach()
        if self.scale != "presence":
            inside = presence.clamp(1e-7, 1 - 1e-7)
            presence = inside.logit() if self.scale == "logit" else inside.atanh() / RATE
        logits: Tensor = self(presence)[0]
        return logits


def length(capsules: Tensor) -> Tensor:
    """The length of each capsule over its last axis, with a gradient that stays finite at length 0."""
    return torch.sqrt(capsules.square().sum(-1).clamp(min=1e-12))


class PhraseEmbedding(nn.Module):
    """Two linear layers into a joint space, for concept capsules and for the phrases that name the concepts.

    The phrase vectors are learned unless given, for instance by a text model; given ones stay fixed.

    Shapes:
        - input: concept capsules (B, m, concept_dim)
        - output: capsules (B, m, joint_dim), phrases (m, joint_dim)
    """

    phrases: Tensor

    def __init__(
        self,
        *,
        num_concepts: int,
        concept_dim: int,
        joint_dim: int = 32,
        phrase_dim: int = 32,
        phrase_vectors: Tensor | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if phrase_vectors is None:
            self.phrases = nn.Parameter(torch.randn(num_concepts, phrase_dim))
        else:
            if phrase_vectors.dim() != 2 or len(phrase_vectors) != num_concepts:
                shape = tuple(phrase_vectors.shape)
                raise ValueError(f"phrase vectors have shape {shape}; give ({num_concepts}, any), one per concept")
            self.register_buffer("phrases", phrase_vectors.float())
            phrase_dim = phrase_vectors.shape[1]
        self.embed_capsule = nn.Linear(concept_dim, joint_dim, bias=bias)
        self.embed_phrase = nn.Linear(phrase_dim, joint_dim, bias=bias)

    def forward(self, concept_capsules: Tensor) -> tuple[Tensor, Tensor]:
        return self.embed_capsule(concept_capsules), self.embed_phrase(self.phrases)


NUM_CONVOLUTIONS = 4


class Decoder(nn.Module):
    """Four transposed convolutions from the `m` numbers of the global capsule to the image, each doubling the width.

    The paper gives no widths. The last convolution has no activation: an image may be scaled in any way.

    Shapes:
        - input: (B, 1, m)
        - output: (B, out_channels, image_size, image_size)
    """

    def __init__(self, *, num_concepts: int, channels: Sequence[int], out_channels: int, image_size: int) -> None:
        super().__init__()
        if len(channels) != NUM_CONVOLUTIONS:
            raise ValueError(f"the decoder has {len(channels)} channel numbers; give {NUM_CONVOLUTIONS}")
        self.image_size = image_size
        self.width = -(-image_size // 2**NUM_CONVOLUTIONS)
        self.spread = nn.Linear(num_concepts, self.width**2 * channels[0])
        layers: list[nn.Module] = []
        for in_channels, next_channels in zip(channels, [*channels[1:], out_channels], strict=True):
            layers += [
                nn.BatchNorm2d(in_channels),
                nn.ReLU(inplace=True),
                nn.ConvTranspose2d(in_channels, next_channels, 4, stride=2, padding=1, bias=False),
            ]
        self.layers = nn.Sequential(*layers)
        self.bias = nn.Parameter(torch.zeros(out_channels, 1, 1))  # batch normalisation follows the other three

    def forward(self, global_capsule: Tensor) -> Tensor:
        x = rearrange(self.spread(global_capsule), "b 1 (h w c) -> b c h w", h=self.width, w=self.width)
        image: Tensor = self.layers(x) + self.bias
        return image[:, :, : self.image_size, : self.image_size]
