"""From a model and an image to an explanation, with whatever the model can give; and what it cannot, and why."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from parsecaps.explain.strict_cost import StrictCost, Strictness, load_cost
from parsecaps.prediction.bundle import Bundle, find_bundle
from parsecaps.data.reading import read_image
from parsecaps.explain.counterfactual import counterfactual
from parsecaps.explain.explanation import Explanation, Reasons, SeenConcept
from parsecaps.explain.intervention import ConceptReasoning, bottleneck_of, concept_reasoning
from parsecaps.explain.known_cases import MEMORY_FILE, THUMBNAILS_FILE, CaseMemory, weights_digest
from parsecaps.explain.map_methods import ROUTES, check_method, make_maps
from parsecaps.explain.parse_tree import ParseTree, parse_tree
from parsecaps.explain.prototypes import Prototype, SimilarCase, prototypes, similar
from parsecaps.explain.strict_tree import load_statistics, strict_network
from parsecaps.explain.targets import About
from parsecaps.explain.thumbnails import read_thumbnails
from parsecaps.explain.trace import trace
from parsecaps.explain.traversal_strip import TraversalStrip, traversal_strips
from parsecaps.metrics.weighted import THRESHOLD
from parsecaps.nn.couplings import Coupling
from parsecaps.prediction.conformal import prediction_sets
from parsecaps.types import Output

NUM_TREES = 3
_PROTOTYPES, _SIMILAR = 4, 5

Shape = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Explainer:
    """A model with what its explanations refer to; made once, it explains any number of images.

    `thumbnails` is the file with the pictures of the memory's cases. `notes` are about the model's calibration.
    `statistics` and `cost` are those of its strict tree.
    """

    bundle: Bundle
    risk: float | None = None
    memory: CaseMemory | None = None
    thumbnails: Path | None = None
    notes: tuple[str, ...] = ()
    statistics: Mapping[str, Tensor] | None = None
    cost: StrictCost | None = None

    @classmethod
    def load(cls, folder: str | Path, bundle: Bundle | None = None, *, risk: float | None = None) -> "Explainer":
        """The explainer of a bundle's folder, with its calibration, and with its memory where there is one."""
        bundle = Bundle.load(folder) if bundle is None else bundle
        folder, calibration = find_bundle(folder), bundle.calibration
        notes = [calibration.note] if calibration.note else []
        if risk is not None and (note := calibration.threshold(risk).note):
            notes.append(note)
        memory = CaseMemory.load(folder, bundle) if (folder / MEMORY_FILE).is_file() else None
        thumbnails = folder / THUMBNAILS_FILE
        statistics = load_statistics(folder, weights_digest(bundle.model))
        cost = load_cost(folder, bundle, statistics is not None)
        pictures = thumbnails if thumbnails.is_file() else None
        return cls(bundle, risk, memory, pictures, tuple(notes), statistics, cost)

    def explain_file(
        self,
        path: str | Path,
        frame: int | None = None,
        *,
        method: str = ROUTES,
        num_trees: int = NUM_TREES,
        strict: bool = False,
        traversals: int = 0,
    ) -> Explanation:
        """Explain an image file; regions of the parse trees are also given in its own pixels."""
        raw = read_image(path, frame)
        image, name = self.bundle.preparation.prepare(raw), str(path) if frame is None else f"{path}#{frame}"
        height, width = raw.pixels.shape[:2]
        return self.explain(
            image,
            name=name,
            method=method,
            num_trees=num_trees,
            strict=strict,
            traversals=traversals,
            original_shape=(height, width),
        )

    def explain(
        self,
        image: Tensor,
        *,
        name: str = "image",
        method: str = ROUTES,
        num_trees: int = NUM_TREES,
        strict: bool = False,
        traversals: int = 0,
        truth: str | None = None,
        concept_truth: Mapping[str, bool] | None = None,
        original_shape: Shape | None = None,
    ) -> Explanation:
        """Explain an image (channels, size, size) in [0, 1], prepared as the bundle says.

        `method` is how maps are made; a model without routes gets Grad-CAM instead of "routes", and no trees. The
        first of `num_trees` is of the diagnosis, the others are of the most present concepts. `strict` explains the
        strict network instead, in which each capsule has one parent. `traversals` is how many numbers of the global
        capsule move before the decoder. `original_shape` (height, width) is that of the image before its preparation.
        """
        check_method(method)
        if strict and self.risk is not None:
            raise ValueError("a risk is promised for the ordinary network only; leave out --risk, or --strict")
        model = self.bundle.model.eval()
        batch = image.unsqueeze(0).to(next(model.parameters()).device)
        notes = list(self.notes)
        used = self.bundle.preparation.centre
        if used < 1:
            notes.append(
                f"the model looks at the middle of an image, {100 * used:.0f} % of each side; pictures show that part"
            )
        strict = strict and self._can_be_strict(notes)
        with strict_network(model, self.statistics) if strict else nullcontext():
            output = self._traced(batch, notes)
            routed = output is not None
            if output is None:
                method, output = "grad-cam" if method == ROUTES else method, self._plain(batch)
            chances, presence = self._chances(output), _presence(output)
            best = int(chances.argmax())
            concepts = self._concepts(batch, method, presence, concept_truth or {}, notes)
            most = [] if presence is None else np.argsort(-presence, kind="stable").tolist()
            targets: list[tuple[About, int]] = [("classes", best), *(("concepts", j) for j in most)]
            class_map = make_maps(model, batch, "classes", method)[best]
            trees = tuple(self._tree(batch, *each, original_shape) for each in targets[:num_trees]) if routed else ()
        ordinary = self._plain(batch) if strict else output
        strips = self._traversals(output, traversals, notes)
        near: tuple[SimilarCase, ...] = ()
        if self.memory is not None and ordinary.concept_capsules is not None:
            near = tuple(similar(self.memory, ordinary.concept_capsules[0].float().cpu().numpy(), _SIMILAR))
        possible = None
        if self.risk is not None:
            threshold = self.bundle.calibration.threshold(self.risk).probability
            inside = np.flatnonzero(prediction_sets(chances[None], threshold)[0])
            possible = [self.bundle.classes[k] for k in inside]
        return Explanation(
            name=name,
            image=image,
            diagnosis=self.bundle.classes[best],
            probabilities=dict(zip(self.bundle.classes, chances.tolist(), strict=True)),
            possible=possible,
            abstain=None if possible is None else len(possible) != 1,
            method=method,
            class_map=class_map,
            concepts=concepts,
            trees=trees,
            similar=near,
            pictures={**self._known, **self._pictures([each.case.row for each in near])},
            reasons=self._reasons(presence, notes),
            notes=tuple(notes),
            truth=truth,
            strict=self._strictness(ordinary) if strict else None,
            traversals=strips,
        )

    @cached_property
    def reasoning(self) -> ConceptReasoning | None:
        """How the concepts add up to the diagnosis, of a model that decides by them alone."""
        try:
            bottleneck_of(self.bundle.model)
        except ValueError:
            return None
        return concept_reasoning(self.bundle, self.memory, temperature=self.bundle.calibration.temperature)

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

    def _can_be_strict(self, notes: list[str]) -> bool:
        if any(isinstance(module, Coupling) for module in self.bundle.model.modules()):
            notes.append(
                "the strict network is not calibrated: its probabilities are at the ordinary one's temperature"
            )
            return True
        notes.append(f"{type(self.bundle.model).__name__} has no routes, so there is no strict tree of it")
        return False

    def _strictness(self, ordinary: Output) -> Strictness:
        """What the ordinary network says, beside an explanation of the strict one."""
        chances, presence = self._chances(ordinary), _presence(ordinary)
        best = int(chances.argmax())
        seen = () if presence is None else np.flatnonzero(self._seen(presence)).tolist()
        names = tuple(self.bundle.concepts[j] for j in seen)
        adjusted = self.statistics is not None
        return Strictness(self.bundle.classes[best], float(chances[best]), names, adjusted, self.cost)

    def _traversals(self, output: Output, count: int, notes: list[str]) -> tuple[TraversalStrip, ...]:
        if not count:
            return ()
        try:
            if output.global_capsule is None:
                raise ValueError("the model has no global capsule to decode; train with model.num_concepts above 0")
            return traversal_strips(
                self.bundle.model, output.global_capsule[0], self.bundle.concepts, count, self.memory
            )
        except ValueError as error:
            notes.append(f"no traversals: {error}")
            return ()

    def _chances(self, output: Output) -> np.ndarray:
        return np.asarray(softmax(output.logits[0].double().cpu().numpy() / self.bundle.calibration.temperature))

    def _seen(self, presence: np.ndarray) -> np.ndarray:
        return presence > THRESHOLD if self.reasoning is None else self.reasoning.seen(presence)

    @torch.no_grad()
    def _plain(self, batch: Tensor) -> Output:
        output: Output = self.bundle.model(batch)
        return output

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
        maps = make_maps(self.bundle.model, batch, "concepts", method)
        seen = self._seen(presence)
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


def _presence(output: Output) -> np.ndarray | None:
    return None if output.presence is None else np.asarray(output.presence[0].double().cpu().numpy())
