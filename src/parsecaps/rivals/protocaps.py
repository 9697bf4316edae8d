"""Proto-Caps: a capsule for each attribute, routed without competition, prototypes of its grades, and losses."""

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import ClassVar, Self

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from parsecaps.data.batches import Batches
from parsecaps.functional import squash
from parsecaps.models.pretrained import Presets, PretrainedModel
from parsecaps.nn.capsules import Axes, CapsuleGrid, ConvPrimaryCaps
from parsecaps.nn.couplings import Coupling
from parsecaps.nn.heads import ConceptReadout, length
from parsecaps.rivals.class_capsules import (
    TINY,
    ClassCapsules,
    ClassRoutingConfig,
    DynamicClassRouting,
    channels_last,
    coupled_votes,
    pixel_layers,
)
from parsecaps.training.terms import Loss, Term, TermContext, known_concepts, nothing
from parsecaps.types import Batch, Output

WARM_UP = 100  # epochs, as published
_SEPARATION = 0.1  # of the distance to other grades, beside that to the own grade
_NEAR = 0.25  # a case whose attribute is missed by more than this is no prototype
NO_CASE = -1
_KERNEL = 9  # of both convolutions
_MOST_GRADES, _MOST_PROTOTYPES = 100, 100


class SigmoidCoupling(Coupling):
    """A sigmoid in place of alpha-entmax: couplings of a child lie in (0, 1) and need not add up to 1."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()


class SigmoidClassRouting(DynamicClassRouting):
    """As in X-Caps and Proto-Caps: `c = sigmoid(b)`, and gradients flow through the last sum alone.

    Shapes:
        - input: votes (B, m, n, d)
        - output: capsules (B, m, d)
        - couplings: (B, 1, m, n)
    """

    coupling_kind = SigmoidCoupling

    def forward(self, u_hat: Tensor) -> Tensor:
        fixed = u_hat.detach()
        b = fixed[..., 0] * 0
        for _ in range(self.iterations - 1):
            v = squash(self._sum(b.sigmoid(), fixed), self.squash_form)
            b = b + self._agreement(fixed, v)
        c = self.coupling(b.unsqueeze(1)).squeeze(1)  # (B, m, n)
        return squash(self.way(self._sum(c, u_hat), coupled_votes(u_hat, c)), self.squash_form)


class AttributeHead(ConceptReadout):
    """Presences of capsules of any length, by a linear layer and a sigmoid for each: (B, m, dim) -> (B, m)."""

    AXES: ClassVar[Axes] = {"weight": ("concepts", ""), "bias": ("concepts",)}

    def __init__(self, *, num_concepts: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_concepts, dim).uniform_(-1, 1) / math.sqrt(dim))
        self.bias = nn.Parameter(torch.empty(num_concepts).uniform_(-1, 1) / math.sqrt(dim))

    def forward(self, capsules: Tensor) -> Tensor:
        return ((capsules * self.weight).sum(-1) + self.bias).sigmoid()


class Prototypes(nn.Module):
    """`per_grade` vectors for each grade of each attribute (Gallee, Beer and Goetz 2023).

    Where an attribute has fewer than the most grades, `valid` is False and the distance 0. `case` is the row of the
    data set that a vector was taken from.

    Shapes:
        - input: capsules (B, m, dim)
        - output: distances (B, m, most grades, per_grade)
        - weight: (all grades, per_grade, dim); place, valid: (m, most grades); case: (all grades, per_grade) int64
    """

    place: Tensor
    valid: Tensor
    case: Tensor

    def __init__(self, *, grades: Sequence[int], per_grade: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(sum(grades), per_grade, dim))
        first = torch.tensor([0, *accumulate(grades)][:-1]).unsqueeze(1)
        number = torch.arange(max(grades))
        valid = number < torch.tensor(grades).unsqueeze(1)
        self.register_buffer("place", torch.where(valid, first + number, 0), persistent=False)
        self.register_buffer("valid", valid, persistent=False)
        self.register_buffer("case", torch.full((sum(grades), per_grade), NO_CASE))

    def forward(self, capsules: Tensor) -> Tensor:
        difference = capsules[:, :, None, None] - self.weight[self.place]
        return torch.where(self.valid.unsqueeze(-1), length(difference), 0)

    def grade(self, share: Tensor) -> Tensor:
        """The grade (B, m), counted from 0, that an attribute between 0 and 1 (B, m) is nearest to."""
        return (share * (self.valid.sum(1) - 1)).round().long()

    @torch.no_grad()
    def replace(self, found: Tensor, capsules: Tensor, case: Tensor) -> None:
        """Put capsules in the place of vectors where some were found; any other vector then belongs to no case.

        Shapes:
            - found: (m, most grades, per_grade), False outside of `valid`; capsules: the same, and dim
            - case: as found, int64
        """
        found, capsules, case = found[self.valid], capsules[self.valid], case[self.valid]
        self.weight.copy_(torch.where(found.unsqueeze(-1), capsules, self.weight))
        self.case.copy_(torch.where(found, case, NO_CASE))


class AttributeClasses(nn.Module):
    """Logits as a linear function of all attribute capsules: (B, m, dim) -> (B, num_classes)."""

    AXES: ClassVar[Axes] = {"weight": ("classes", "concepts", ""), "bias": ("classes",)}

    def __init__(self, *, num_classes: int, num_concepts: int, dim: int) -> None:
        super().__init__()
        scale = 1 / math.sqrt(num_concepts * dim)
        self.weight = nn.Parameter(torch.empty(num_classes, num_concepts, dim).uniform_(-scale, scale))
        self.bias = nn.Parameter(torch.empty(num_classes).uniform_(-scale, scale))

    def forward(self, capsules: Tensor) -> Tensor:
        return capsules.flatten(1) @ self.weight.flatten(1).T + self.bias


class ProtoCaps(PretrainedModel):
    """Capsules of attributes decide, and prototypes show what each looks like (Gallee, Beer and Goetz 2023).

    A convolution, primary capsules, and one capsule for each concept, routed without competition between them. Each has
    its own head for its presence; all of them together give the classes and the decoder's picture. Prototypes do not
    take part in the answer: `concept_features` are the distances of each capsule to them. `grades` is the number of
    grades of each concept, evenly from 0 to 1; two if left out, absent and present.

    Deviations: a capsule is one of neighbouring channels at one position (the authors' code mixes positions up); the
    classes learn by cross-entropy, which for one true class is the authors' Kullback-Leibler divergence; the decoder
    learns the whole image, not the masked nodule; prototypes learn at the rate of the other weights, and take the place
    of the nearest training capsule, which the authors' code undoes.

    Shapes:
        - output: `Output` with logits, presence, distances (B, m, most grades, prototypes) and, where it was asked for,
          a picture

    >>> grades = (5, 4, 6, 5, 5, 5, 5, 5)
    >>> model = ProtoCaps.from_preset("medical", num_classes=5, num_concepts=8, grades=grades)
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '9,069,837'
    """

    presets: ClassVar[Presets] = {
        "medical": {"image_size": 32},
        "digits": {"image_size": 28},
        "tiny": {**TINY, "num_concepts": 3, "features": 16, "concept_dim": 8},
    }
    needs_concepts = True
    image_size = 32
    largest_image = 64
    losses: ClassVar[Mapping[str, float]] = {
        "classification": 1.0,
        "attribute": 1.0,
        "image_reconstruction": 0.512,
        "prototype": 0.125,
    }

    def build_layers(
        self,
        *,
        features: int = 256,
        types: int = 32,
        primary_dim: int = 8,
        concept_dim: int = 16,
        iterations: int = 3,
        grades: Sequence[int] | None = None,
        prototypes: int = 2,
        decoder_sizes: Sequence[int] = (512, 1024),
    ) -> None:
        num_concepts = self.num_concepts
        self.grades = (2,) * num_concepts if grades is None else tuple(grades)
        if len(self.grades) != num_concepts or not all(2 <= each <= _MOST_GRADES for each in self.grades):
            wanted = f"one number from 2 to {_MOST_GRADES} for each of the {num_concepts} concepts"
            raise ValueError(f"grades are {', '.join(map(str, self.grades))}; give {wanted}, or leave them out")
        if not 1 <= prototypes <= _MOST_PROTOTYPES:
            raise ValueError(f"prototypes is {prototypes}; give from 1 to {_MOST_PROTOTYPES}, for each grade")
        self.stem = channels_last(nn.Conv2d(self.in_channels, features, _KERNEL), nn.ReLU(inplace=True))
        self.primary = ConvPrimaryCaps(
            in_channels=features, size=self.image_size - _KERNEL + 1, types=types, dim=primary_dim, kernel=_KERNEL
        )
        routing = ClassRoutingConfig(
            capsules=self.primary.capsules, classes=num_concepts, dim=concept_dim, iterations=iterations
        )
        self.concepts = ClassCapsules(in_dim=primary_dim, routing=SigmoidClassRouting(routing), config=routing)
        self.concepts.votes.weight.data.mul_(0.1)  # couplings do not add up to 1
        self.presence = AttributeHead(num_concepts=num_concepts, dim=concept_dim)
        self.classes = AttributeClasses(num_classes=self.num_classes, num_concepts=num_concepts, dim=concept_dim)
        self.prototypes = Prototypes(grades=self.grades, per_grade=prototypes, dim=concept_dim)
        shape = (self.in_channels, self.image_size, self.image_size)
        pixels = pixel_layers(num_concepts * concept_dim, decoder_sizes, shape)
        self.decoder = nn.Sequential(nn.Flatten(), *pixels, nn.Unflatten(1, shape))

    @property
    def class_children(self) -> tuple[CapsuleGrid, ...]:
        return (self.primary.grid(self.stem),)

    def attribute_capsules(self, image: Tensor) -> Tensor:
        """The capsules (B, m, concept_dim) of images in [0, 1], with which prototypes are compared."""
        return self._capsules(self.standardise(image))

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        capsules = self._capsules(image)
        return Output(
            self.classes(capsules),
            presence=self.presence(capsules),
            reconstruction=self.decoder(capsules) if reconstruct and self.decoder else None,
            concept_features=self.prototypes(capsules),
        )

    def _capsules(self, image: Tensor) -> Tensor:
        features = self.stem(image.contiguous(memory_format=torch.channels_last))
        return self.concepts(self.primary(features))  # type: ignore[no-any-return]


class Attribute(Term):
    """Squared error of the presences, summed over the concepts that are known, over the images that have some."""

    name = "attribute"

    def forward(self, output: Output, batch: Batch) -> Loss:
        if output.presence is None:
            return nothing(output)
        concepts = known_concepts(output.presence, batch)
        known = ~concepts.isnan()
        error = torch.where(known, output.presence.float() - concepts.nan_to_num(), 0).square()
        return Loss(error.sum(), known.any(1).sum().float())


class ImageReconstruction(Term):
    """Mean squared error, over the pixels, of the picture that a model makes of any image, labelled or not."""

    name = "image_reconstruction"
    needs = frozenset({"picture"})

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        return super().applies(context) and context.model.decoder is not None

    def forward(self, output: Output, batch: Batch) -> Loss:
        assert output.reconstruction is not None
        error = (output.reconstruction.float() - batch.image).square().mean((1, 2, 3))
        return Loss(error.sum(), torch.full_like(error[:1].sum(), len(error)))


class Prototype(Term):
    """A capsule lies near a prototype of its own grade, and far from those of other grades (Gallee et al. 2023).

    For each known concept of an image: the distance to the nearest prototype of its grade, and 0.1 times the mean over
    the other grades of `max(0, dim - distance)` at the farthest of their prototypes, as published; the mean over the
    concepts. It begins after `warm_up` epochs. Then, every `push_every` epochs, and at the end, each prototype takes
    the place of the nearest capsule of its grade among the unaugmented training images whose attribute is about right.
    """

    name = "prototype"
    active: Tensor

    def __init__(self, weight: float, prototypes: Prototypes, *, warm_up: int = 0, push_every: int = 10) -> None:
        super().__init__(weight)
        self._prototypes = [prototypes]  # in a list: not a second owner of the weights
        self.warm_up, self.push_every = warm_up, push_every
        self.register_buffer("active", torch.tensor(float(warm_up == 0)))

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        return super().applies(context) and isinstance(context.model, ProtoCaps)

    @classmethod
    def build(cls, context: TermContext) -> Self:
        assert isinstance(context.model, ProtoCaps)
        assert context.training.epochs != "auto"
        given = {"warm_up": WARM_UP, **context.arguments(cls.name)}
        given["warm_up"] = min(given["warm_up"], context.training.epochs // 4)
        return cls(prototypes=context.model.prototypes, **given)

    def forward(self, output: Output, batch: Batch) -> Loss:
        assert output.concept_features is not None
        assert output.presence is not None
        (prototypes,) = self._prototypes
        concepts = known_concepts(output.presence, batch)
        known = ~concepts.isnan()
        distance = output.concept_features.float()  # (B, m, grades, prototypes)
        own = F.one_hot(prototypes.grade(concepts.nan_to_num()), distance.shape[2]).bool()
        near = torch.where(own, distance.amin(-1), 0).sum(-1)
        others = prototypes.valid & ~own
        far = F.relu(prototypes.weight.shape[-1] - distance).amin(-1)
        far = torch.where(others, far, 0).sum(-1) / others.sum(-1)
        each = torch.where(known, near + _SEPARATION * far, 0).mean(1)
        return Loss(self.active * each.sum(), known.any(1).sum().float())

    def after_epoch(self, model: PretrainedModel, batches: Batches, epoch: int) -> None:
        done = epoch + 1
        if done < self.warm_up:
            return
        self.active.fill_(1.0)
        if done == self.warm_up or done % self.push_every == 0:
            self.after_training(model, batches)
            if distributed.is_available() and distributed.is_initialized():
                (prototypes,) = self._prototypes
                distributed.broadcast(prototypes.weight.data, 0)
                distributed.broadcast(prototypes.case, 0)

    def after_training(self, model: PretrainedModel, batches: Batches) -> None:
        assert isinstance(model, ProtoCaps)
        push_prototypes(model, batches)


@torch.no_grad()
def push_prototypes(model: ProtoCaps, batches: Batches) -> None:
    """Move each prototype to the nearest capsule of its grade among unaugmented images; without any, it stays."""
    prototypes, plain = model.prototypes, batches.plain()
    device = prototypes.weight.device
    shape = prototypes.weight[prototypes.place].shape  # (m, grades, prototypes, dim)
    nearest = torch.full(shape[:3], torch.inf, device=device)
    capsules, case = torch.zeros(shape, device=device), torch.full(shape[:3], NO_CASE, device=device)
    concept = torch.arange(shape[0], device=device).view(-1, 1, 1)
    model.eval()
    start = 0
    for batch in plain.epoch(0):
        assert batch.concepts is not None
        image, labels = batch.image.to(device), batch.concepts.to(device)
        found = model.attribute_capsules(image)
        right = (model.presence(found) - labels).abs() < _NEAR  # False where it is not known
        own = F.one_hot(prototypes.grade(labels.nan_to_num()), shape[1]).bool() & right.unsqueeze(-1)
        distance = torch.where(own.unsqueeze(-1), prototypes(found), torch.inf)
        value, index = distance.min(0)
        rows = torch.from_numpy(plain.rows[start : start + len(image)]).to(device)
        start += len(image)
        better = value < nearest
        nearest = torch.where(better, value, nearest)
        capsules = torch.where(better.unsqueeze(-1), found[index, concept], capsules)
        case = torch.where(better, rows[index], case)
    prototypes.replace(nearest.isfinite(), capsules, case)
