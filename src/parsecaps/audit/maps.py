"""Maps of several methods over the same cases, and all that is measured of them, batch by batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.audit.faithfulness import (
    CurveMeasures,
    Faithfulness,
    measure_curves,
    random_curves,
    summarise_curves,
    target_values,
)
from parsecaps.audit.localisation import Localisation, MapMeasures, join, localise, measure_maps
from parsecaps.audit.masks import CaseMasks
from parsecaps.audit.randomisation import CascadeMeasures, Randomised, cascade, summarise_cascade
from parsecaps.audit.route_ablation import CutMeasures, RouteAblation, cut_routes, summarise_cuts
from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import DataSet
from parsecaps.explain.targets import About
from parsecaps.metrics import THRESHOLD
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.predictions import group_numbers
from parsecaps.types import Output

DIAGNOSIS = "diagnosis"
_AT_ONCE = 8  # images

Progress = Callable[[int, int], None]
RoutesOf = Callable[[nn.Module, Tensor, About, int], Sequence[Tensor]]


class MapMaker(Protocol):
    """A model and images (B, channels, size, size) to maps (B, K, size, size), of every concept or every class."""

    def __call__(self, model: nn.Module, image: Tensor, *, about: About) -> Tensor:
        """Explain."""
        ...


@dataclass(frozen=True)
class MapAudit:
    """What was measured of the maps of one method; None where the data or the model do not allow it."""

    localisation: Localisation | None
    faithfulness: Faithfulness | None
    randomised: Randomised | None


@dataclass
class _Measured:
    """One method, while batches come in."""

    found: list[MapMeasures] = field(default_factory=list)
    curves: list[CurveMeasures] = field(default_factory=list)
    cascades: list[CascadeMeasures] = field(default_factory=list)


class Cases:
    """Some cases of a data set as batches of images, each with what to explain in it.

    About classes that is the diagnosis; about concepts, those that the case is known to have, or that the model sees
    where that is not known.
    """

    def __init__(self, bundle: Bundle, data: DataSet, prepared: PreparedImages, rows: Sequence[int]) -> None:
        self.bundle, self.data, self.prepared, self.rows = bundle, data, prepared, list(rows)
        self.model = bundle.model.eval()
        self.device = next(self.model.parameters()).device
        self.group = group_numbers([data.cases[row].patient for row in self.rows])

    def first(self, count: int) -> "Cases":
        """The first few of the cases."""
        return Cases(self.bundle, self.data, self.prepared, self.rows[:count])

    def batches(self) -> list[range]:
        return [range(i, min(i + _AT_ONCE, len(self.rows))) for i in range(0, len(self.rows), _AT_ONCE)]

    def image(self, batch: range) -> Tensor:
        levels = np.array(self.prepared.images[[self.rows[i] for i in batch]])
        return torch.from_numpy(levels).float().div(255).to(self.device)

    @torch.no_grad()
    def asked(self, image: Tensor, batch: range, about: About) -> tuple[list[int], list[int]]:
        """Pairs of an image of the batch and a target: their numbers, one list each."""
        output: Output = self.model(image)
        if about == "classes":
            return list(range(len(batch))), output.logits.argmax(1).tolist()
        if output.presence is None:
            return [], []
        seen = (output.presence > THRESHOLD).cpu().numpy()
        truth = self.truth(batch)
        wanted = np.where(np.isnan(truth), seen, truth == 1)
        case, target = np.nonzero(wanted)
        return case.tolist(), target.tolist()

    def truth(self, batch: range) -> np.ndarray:
        """The concepts of the model, as the data know them: (n, m), NaN = unknown."""
        place = {name: j for j, name in enumerate(self.data.concepts)}
        truth = np.full((len(batch), len(self.bundle.concepts)), np.nan)
        for i, number in enumerate(batch):
            concepts = self.data.cases[self.rows[number]].concepts
            for j, name in enumerate(self.bundle.concepts):
                if name in place:
                    truth[i, j] = concepts[place[name]]
        return truth


def audit_maps(
    cases: Cases,
    about: About,
    maps: Mapping[str, MapMaker],
    masks: CaseMasks,
    *,
    sanity_cases: int,
    needed: np.ndarray | None = None,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> dict[str, MapAudit]:
    """Measure the maps of each method, by name, over these cases; `needed` as in `localisation.localise`."""
    values, generator = target_values(cases.model, about), np.random.default_rng(seed)
    measured = {name: _Measured() for name in maps}
    pairs: list[int] = []  # the case of each pair
    sane: list[int] = []
    for batch in cases.batches():
        image = cases.image(batch)
        case, target = cases.asked(image, batch, about)
        truth = _masks_of(masks, about, [cases.rows[i] for i in batch])
        random = random_curves(values, image, generator)
        checked = [k for k, i in enumerate(case) if batch[i] < sanity_cases]
        pairs += [batch[i] for i in case]
        sane += [batch[case[k]] for k in checked]
        for name, maker in maps.items():
            made, mine = maker(cases.model, image, about=about), measured[name]
            if truth is not None:
                picked = _diagnosed(made, target) if about == "classes" else made
                mine.found.append(measure_maps(picked.detach().double().cpu().numpy(), truth))
            if case:
                ties = np.random.default_rng([seed, batch.start])  # the same chance for every method
                mine.curves.append(measure_curves(values, image, made, case, target, random, ties))
            if checked:
                chosen = [case[k] for k in checked], [target[k] for k in checked]
                mine.cascades.append(cascade(cases.model, _about(maker, about), image, *chosen, seed=seed))
        progress(batch.stop, len(cases.rows))
    names = [DIAGNOSIS] if about == "classes" else list(cases.bundle.concepts)
    options = {"resamples": resamples, "seed": seed}
    return {
        name: MapAudit(
            localise(join(mine.found), cases.group, names, needed=needed, **options) if mine.found else None,
            summarise_curves(mine.curves, cases.group[pairs], **options) if mine.curves else None,
            summarise_cascade(mine.cascades, cases.group[sane], **options) if mine.cascades else None,
        )
        for name, mine in measured.items()
    }


def audit_routes(
    cases: Cases,
    about: About,
    routes: RoutesOf,
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> RouteAblation | None:
    """Cut the routes that explain each target of each case; None where there is nothing to explain."""
    values, generator = target_values(cases.model, about), np.random.default_rng(seed)
    parts: list[CutMeasures] = []
    pairs: list[int] = []
    for batch in cases.batches():
        image = cases.image(batch)
        case, target = cases.asked(image, batch, about)
        for one in sorted(set(target)):
            which = [i for i, t in zip(case, target, strict=True) if t == one]
            relevance = routes(cases.model, image[which], about, one)
            parts.append(cut_routes(cases.model, values, image[which], one, relevance, generator))
            pairs += [batch[i] for i in which]
        progress(batch.stop, len(cases.rows))
    return summarise_cuts(parts, cases.group[pairs], resamples=resamples, seed=seed) if parts else None


def _masks_of(masks: CaseMasks, about: About, rows: Sequence[int]) -> np.ndarray | None:
    """(n, targets, size, size) bool; None where there are none."""
    if about == "concepts":
        return None if masks.concepts is None else masks.concepts(rows)
    return None if masks.lesion is None else masks.lesion(rows)[:, None]


def _diagnosed(maps: Tensor, diagnosis: Sequence[int]) -> Tensor:
    """The map of each case's own diagnosis: (B, classes, H, W) -> (B, 1, H, W)."""
    return maps[torch.arange(len(maps)), torch.as_tensor(diagnosis)].unsqueeze(1)


def _about(maker: MapMaker, about: About) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda model, image: maker(model, image, about=about)
