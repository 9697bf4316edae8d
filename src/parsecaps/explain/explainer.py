"""From a model and an image to an explanation, with whatever the model can give; and what it cannot, and why."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from parsecaps.data.reading import prepare_image
from parsecaps.explain.attribution import MAP_METHODS, ROUTES, check_method
from parsecaps.explain.attribution_path import AttributionPath
from parsecaps.explain.case_memory import (
    THUMBNAILS_FILE,
    CaseMemory,
    Prototype,
    SimilarCase,
    find_known_cases,
    prototypes,
    read_thumbnails,
    similar,
)
from parsecaps.explain.counterfactual import counterfactual
from parsecaps.explain.explanation import Explanation, Reasons, SeenConcept
from parsecaps.explain.intervention import ConceptReasoning, concept_reasoning
from parsecaps.explain.parse_tree import ParseTree, tree_of_path
from parsecaps.explain.route_maps import route_maps
from parsecaps.explain.strict_tree import StrictCost, Strictness, load_cost, load_statistics, strict_network
from parsecaps.explain.trace import Target, describe_routes, has_routes, has_tree, trace
from parsecaps.explain.traversal import TraversalStrip, traversal_strips
from parsecaps.metrics import THRESHOLD
from parsecaps.nn.routes import RouteTree
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.files import ImageFile
from parsecaps.prediction.predict import Prediction, answer, each_image, of_output, predict_files
from parsecaps.run import Run
from parsecaps.types import Output

NUM_TREES = 3
NO_CONCEPTS = "the model was trained without concepts, so it can name none"
NO_REASONING = (
    "the diagnosis is computed beside the concepts, not from them, so no contributions can be given and no concept can "
    "be corrected; train with --set model.head=bottleneck for that"
)
_PROTOTYPES, _SIMILAR = 4, 5

Shape = tuple[int, int]


@dataclass(frozen=True, eq=False, repr=False)
class Explainer:
    """A trained model, ready to answer: what it says of an image, and why.

    The statistics of its strict tree are read from the folder of the bundle, its training cases and what the strict
    tree costs from the run around it, when they are first needed and where they are there. With a `risk`, as in 0.1, it
    abstains so that about this share of the sets at most leaves out the truth.
    """

    bundle: Bundle
    risk: float | None = None

    @classmethod
    def load(cls, folder: str | Path, *, risk: float | None = None, device: str = "auto") -> "Explainer":
        """The explainer of a run's folder, or of a saved model's; files of another model beside it are refused."""
        explainer = cls(Bundle.load(folder, device), risk)
        if risk is not None:
            explainer.bundle.calibration.threshold(risk)
        explainer.memory, explainer.cost  # noqa: B018 (read now, so that an error comes before the first image)
        return explainer

    def __repr__(self) -> str:
        bundle = self.bundle
        kind, side = type(bundle.model).__name__, bundle.preparation.size
        place = "" if bundle.folder is None else f" of {bundle.folder}"
        concepts = f"; concepts: {', '.join(bundle.concepts)}" if bundle.concepts else ""
        return f"{kind}{place}, {side} px; classes: {', '.join(bundle.classes)}{concepts}"

    @cached_property
    def memory(self) -> CaseMemory | None:
        """What is known of the training cases."""
        folder = find_known_cases(self.bundle.folder)
        return None if folder is None else CaseMemory.load(folder, self.bundle)

    @cached_property
    def statistics(self) -> Mapping[str, Tensor] | None:
        """The batch statistics of the strict tree."""
        folder = self.bundle.folder
        return None if folder is None else load_statistics(folder, self.bundle.model)

    @cached_property
    def cost(self) -> StrictCost | None:
        """What the strict tree costs."""
        folder = self.bundle.folder
        return None if folder is None else load_cost(folder, self.bundle, self.statistics is not None)

    def predict(self, image: str | Path, *, frame: int | None = None, risk: float | None = None) -> Prediction:
        """What the model says of an image file, the same as `parsecaps predict` writes."""
        risk = self.risk if risk is None else risk
        (prediction,) = predict_files(self.bundle, [ImageFile(Path(image), frame)], risk=risk)
        if prediction.error:
            raise ValueError(prediction.error)
        return prediction

    def explain_file(
        self,
        path: str | Path,
        frame: int | None = None,
        *,
        risk: float | None = None,
        method: str = ROUTES,
        num_trees: int = NUM_TREES,
        strict: bool = False,
        traversals: int = 0,
    ) -> Explanation:
        """Explain an image file; regions of the parse trees are also given in its own pixels."""
        prepare = self.bundle.preparation.prepare
        image, (height, width) = prepare_image(path, frame, lambda raw: (prepare(raw), raw.pixels.shape[:2]))
        source = ImageFile(Path(path), frame)
        return self.explain(
            image,
            name=source.name,
            risk=risk,
            method=method,
            num_trees=num_trees,
            strict=strict,
            traversals=traversals,
            original_shape=(height, width),
            source=source,
        )

    def explain(
        self,
        image: Tensor | str | Path,
        *,
        frame: int | None = None,
        name: str = "image",
        risk: float | None = None,
        method: str = ROUTES,
        num_trees: int = NUM_TREES,
        strict: bool = False,
        traversals: int = 0,
        truth: str | None = None,
        concept_truth: Mapping[str, bool] | None = None,
        original_shape: Shape | None = None,
        source: ImageFile | None = None,
    ) -> Explanation:
        """Explain an image file, or an image (channels, size, size) in [0, 1] prepared as the bundle says.

        `method` is how maps are made; a model without routes gets Grad-CAM instead of "routes", and one without cells
        no trees. The first of `num_trees` is of the diagnosis, the others are of the most present concepts. `strict`
        explains the strict network instead, in which each capsule has one parent. `traversals` is how many
        numbers of the global capsule move before the decoder. `original_shape` (height, width) is that of the image
        before its preparation, `source` the file that a prepared image came from.
        """
        if not isinstance(image, Tensor):
            return self.explain_file(
                image, frame, risk=risk, method=method, num_trees=num_trees, strict=strict, traversals=traversals
            )
        check_method(method)
        bundle, risk = self.bundle, self.risk if risk is None else risk
        if strict and risk is not None:
            raise ValueError("a risk is promised for the ordinary network only; leave out --risk, or --strict")
        notes = calibration_notes(bundle, risk)
        batch, model = image.unsqueeze(0).to(bundle.device), bundle.model.eval()
        strict = strict and self._can_be_strict(notes)
        with strict_network(model, self.statistics) if strict else nullcontext():
            traced = self._trace(batch, notes)
            output = answer(bundle, batch) if traced is None else traced.output
            predictions = of_output(bundle, output, [name])
            (prediction,) = each_image(bundle, predictions, risk)
            best, presence = bundle.classes.index(prediction["label"]), predictions.presence
            concepts = [] if presence is None else [Target("concepts", j) for j in range(len(bundle.concepts))]
            targets = [*concepts, Target("classes", best)]
            path = AttributionPath(traced) if traced and (method == ROUTES or num_trees > 0) else None
            if method == ROUTES and path is None and not has_routes(model):
                method = "grad-cam"
            if path is not None and method == ROUTES:
                maps = route_maps(path, targets)
            else:
                maps = MAP_METHODS[method](model, batch, targets)
            most = [] if presence is None else [concepts[j] for j in np.argsort(-presence[0], kind="stable")]
            shown = [] if path is None else [targets[-1], *most][:num_trees]
            trees = tuple(self._tree(path, target, original_shape) for target in shown if path is not None)
            explained = targets if method == ROUTES else shown
            missed = [path.residual(target).max().item() for target in explained] if path is not None else []
        pictures = maps[0].detach().cpu().float().numpy()
        ordinary = answer(bundle, batch) if strict else output
        near: tuple[SimilarCase, ...] = ()
        if self.memory is not None and ordinary.concept_capsules is not None:
            near = tuple(similar(self.memory, ordinary.concept_capsules[0].float().cpu().numpy(), _SIMILAR))
        known = None if presence is None else presence[0]
        return Explanation(
            name=name,
            model=type(model).__name__,
            image=image,
            diagnosis=prediction["label"],
            probabilities=prediction["probabilities"],
            possible=prediction["possible"],
            abstain=prediction["abstain"],
            method=method,
            class_map=pictures[-1],
            concepts=self._concepts(pictures[:-1], known, concept_truth or {}, notes),
            trees=trees,
            similar=near,
            pictures={**self._known, **self._pictures([each.case.row for each in near])},
            traversals=self._traversals(output, traversals, notes),
            reasons=self._reasons(output, known, notes),
            notes=tuple(notes),
            truth=truth,
            strict=self._strictness(ordinary) if strict else None,
            source=source,
            residual=max(missed, default=None),
        )

    @cached_property
    def reasoning(self) -> ConceptReasoning | None:
        """How the concepts add up to the diagnosis in all images, of a model that decides by them alone."""
        found = self.bundle.model.reasoning()
        return None if found is None or found.by_image else self.reasoning_of(None)

    @cached_property
    def reasoning_by_image(self) -> ConceptReasoning | None:
        """That of a model whose weights differ from image to image, for no image: what is the same in all of them."""
        found = self.bundle.model.reasoning()
        if found is None or not found.by_image:
            return None
        classes, concepts = len(self.bundle.classes), len(self.bundle.concepts)
        shapes = {"logits": (0, classes), "presence": (0, concepts), "concept_weights": (0, classes, concepts)}
        return self.reasoning_of(Output(**{name: torch.zeros(shape) for name, shape in shapes.items()}))

    def reasoning_of(self, output: Output | None) -> ConceptReasoning:
        """How the concepts add up to the diagnosis in the images of an output."""
        temperature = self.bundle.calibration.temperature
        return concept_reasoning(self.bundle, self.memory, temperature=temperature, output=output)

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
        folder = find_known_cases(self.bundle.folder)
        if folder is None or not (folder / THUMBNAILS_FILE).is_file():
            return {}
        return dict(zip(rows, read_thumbnails(folder / THUMBNAILS_FILE, rows), strict=True))

    def _can_be_strict(self, notes: list[str]) -> bool:
        if has_tree(self.bundle.model):
            notes.append(
                "the strict network is not calibrated: its probabilities are at the ordinary one's temperature"
            )
            return True
        notes.append(f"{describe_routes(self.bundle.model)}, so there is no strict tree of it")
        return False

    def _strictness(self, ordinary: Output) -> Strictness:
        """What the ordinary network says, beside an explanation of the strict one."""
        predictions = of_output(self.bundle, ordinary)
        (prediction,) = each_image(self.bundle, predictions)
        seen = [] if predictions.presence is None else np.flatnonzero(self._seen(predictions.presence[0])).tolist()
        names = tuple(self.bundle.concepts[j] for j in seen)
        probability = prediction["probabilities"][prediction["label"]]
        return Strictness(prediction["label"], probability, names, self.statistics is not None, self.cost)

    def _traversals(self, output: Output, count: int, notes: list[str]) -> tuple[TraversalStrip, ...]:
        if not count:
            return ()
        try:
            if output.global_capsule is None:
                raise ValueError("the model has no global capsule to decode; give one with concepts")
            return traversal_strips(
                self.bundle.model, output.global_capsule[0], self.bundle.concepts, count, self.memory
            )
        except ValueError as error:
            notes.append(f"no traversals: {error}")
            return ()

    def _seen(self, presence: np.ndarray) -> np.ndarray:
        return presence > THRESHOLD if self.reasoning is None else self.reasoning.seen(presence)

    def _trace(self, batch: Tensor, notes: list[str]) -> RouteTree | None:
        """The trace of a model with routes, None without."""
        try:
            return trace(self.bundle.model, batch)
        except ValueError:
            gradients = "" if has_routes(self.bundle.model) else ", and maps come from gradients"
            notes.append(f"{describe_routes(self.bundle.model)}, so there is no parse tree{gradients}")
            return None

    def _concepts(
        self, maps: np.ndarray, presence: np.ndarray | None, truth: Mapping[str, bool], notes: list[str]
    ) -> tuple[SeenConcept, ...]:
        if presence is None:
            notes.append(NO_CONCEPTS)
            return ()
        if self.memory is None:
            notes.append("no training cases are shown: `parsecaps remember RUN` keeps them in the run")
        seen = self._seen(presence)
        return tuple(
            SeenConcept(name, float(presence[j]), bool(seen[j]), maps[j], truth.get(name), self._prototypes[j])
            for j, name in enumerate(self.bundle.concepts)
        )

    def _tree(self, path: AttributionPath, target: Target, shape: Shape | None) -> ParseTree:
        names = self.bundle.classes if target.about == "classes" else self.bundle.concepts
        preparation = None if shape is None else self.bundle.preparation
        return tree_of_path(path, target, name=names[target.index], preparation=preparation, original_shape=shape)

    def _reasons(self, output: Output, presence: np.ndarray | None, notes: list[str]) -> Reasons | None:
        if presence is None:
            return None
        if self.bundle.model.reasoning() is None:
            notes.append(NO_REASONING)
            return None
        reasoning = self.reasoning or self.reasoning_of(output).of_image(0)
        flip = counterfactual(reasoning, presence)
        of_model = self.reasoning is not None
        return Reasons(reasoning, presence, reasoning.contributions(presence), flip, of_model)


def calibration_notes(bundle: Bundle, risk: float | None = None) -> list[str]:
    """What to know of a model's probabilities, and of the part of an image that it looks at."""
    calibration, used = bundle.calibration, bundle.preparation.centre
    notes = [calibration.note, None if risk is None else calibration.threshold(risk).note]
    if used < 1:
        notes.append(
            f"the model looks at the middle of an image, {100 * used:.0f} % of each side; pictures show that part"
        )
    return [note for note in notes if note]


def load(run: Run | str | Path, device: str = "auto") -> Explainer:
    """The model of a run or its folder, of a saved model's folder, or on the hub, ready to predict and explain.

    On the Hugging Face hub it is called `hf://owner/name@revision`; without a revision, the newest is meant.
    `device` is auto (a GPU where there is one), cpu or cuda.
    """
    folder = run.folder if isinstance(run, Run) else run
    return Explainer(Bundle.load(folder, device))
