"""What couplings are worth: what is left without the routes that an explanation shows, or with other couplings.

Route ablation: in every cell a share of the routes (couplings above 0) is set to 0: those that brought most to the
target by the explanation; as many at random; and, as a harder rival, those with the strongest couplings, which know
nothing of the target. The cells above choose anew from what is left.

Other couplings, without training anew: uniform ones know nothing, not even of place. The mean over images drops the
choice by content. Those of another image are as sharp as its own. A strict tree keeps one parent for each child
(`explain.strict_tree`).

Residuals: what the shares of an explanation miss of the change that they explain.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.audit.audit_cases import About, AuditCases, Average, Values, joined
from parsecaps.data.case_set import CaseSet
from parsecaps.explain.attribution import Target
from parsecaps.explain.attribution_path import AttributionPath, has_routes, has_tree, trace
from parsecaps.explain.context import TESTIMONY, evidence_of
from parsecaps.explain.strict_tree import Paired, StrictCost, strict_network
from parsecaps.metrics import Comparison, Score, compare, paired_differences, score
from parsecaps.metrics.bootstrap import SIGNED_SHARE
from parsecaps.metrics.predictions import Predictions, concatenate
from parsecaps.model import Model
from parsecaps.models.pretrained import PretrainedModel, weights_digest
from parsecaps.nn.capsules import InitialBlock, PrimaryCaps
from parsecaps.nn.couplings import Coupling, Rule, given, uniform
from parsecaps.nn.recorder import couplings_of, hooked, record_couplings, replace_couplings
from parsecaps.nn.trunk import TrunkBlock
from parsecaps.prediction.predict import as_array, predict_cases
from parsecaps.types import ProgressCallback, silent

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
RANDOM_CUTS = 3
_FORWARD = 64  # images in one forward pass
UNIFORM, OTHER, MEAN = "uniform", "of another image", "mean over images"
_COUPLED = 16  # images whose couplings are kept at a time
_CHUNK = 256  # images read at a time

# as `explain.attribution.route_relevance`: for each target and each cell (B, heads, parents, children)
RouteRelevance = Callable[[PretrainedModel, Tensor, Sequence[Target]], list[list[Tensor]]]


class CutMeasures(NamedTuple):
    """The value of the target of each of P pairs, with all routes and after each share of them is cut.

    Shapes:
        - each: (P, 1 + shares)
    """

    shown: np.ndarray
    random: np.ndarray
    strongest: np.ndarray


@dataclass(frozen=True)
class RouteAblation:
    """Mean values over pairs of a case and a target as more routes are cut, by what is cut; `shares` begins with 0.

    `gain` is how much lower the value is with the shown routes cut than with as many random ones, `gain_on_strongest`
    than with the strongest ones: means over the shares.
    """

    shares: list[float]
    shown: list[float]
    random: list[float]
    strongest: list[float]
    gain: Score
    gain_on_strongest: Score


def audit_routes(
    cases: AuditCases, relevance: RouteRelevance, progress: ProgressCallback = silent
) -> dict[About, RouteAblation]:
    """Cut the routes that explain each target of each case, about concepts and about classes."""
    generators = {about: np.random.default_rng(cases.seed) for about in cases.kinds}
    parts: dict[About, list[CutMeasures]] = {about: [] for about in generators}
    pairs: dict[About, list[int]] = {about: [] for about in generators}  # the case of each
    for batch, image in cases.batches(progress):
        targets = cases.targets(batch, cases.values(image))
        cuts = RouteCuts(cases.network, cases.values, image)
        brought = [relevance(cases.network, *each) for each in zip(torch.split(image, 1), targets, strict=True)]
        for about, generator in generators.items():
            asked = sorted(  # by target, then by case
                (target.index, i, place)
                for i, each in enumerate(targets)
                for place, target in enumerate(each)
                if target.about == about
            )
            if asked:
                index, case, _ = zip(*asked, strict=True)
                of_pairs = [torch.cat(cell) for cell in zip(*(brought[i][place] for _, i, place in asked), strict=True)]
                column = [cases.column(Target(about, each)) for each in index]
                parts[about].append(cuts.measure(case, column, of_pairs, generator))
                pairs[about] += [batch[i] for i in case]
    return {
        about: summarise_cuts(joined(found), cases.average(pairs[about])) for about, found in parts.items() if found
    }


def can_be_cut(model: PretrainedModel) -> bool:
    """Whether the routes of a model are all known, and made by couplings that can be set to 0."""
    return has_tree(model) or (has_routes(model) and len(couplings_of(model)) == 1)


class RouteCuts:
    """Cuts of the routes of a few images (B, channels, H, W); `strongest` are values without the strongest routes."""

    @torch.inference_mode()
    def __init__(self, model: nn.Module, values: Values, image: Tensor, *, shares: Sequence[float] = SHARES) -> None:
        self.model, self.values, self.image, self.shares = model, values, image, shares
        self.modules = [each for each in couplings_of(model) if each.between == "capsules"]
        before = [each for each in model.modules() if isinstance(each, InitialBlock | TrunkBlock | PrimaryCaps)]
        self.before: dict[nn.Module, Tensor] = {}  # what comes before the couplings
        with record_couplings(model) as recorded, hooked(before, lambda each, _, x: self.before.update({each: x})):
            self.whole = values(image)  # (B, K)
        self.couplings = [each.coupling for each in recorded if each.between == "capsules"]
        every = range(len(image))
        self.strongest = self._curves(every, self._ranks(every, self.couplings))

    @torch.inference_mode()
    def measure(
        self, case: Sequence[int], column: Sequence[int], relevance: Sequence[Tensor], random: np.random.Generator
    ) -> CutMeasures:
        """Cut the routes of P pairs, ordered by column, by a relevance (P, heads, parents, children) in each cell."""
        drawn = [
            [[random.random((count, *c.shape[1:]), np.float32) for c in self.couplings] for _ in range(RANDOM_CUTS)]
            for count in (len(list(group)) for _, group in groupby(column))
        ]
        scores = [relevance]
        for parts in zip(*drawn, strict=True):
            scores.append([torch.from_numpy(np.concatenate(cell)) for cell in zip(*parts, strict=True)])
        ranks = zip(*(self._ranks(case, each) for each in scores), strict=True)
        shown, *chances = self._curves([*case] * len(scores), [torch.cat(cell) for cell in ranks]).chunk(len(scores))

        def of_target(curve: Tensor) -> np.ndarray:
            return as_array(curve[range(len(column)), :, list(column)])

        return CutMeasures(
            of_target(shown),
            np.mean([of_target(each) for each in chances], axis=0),
            of_target(self.strongest[list(case)]),
        )

    def _ranks(self, case: Sequence[int], scores: Sequence[Tensor]) -> list[Tensor]:
        """The place of each route by its score, (R, heads, parents, children) for each cell; no route is last."""
        result = []
        for module, coupling, scored in zip(self.modules, self.couplings, scores, strict=True):
            ranks = []
            for i, own in zip(case, scored.to(coupling), strict=True):
                there = (coupling[i].flatten() > 0).nonzero().squeeze(1)
                rank = torch.full_like(coupling[i].flatten(), coupling[i].numel())
                best = own.flatten()[there].argsort(descending=True, stable=True)
                rank[there[best]] = torch.arange(len(there), device=rank.device, dtype=rank.dtype)
                ranks.append(module.kept(rank.view_as(coupling[:1])))
            result.append(torch.cat(ranks))
        return result

    def _curves(self, case: Sequence[int], ranks: Sequence[Tensor]) -> Tensor:
        """What the model says of R images as more and more of their routes are cut: (R, 1 + shares, K)."""
        which = torch.as_tensor(case, device=self.image.device)
        count = [(coupling > 0).flatten(1).sum(1)[which] for coupling in self.couplings]
        shares = torch.tensor(self.shares, device=self.image.device)
        row = torch.arange(len(which) * len(shares), device=self.image.device)
        parts = []
        for some in torch.split(row, _FORWARD):
            image, share = some // len(shares), shares[some % len(shares)]
            kept: dict[nn.Module, Tensor] = {
                module: rank[image] >= torch.ceil(share * n[image]).view(-1, *[1] * (rank.dim() - 1))
                for module, rank, n in zip(self.modules, ranks, count, strict=True)
            }
            with replace_couplings(self.model, _only(kept)), self._same_capsules(which[image]):
                parts.append(self.values(self.image[which[image]]))
        cut = torch.cat(parts).view(len(which), len(shares), -1)
        return torch.cat([self.whole[which].unsqueeze(1), cut], 1)

    @contextmanager
    def _same_capsules(self, which: Tensor) -> Iterator[None]:
        """Let the model take the primary capsules and the context that it had, and not compute them."""
        try:
            for module, kept in self.before.items():
                module.forward = lambda *_, kept=kept: kept[which]
            yield
        finally:
            for module in self.before:
                del module.forward


def summarise_cuts(measured: CutMeasures, average: Average) -> RouteAblation:
    """Means over all pairs."""
    gains = [(rival - measured.shown)[:, 1:].mean(1) for rival in (measured.random, measured.strongest)]
    gain, on_strongest = average(np.stack(gains, axis=1), bounds=SIGNED_SHARE).scores()
    shown, random, strongest = (each.mean(0).tolist() for each in measured)
    return RouteAblation([0.0, *SHARES], shown, random, strongest, gain, on_strongest)


def _only(kept: dict[nn.Module, Tensor]) -> Rule:
    """The rule by which the cells do without some routes: true where a coupling is kept."""
    return lambda module, c: c * kept[module] if module in kept else c


def compare_couplings(
    model: Model,
    cases: CaseSet,
    ordinary: Predictions,
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: ProgressCallback = silent,
) -> dict[str, Comparison]:
    """Compare the `ordinary` predictions of these cases with those by other couplings.

    In a random cycle of the images each gets the couplings of the next one. Where a context chooses, the evidence of
    the mean image takes the place of each image's own.
    """
    if len(cases) < 2:
        raise ValueError(f"couplings of another image need 2 images, and there are {len(cases)}; give more")
    predict, network, count = partial(predict_cases, model), model.network, len(cases)
    own: dict[Coupling, Tensor] = {}
    total: dict[Coupling, Tensor] = {}

    def keep(module: Coupling, c: Tensor) -> Tensor:
        own[module] = c
        total[module] = total.get(module, 0) + c.sum(0, keepdim=True, dtype=torch.float64)
        return c

    progress(0, 4 * count)
    with replace_couplings(network, uniform):
        found = {UNIFORM: predict(cases)}
    order, parts = np.random.default_rng(seed).permutation(count), []
    cycle, following = cases.subset(order), cases.subset(np.roll(order, -1))
    for some in (range(count)[start : start + _COUPLED] for start in range(0, count, _COUPLED)):
        progress(count + 2 * some.start, 4 * count)
        with replace_couplings(network, keep):
            predict(following.subset(some))
        with replace_couplings(network, given(own)):
            parts.append(predict(cycle.subset(some)))
    found[OTHER] = concatenate(parts)
    with replace_couplings(network, given({module: each / count for module, each in total.items()})):
        found[MEAN] = predict(cases)
    if network.evidence is not None:
        with evidence_of(network, _mean_image(cases).to(model.device)):
            found[TESTIMONY] = predict(cases)
    progress(4 * count, 4 * count)
    return {name: compare(ordinary, each, resamples=resamples, seed=seed) for name, each in found.items()}


def _mean_image(cases: CaseSet) -> Tensor:
    """The mean of the images in [0, 1]: (1, channels, size, size)."""
    chunks = (cases.subset(range(len(cases))[i : i + _CHUNK]).images for i in range(0, len(cases), _CHUNK))
    total = np.sum([chunk.sum(0, dtype=np.int64) for chunk in chunks], axis=0)
    return torch.from_numpy(total / (255 * len(cases))).float().unsqueeze(0)


def strict_cost(
    model: Model,
    cases: CaseSet,
    ordinary: Predictions,
    *,
    statistics: Mapping[str, Tensor] | None = None,
    resamples: int = 1000,
    seed: int = 0,
    progress: ProgressCallback = silent,
) -> StrictCost:
    """Run the strict network on these cases, of which the `ordinary` one's predictions are known, and score both."""
    progress(0, len(cases))
    with strict_network(model.network, statistics):
        strict = predict_cases(model, cases, progress=progress)
    scores = [score(each, resamples=resamples, seed=seed) for each in (ordinary, strict)]
    accuracy = auroc = None
    if (ordinary.label >= 0).any():
        difference = compare(ordinary, strict, resamples=resamples, seed=seed).differences["accuracy"]
        accuracy = Paired(scores[0]["accuracy"], scores[1]["accuracy"], difference)
    if ordinary.presence is not None and ordinary.concepts is not None and "mean_auroc" in scores[0].concepts:
        first, second = (each.concepts["mean_auroc"] for each in scores)
        found = paired_differences(ordinary, strict, ["mean_auroc"], resamples=resamples, seed=seed)
        auroc = Paired(first, second, found["mean_auroc"])
    return StrictCost(accuracy, auroc, statistics is not None, weights_digest(model.network))


@dataclass(frozen=True)
class Residuals:
    """What shares miss of the change of each of so many `targets`, in the worst layer, as a part of that change."""

    targets: int
    median: float
    percentile_95: float
    largest: float

    def sentence(self) -> str:
        return (
            f"shares add up to within {self.median:.2%} of the change they explain in the median, {self.largest:.2%} "
            f"in the worst of {self.targets:,} targets"
        )


def audit_residuals(cases: AuditCases, progress: ProgressCallback = silent) -> Residuals:
    """The residuals of each target of each case of a model with a tree (`AttributionPath.residual`)."""
    found = []
    for batch, image in cases.batches(progress):
        for one, targets in zip(torch.split(image, 1), cases.targets(batch, cases.values(image)), strict=True):
            path = AttributionPath(trace(cases.network, one))
            path.find_gradients(targets)
            found += [path.residual(target).item() for target in targets]
    median, high = np.percentile(found, [50, 95]).tolist()
    return Residuals(len(found), median, high, max(found))
