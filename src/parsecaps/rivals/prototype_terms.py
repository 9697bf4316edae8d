"""The losses of Proto-Caps: attributes, the picture of the whole image, and prototypes of the grades of attributes."""

from typing import Self

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

from parsecaps.data.batches import Batches
from parsecaps.models import PretrainedModel
from parsecaps.rivals.protocaps import NO_CASE, ProtoCaps, Prototypes
from parsecaps.training.losses import Loss, Term, TermContext, known_concepts, nothing
from parsecaps.types import Batch, Output

WARM_UP = 100  # epochs, as published
_SEPARATION = 0.1  # of the distance to other grades, beside that to the own grade
_NEAR = 0.25  # a case whose attribute is missed by more than this is no prototype


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
        return super().applies(context) and getattr(context.model, "decoder", None) is not None

    def forward(self, output: Output, batch: Batch) -> Loss:
        assert output.reconstruction is not None
        error = (output.reconstruction.float() - batch.image).square().mean((1, 2, 3))
        return Loss(error.sum(), torch.full_like(error[:1].sum(), len(error)))


class Prototype(Term):
    """A capsule lies near a prototype of its own grade, and far from those of other grades (Gallee et al. 2023).

    For each known concept of an image: the distance to the nearest prototype of its grade, and 0.1 times the mean over
    the other grades of `max(0, dim - distance)` at the farthest of their prototypes, as published; the mean over the
    concepts. It begins after `warm_up` epochs. Then, and every `push_every` epochs, each prototype takes the place of
    the nearest capsule of its grade among the training images as they are, if their attribute was about right. All of
    this follows from the weights and the number of the epoch, so a run that was stopped goes on as if it was not. In
    the end the prototypes of the model that is kept are replaced once more: its weights may be averages.
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
    """Let each prototype take the place of the nearest capsule of its grade, over all rows of the batches as they are.

    One whose grade no image has stays, and is of no case.
    """
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
