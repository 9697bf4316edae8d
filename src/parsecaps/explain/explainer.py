"""From a model and an image to an explanation, with whatever the model can give; and what it cannot, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn

from parsecaps.bundle import Bundle
from parsecaps.data.reading import read_image
from parsecaps.evaluation.archive import Decision
from parsecaps.evaluation.conformal import prediction_sets
from parsecaps.evaluation.deciding import load_decision
from parsecaps.evaluation.weighted import THRESHOLD
from parsecaps.explain.case_memory import MEMORY_FILE, THUMBNAILS_FILE, CaseMemory
from parsecaps.explain.counterfactual import counterfactual
from parsecaps.explain.explanation import Explanation, Reasons, SeenConcept
from parsecaps.explain.gradient_maps import GRADIENT_MAPS
from parsecaps.explain.intervention import ConceptReasoning, bottleneck_of, concept_reasoning
from parsecaps.explain.parse_tree import ParseTree, parse_tree
from parsecaps.explain.prototypes import Prototype, SimilarCase, prototypes, similar
from parsecaps.explain.route_maps import class_maps, concept_maps
from parsecaps.explain.routes import trace
from parsecaps.explain.targets import About
from parsecaps.explain.thumbnails import read_thumbnails
from parsecaps.types import Output

ROUTES = "routes"
METHODS: dict[str, str] = {
    ROUTES: "",
    "grad-cam": "grad-cam",
    "integrated-gradients": "integrated gradients",
    "occlusion": "occlusion",
}
NUM_TREES = 3
_PROTOTYPES, _SIMILAR = 4, 5

Shape = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Explainer:
    """A model with what its explanations refer to; made once, it explains any number of images.

    `thumbnails` is the file with the pictures of the memory's cases. `notes` are about the model's calibration.
    """

    bundle: Bundle
    decision: Decision = field(default_factory=Decision)
    memory: CaseMemory | None = None
    thumbnails: Path | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def load(cls, folder: str | Path, bundle: Bundle | None = None, *, risk: float | None = None) -> "Explainer":
        """The explainer of a bundle's folder, with its calibration, and with its memory where there is one."""
        folder = Path(folder)
        bundle = Bundle.load(folder) if bundle is None else bundle
        decision, notes = load_decision(folder, risk)
        memory = CaseMemory.load(folder, bundle) if (folder / MEMORY_FILE).is_file() else None
        thumbnails = folder / THUMBNAILS_FILE
        return cls(bundle, decision, memory, thumbnails if thumbnails.is_file() else None, tuple(notes))

    def explain_file(
        self, path: str | Path, frame: int | None = None, *, method: str = ROUTES, num_trees: int = NUM_TREES
    ) -> Explanation:
        """Explain an image file; regions of the parse trees are also given in its own pixels."""
        raw = read_image(path, frame)
        image, name = self.bundle.preparation.prepare(raw), str(path) if frame is None else f"{path}#{frame}"
        height, width = raw.pixels.shape[:2]
        return self.explain(image, name=name, method=method, num_trees=num_trees, original_shape=(height, width))

    def explain(
        self,
        image: Tensor,
        *,
        name: str = "image",
        method: str = ROUTES,
        num_trees: int = NUM_TREES,
        truth: str | None = None,
        concept_truth: Mapping[str, bool] | None = None,
        original_shape: Shape | None = None,
    ) -> Explanation:
        """Explain an image (channels, size, size) in [0, 1], prepared as the bundle says.

        `method` is how maps are made; a model without routes gets Grad-CAM instead of "routes", and no trees. The
        first of `num_trees` is of the diagnosis, the others are of the most present concepts. `original_shape` (height,
        width) is that of the image before its preparation.
        """
        if method not in METHODS:
            raise ValueError(f"method is {method!r}; choose one of {', '.join(METHODS)}")
        model = self.bundle.model.eval()
        batch = image.unsqueeze(0).to(next(model.parameters()).device)
        notes = list(self.notes)
        output = self._traced(batch, notes)
        routed = output is not None
        if output is None:
            method = "grad-cam" if method == ROUTES else method
            with torch.no_grad():
                output = model(batch)
        chances = softmax(output.logits[0].double().cpu().numpy() / self.decision.temperature)
        best = int(chances.argmax())
        presence = None if output.presence is None else output.presence[0].double().cpu().numpy()
        concepts = self._concepts(batch, method, presence, concept_truth or {}, notes)
        most = [] if presence is None else np.argsort(-presence, kind="stable").tolist()
        targets: list[tuple[About, int]] = [("classes", best), *(("concepts", j) for j in most)]
        near: tuple[SimilarCase, ...] = ()
        if self.memory is not None and output.concept_capsules is not None:
            near = tuple(similar(self.memory, output.concept_capsules[0].float().cpu().numpy(), _SIMILAR))
        possible = None
        if self.decision.threshold is not None:
            inside = np.flatnonzero(prediction_sets(chances[None], self.decision.threshold)[0])
            possible = [self.bundle.classes[k] for k in inside]
        return Explanation(
            name=name,
            image=image,
            diagnosis=self.bundle.classes[best],
            probabilities=dict(zip(self.bundle.classes, chances.tolist(), strict=True)),
            possible=possible,
            abstain=None if possible is None else len(possible) != 1,
            method=method,
            class_map=_maps(model, batch, "classes", method)[best],
            concepts=concepts,
            trees=tuple(self._tree(batch, *each, original_shape) for each in targets[:num_trees]) if routed else (),
            similar=near,
            pictures={**self._known, **self._pictures([each.case.row for each in near])},
            reasons=self._reasons(presence, notes),
            notes=tuple(notes),
            truth=truth,
        )

    @cached_property
    def reasoning(self) -> ConceptReasoning | None:
        """How the concepts add up to the diagnosis, of a model that decides by them alone."""
        try:
            bottleneck_of(self.bundle.model)
        except ValueError:
            return None
        return concept_reasoning(self.bundle, self.memory, temperature=self.decision.temperature)

    @cached_property
    def _prototypes(self) -> list[tuple[Prototype, ...]]:
        """The training cases that show each concept most."""
        if self.memory is None:
            return [()] * len(self.bundle.concepts)
        return [tuple(prototypes(self.memory, j, _PROTOTYPES)) for j in range(len(self.bundle.concepts))]

    @cached_property
    def _known(self) -> dict[int, bytes]:
        return self._pictures([each.case.row for group in self._prototypes for each in group])

    def _pictures(self, rows: list[int]) -> dict[int, bytes]:
        if self.thumbnails is None:
            return {}
        return dict(zip(rows, read_thumbnails(self.thumbnails, rows), strict=True))

    def _traced(self, batch: Tensor, notes: list[str]) -> Output | None:
        """What a model with routes gives, None without."""
        try:
            return trace(self.bundle.model, batch).output
        except ValueError:
            kind = type(self.bundle.model).__name__
            notes.append(f"{kind} has no routes to follow, so there is no parse tree, and maps come from gradients")
            return None

    def _concepts(
        self, batch: Tensor, method: str, presence: np.ndarray | None, truth: Mapping[str, bool], notes: list[str]
    ) -> tuple[SeenConcept, ...]:
        if presence is None:
            notes.append("the model was trained without concepts, so it can name none")
            return ()
        if self.memory is None:
            notes.append("no training cases are shown: `parsecaps remember RUN` keeps them beside the model")
        maps = _maps(self.bundle.model, batch, "concepts", method)
        seen = presence > THRESHOLD if self.reasoning is None else self.reasoning.seen(presence)
        return tuple(
            SeenConcept(name, float(presence[j]), bool(seen[j]), maps[j], truth.get(name), self._prototypes[j])
            for j, name in enumerate(self.bundle.concepts)
        )

    def _tree(self, batch: Tensor, about: About, index: int, shape: Shape | None) -> ParseTree:
        bundle = self.bundle
        return parse_tree(
            bundle.model,
            batch,
            about=about,
            index=index,
            name=(bundle.classes if about == "classes" else bundle.concepts)[index],
            preparation=None if shape is None else bundle.preparation,
            original_shape=shape,
        )

    def _reasons(self, presence: np.ndarray | None, notes: list[str]) -> Reasons | None:
        if presence is None:
            return None
        if self.reasoning is None:
            notes.append(
                "the diagnosis is computed beside the concepts, not from them, so no contributions can be given and no "
                "concept can be corrected; train with --set model.head=bottleneck for that"
            )
            return None
        flip = counterfactual(self.reasoning, presence)
        return Reasons(self.reasoning, presence, self.reasoning.contributions(presence), flip)


def explain(bundle: Bundle, image: Tensor, *, method: str = ROUTES, num_trees: int = NUM_TREES) -> Explanation:
    """Explain one image (channels, size, size) by a bundle alone: not calibrated, and without training cases.

    `Explainer.load` has both, where the folder of the bundle has them.
    """
    return Explainer(bundle).explain(image, method=method, num_trees=num_trees)


def _maps(model: nn.Module, batch: Tensor, about: About, method: str) -> np.ndarray:
    """(K, size, size), not negative."""
    if method == ROUTES:
        found = (class_maps if about == "classes" else concept_maps)(model, batch)
    else:
        found = GRADIENT_MAPS[METHODS[method]](model, batch, about=about)
    return np.asarray(found[0].detach().cpu().float().numpy())
