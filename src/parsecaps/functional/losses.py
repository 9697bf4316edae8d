"""The four losses of Sec. 3.3, two of our own and that of other capsule networks, as functions of tensors.

What is missing (a class of -1, a concept of NaN, an image not to be reconstructed) costs nothing and gets a gradient of
0; the loss stays joined to the graph, so that ``backward`` works on any batch. Half precision is summed in float32.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.functional.squash import widened

UNKNOWN_LABEL = -1
LEAST_SPREAD = 0.1  # standard deviation of a presence over images from which on it is alive enough
_FEWEST_IMAGES = 4  # among fewer, any two concepts seem to go together
_LEAST_VARIANCE = 1e-6  # so that a dead concept has a finite gradient
_NEARLY_ONE = 0.99  # of a squared correlation, so that two equal concepts have a finite cost


def class_loss(
    logits: Tensor,
    label: Tensor,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    *,
    other: Tensor | None = None,
    share: float = 1.0,
    sets: Tensor | None = None,
) -> Tensor:
    """Cross-entropy ``L_c`` (Eq. 3.3) over the images whose class is known.

    ``weight`` makes it a weighted mean, to balance rare classes. With ``other``, an image is of its class to a
    ``share`` and for the rest of the other one. With ``sets``, a class competes only with those of its own data set.

    Shapes:
        - logits: (B, num_classes)
        - label, other: (B,) int64, -1 = unknown
        - weight: (num_classes,)
        - sets: (num_classes,) int64, the number of each class's data set
        - output: ()

    >>> class_loss(torch.tensor([[2.0, 0.0], [0.0, 5.0]]), torch.tensor([0, -1]))
    tensor(0.1269)
    """
    if logits.dim() != 2 or label.shape != logits.shape[:1]:
        raise ValueError(f"logits {_shape(logits)} and label {_shape(label)}; give (B, num_classes) and (B,)")
    logits = widened(logits)
    weight = None if weight is None else weight.to(logits.dtype)

    def summed(classes: Tensor) -> Tensor:
        own = logits if sets is None else among_own(logits, classes, sets)
        return F.cross_entropy(
            own, classes, weight, ignore_index=UNKNOWN_LABEL, reduction="sum", label_smoothing=label_smoothing
        )

    total = summed(label) if other is None else share * summed(label) + (1 - share) * summed(other)
    count = class_weight(label, weight, other=other, share=share)
    return total / torch.where(count > 0, count, 1)


def among_own(logits: Tensor, label: Tensor, sets: Tensor) -> Tensor:
    """The logits with minus infinity for classes of other data sets; an image of unknown class keeps all.

    Shapes:
        - logits, output: (B, num_classes)
        - label: (B,) int64, -1 = unknown
        - sets: (num_classes,) int64

    >>> among_own(torch.zeros(2, 3), torch.tensor([0, -1]), torch.tensor([0, 0, 1]))
    tensor([[0., 0., -inf],
            [0., 0., 0.]])
    """
    foreign = sets != sets[label.clamp(min=0)].unsqueeze(1)  # (B, num_classes)
    return logits.masked_fill(foreign & (label != UNKNOWN_LABEL).unsqueeze(1), -math.inf)


def class_weight(
    label: Tensor, weight: Tensor | None = None, *, other: Tensor | None = None, share: float = 1.0
) -> Tensor:
    """What the images of ``class_loss`` count together: their number, or the sum of the weights of their classes.

    Shapes:
        - label, other: (B,) int64, -1 = unknown
        - weight: (num_classes,)
        - output: ()

    >>> class_weight(torch.tensor([0, 1, -1])), class_weight(torch.tensor([0, 1, -1]), torch.tensor([0.5, 2.0]))
    (tensor(2.), tensor(2.5000))
    """
    if other is not None:
        return share * class_weight(label, weight) + (1 - share) * class_weight(other, weight)
    known = label != UNKNOWN_LABEL
    return known.sum().float() if weight is None else torch.where(known, weight[label.clamp(min=0)], 0).sum()


def margin_loss(
    scores: Tensor,
    label: Tensor,
    margins: tuple[float, float, float] = (0.9, 0.1, 0.5),
    weight: Tensor | None = None,
    *,
    other: Tensor | None = None,
    share: float = 1.0,
    sets: Tensor | None = None,
) -> Tensor:
    """Margin loss of capsule networks (Sabour, Frosst and Hinton 2017), with all else as in ``class_loss``.

    ``T max(0, m+ - v)^2 + w (1 - T) max(0, v - m-)^2`` summed over the classes, with the ``margins`` ``m+, m-, w``.

    Shapes:
        - scores: (B, num_classes), the lengths of the class capsules
        - label, other: (B,) int64, -1 = unknown
        - weight: (num_classes,)
        - sets: (num_classes,) int64, the number of each class's data set
        - output: ()

    >>> margin_loss(torch.tensor([[0.5, 0.3], [0.0, 0.0]]), torch.tensor([0, -1]))
    tensor(0.1800)
    """
    if scores.dim() != 2 or label.shape != scores.shape[:1]:
        raise ValueError(f"scores {_shape(scores)} and label {_shape(label)}; give (B, num_classes) and (B,)")
    scores = widened(scores)
    long_enough, short_enough, absent = margins
    too_short, too_long = F.relu(long_enough - scores).square(), absent * F.relu(scores - short_enough).square()

    def summed(classes: Tensor) -> Tensor:
        one, known = classes.clamp(min=0).unsqueeze(1), classes != UNKNOWN_LABEL
        wrong = too_long if sets is None else torch.where(sets == sets[one], too_long, 0)
        cost = too_short.gather(1, one).squeeze(1) + wrong.sum(1) - wrong.gather(1, one).squeeze(1)
        cost = cost if weight is None else cost * weight.to(cost.dtype)[one.squeeze(1)]
        return torch.where(known, cost, 0).sum()

    total = summed(label) if other is None else share * summed(label) + (1 - share) * summed(other)
    count = class_weight(label, weight, other=other, share=share)
    return total / torch.where(count > 0, count, 1)


def presentation_loss(
    presence: Tensor,
    concepts: Tensor,
    margin_present: float = 0.9,
    margin_absent: float = 0.1,
    weights: Tensor | None = None,
) -> Tensor:
    """Presentation loss ``L_p`` (Eq. 3.1): a concept capsule is long if its concept is present, else short.

    ``z max(0, t+ - |u|)^2 + (1 - z) max(0, |u| - t-)^2``, summed over the known concepts of an image, mean
    over the images that have any. A value of ``z`` between 0 and 1 is a doubtful concept; both terms count.
    ``weights`` are those of the two terms for each concept, first of the absent; 1 without (deviation).

    Shapes:
        - presence: (B, m), the lengths of the concept capsules
        - concepts: (B, m), 1 = present, 0 = absent, NaN = unknown
        - weights: (2, m)
        - output: ()

    >>> presentation_loss(torch.tensor([[0.5, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, torch.nan]]))
    tensor(0.3200)
    """
    if presence.dim() != 2 or concepts.shape != presence.shape:
        raise ValueError(f"presence {_shape(presence)} and concepts {_shape(concepts)}; give (B, m) for both")
    if weights is not None and weights.shape != (2, presence.shape[1]):
        raise ValueError(f"weights {_shape(weights)} for {presence.shape[1]} concepts; give (2, {presence.shape[1]})")
    presence = widened(presence)
    known = ~concepts.isnan()
    z = concepts.nan_to_num().to(presence.dtype)
    too_short, too_long = F.relu(margin_present - presence), F.relu(presence - margin_absent)
    absent, present = (1.0, 1.0) if weights is None else weights
    cost = z * present * too_short.square() + (1 - z) * absent * too_long.square()
    return torch.where(known, cost, 0).sum() / known.any(1).sum().clamp(min=1)


def triplet_loss(capsules: Tensor, phrases: Tensor, concepts: Tensor, margin: float = 1.0) -> Tensor:
    """Triplet loss ``L_t`` (Eq. 3.2): the phrase of a concept lies nearer to its own capsule than to others.

    ``max(0, |u_i - p_i|^2 - |u_j - p_i|^2 + t)``, summed over all pairs ``i != j`` of concepts known in the image, mean
    over the images that have a known concept. Deviations: the paper prints the two distances the other way round,
    against its own sentence, and gives no margin ``t``; 1 is the largest length of a concept capsule.

    Shapes:
        - capsules: (B, m, e), the concept capsules in the joint space
        - phrases: (m, e), the concept phrases in the joint space
        - concepts: (B, m), NaN = unknown; any other value = known
        - output: ()

    >>> capsules = torch.tensor([[[0.5, 0.0], [0.0, 0.5]]])
    >>> triplet_loss(capsules, torch.tensor([[0.5, 0.0], [0.0, 0.5]]), torch.tensor([[1.0, 0.0]]))
    tensor(1.)
    """
    if capsules.dim() != 3 or phrases.shape != capsules.shape[1:] or concepts.shape != capsules.shape[:2]:
        shapes = f"capsules {_shape(capsules)}, phrases {_shape(phrases)} and concepts {_shape(concepts)}"
        raise ValueError(f"{shapes}; give (B, m, e), (m, e) and (B, m)")
    with torch.autocast(capsules.device.type, enabled=False):
        u, p = widened(capsules), widened(phrases)
        centre = p.detach().mean(0)  # distances do not depend on it; their rounding errors do
        u, p = u - centre, p - centre
        # |u_j - p_i|^2 without |p_i|^2, which cancels: (B, m, m), i down and j across
        distance = u.square().sum(2).unsqueeze(1) - 2 * p @ u.mT
        cost = F.relu(distance.diagonal(dim1=1, dim2=2).unsqueeze(2) - distance + margin)
    known = ~concepts.isnan()
    others = ~torch.eye(known.shape[1], dtype=torch.bool, device=known.device)
    pairs = known.unsqueeze(2) & known.unsqueeze(1) & others
    return torch.where(pairs, cost, 0).sum() / known.any(1).sum().clamp(min=1)


def reconstruction_loss(reconstruction: Tensor, image: Tensor, contributes: Tensor | None = None) -> Tensor:
    """Reconstruction loss ``L_r`` (Sec. 3.3.2): the squared error of an image, mean over those that contribute.

    Shapes:
        - reconstruction, image: (B, C, H, W)
        - contributes: (B,) bool; all images if not given
        - output: ()

    >>> reconstruction_loss(torch.ones(2, 1, 2, 2), torch.zeros(2, 1, 2, 2))
    tensor(4.)
    """
    if image.dim() != 4 or reconstruction.shape != image.shape:
        shapes = f"reconstruction {_shape(reconstruction)} and image {_shape(image)}"
        raise ValueError(f"{shapes}; give (B, C, H, W) for both")
    error = widened(reconstruction) - widened(image)
    if contributes is None:
        return error.square().sum() / max(1, error.shape[0])
    if contributes.shape != image.shape[:1]:
        raise ValueError(f"contributes {_shape(contributes)}; give ({image.shape[0]},), one value per image")
    contributes = contributes.bool()
    error = torch.where(contributes.view(-1, 1, 1, 1), error, 0)
    return error.square().sum() / contributes.sum().clamp(min=1)


def diversity_loss(presence: Tensor) -> Tensor:
    """Keeps concepts that nobody labelled apart and alive; not in the paper.

    The mean over all pairs of concepts of ``-log(1 - 0.99 r^2)``, ``r`` being their correlation over the images, plus
    the mean over the concepts of ``max(0, 1 - s / 0.1)``, ``s`` being a presence's standard deviation. The terms are
    those of VICReg (Bardes, Ponce and LeCun 2022), covariance and variance, with correlations so that the scale of a
    presence does not count, and a logarithm, as ``r^2`` has no gradient where two concepts have become one.

    Fewer than 4 images, or a single concept for the first term, cost nothing.

    Shapes:
        - presence: (B, m)
        - output: ()

    >>> apart = torch.tensor([[0.1, 0.1], [0.1, 0.9], [0.9, 0.1], [0.9, 0.9]])
    >>> diversity_loss(apart), diversity_loss(apart[:, :1].expand(4, 2))
    (tensor(0.), tensor(4.6039))
    """
    if presence.dim() != 2:
        raise ValueError(f"presence {_shape(presence)}; give (B, m)")
    images, m = presence.shape
    if images < _FEWEST_IMAGES or not m:
        return widened(presence).sum() * 0
    with torch.autocast(presence.device.type, enabled=False):
        centred = widened(presence) - widened(presence).mean(0)
        spread = (centred.square().mean(0) + _LEAST_VARIANCE).sqrt()
        standard = centred / spread
        shared = (standard.mT @ standard / images).square()  # (m, m)
        shared = shared - torch.diag_embed(shared.diagonal())
        pairs = -torch.log1p(-_NEARLY_ONE * shared).sum()
    return pairs / max(1, m * (m - 1)) + F.relu(1 - spread / LEAST_SPREAD).mean()


def consistency_loss(logits: Tensor, views: int) -> Tensor:
    """How far the answers to several views of the same image are from each other; not in the paper.

    The Jensen-Shannon divergence: the mean over views and images of ``KL(p_view || p)``, ``p`` being their mean.

    Shapes:
        - logits: (views * B, num_classes), all images in one view, then all in the next
        - output: ()

    >>> sure = torch.tensor([[9.0, -9.0], [-9.0, 9.0]])
    >>> consistency_loss(sure, 2), consistency_loss(sure[:1].expand(2, 2), 2)
    (tensor(0.6931), tensor(0.))
    """
    if logits.dim() != 2 or views < 1 or len(logits) % views:
        raise ValueError(f"logits {_shape(logits)} of {views} views; give (views * B, num_classes)")
    log_p = widened(logits).log_softmax(-1).view(views, -1, logits.shape[1])  # (views, B, num_classes)
    log_mean = log_p.logsumexp(0) - math.log(views)
    return (log_p.exp() * (log_p - log_mean)).sum(-1).mean()


def _shape(x: Tensor) -> tuple[int, ...]:
    return tuple(x.shape)
