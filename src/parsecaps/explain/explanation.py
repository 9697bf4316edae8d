"""From a model and an image to an explanation: whatever the model can give, and what it cannot, and why."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from torch import Tensor

from parsecaps.config import ExplainConfig
from parsecaps.data.reading import prepare_image
from parsecaps.explain.attribution import MAP_METHODS, ROUTES
from parsecaps.explain.attribution_path import AttributionPath, Target, describe_routes, has_routes, has_tree, trace
from parsecaps.explain.case_memory import Prototype, SimilarCase, similar
from parsecaps.explain.context import describe_choice
from parsecaps.explain.intervention import ConceptReasoning, Counterfactual, counterfactual
from parsecaps.explain.parse_tree import ParseTree, parse_tree
from parsecaps.explain.route_maps import route_maps
from parsecaps.explain.strict_tree import Strictness, strict_network
from parsecaps.explain.traversal import TraversalStrip, traversal_strips
from parsecaps.metrics import THRESHOLD
from parsecaps.model import Model
from parsecaps.nn.routes import RouteTree
from parsecaps.prediction.files import ImageFile
from parsecaps.prediction.predict import answer, each_image, of_output
from parsecaps.types import Output


@dataclass(frozen=True, eq=False)
class SeenConcept:
    """One concept in one image: how present it is, whether that counts as seen, where, and in what training cases.

    Shapes:
        - map: (size, size), not negative
    """

    name: str
    presence: float
    seen: bool
    map: np.ndarray
    truth: bool | None = None
    prototypes: tuple[Prototype, ...] = ()


@dataclass(frozen=True, eq=False)
class Reasons:
    """How the concepts add up to the diagnosis (`head="bottleneck"`), and the fewest of them that would change it.

    Shapes:
        - presence: (m,); contributions: (K, m), which with the bias (K,) sum to the logits
    """

    reasoning: ConceptReasoning
    presence: np.ndarray
    contributions: np.ndarray
    flip: Counterfactual | None
    of_model: bool = True

    def what_if(self, changes: Mapping[str, bool]) -> dict[str, float]:
        """The probability of each class with some concepts set to present (True) or absent (False), by name."""
        changed = self.reasoning.change(self.presence, changes)
        return dict(zip(self.reasoning.classes, self.reasoning.probabilities(changed).tolist(), strict=True))

    def sentence(self) -> str:
        if self.flip is None:
            return "No change of its concepts alone would change the diagnosis."
        parts = [f"{name} were {'present' if there else 'absent'}" for name, there in self.flip.changes.items()]
        listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
        chance = self.flip.after[self.reasoning.classes.index(self.flip.diagnosis)]
        return f"The diagnosis would be {self.flip.diagnosis} ({chance:.1%}) if {listed}."


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """One image, explained by a model, of which `model` is the class; None is what does not apply or is not known.

    `probabilities` are calibrated where the model is. With a risk, `possible` are the classes that cannot be ruled out
    and `abstain` is true unless that is one class. `class_map` is where the reasons for the diagnosis were seen, by the
    same `method` as the maps of the concepts. `trees` are for the diagnosis, then for the most present concepts.
    `pictures` are JPEG files of the known cases, by their row in the memory. `notes` say what cannot be given, and why.
    `truth` is the known class. With `strict`, all but similar cases are of the strict network. `residual` is that of
    the worst target (`AttributionPath.residual`). `choice` says what a place of a map has seen (`describe_choice`).

    Shapes:
        - image: (channels, size, size) in [0, 1], as the model saw it
        - class_map: (size, size), not negative
    """

    name: str
    model: str
    image: Tensor
    diagnosis: str
    probabilities: dict[str, float]
    possible: list[str] | None
    abstain: bool | None
    method: str
    class_map: np.ndarray
    concepts: tuple[SeenConcept, ...]
    trees: tuple[ParseTree, ...]
    similar: tuple[SimilarCase, ...]
    pictures: dict[int, bytes]
    reasons: Reasons | None
    notes: tuple[str, ...]
    truth: str | None = None
    strict: Strictness | None = None
    traversals: tuple[TraversalStrip, ...] = ()
    source: ImageFile | None = None
    residual: float | None = None
    choice: str | None = None

    @property
    def probability(self) -> float:
        return self.probabilities[self.diagnosis]

    @property
    def strict_lines(self) -> list[str]:
        """What a reader of the strict network's explanation must know; nothing for the ordinary one."""
        seen = [each.name for each in self.concepts if each.seen]
        return [] if self.strict is None else self.strict.sentences(self.diagnosis, seen)

    def __repr__(self) -> str:
        lines = [f"{self.name}: {self.diagnosis} {self.probability:.1%}"]
        if self.abstain:
            lines[0] += f", but abstains: {' or '.join(self.possible or [])} cannot be ruled out"
        seen = sorted((each for each in self.concepts if each.seen), key=lambda each: -each.presence)
        if self.concepts:
            lines += ["  seen: " + (", ".join(f"{each.name} {each.presence:.2f}" for each in seen) or "no concept")]
        lines += [f"  {tree.name}: {tree.share:.0%} of the evidence in the tree shown" for tree in self.trees]
        if self.residual is not None:
            lines.append(f"  shares add up to within {self.residual:.1%}")
        lines += [f"  {self.choice}"] if self.choice else []
        if self.reasons is not None:
            lines.append(f"  {self.reasons.sentence()}")
        lines += [f"  {line}" for line in self.strict_lines]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


NO_CONCEPTS = "the model was trained without concepts, so it can name none"
NO_REASONING = (
    "the diagnosis is computed beside the concepts, not from them, so no contributions can be given and no concept can "
    "be corrected; train with --set model.head=bottleneck for that"
)


@dataclass(frozen=True)
class Subject:
    """What is known of an image that is to be explained; `shape` (height, width) is that before its preparation."""

    name: str = "image"
    truth: str | None = None
    concepts: Mapping[str, bool] = field(default_factory=dict)
    shape: tuple[int, int] | None = None
    source: ImageFile | None = None


def explain_file(model: Model, file: ImageFile, settings: ExplainConfig, subject: Subject | None = None) -> Explanation:
    """Explain an image file; regions of the parse trees are also given in its own pixels."""
    prepare = model.preparation.prepare
    image, (height, width) = prepare_image(file.path, file.frame, lambda raw: (prepare(raw), raw.pixels.shape[:2]))
    known = replace(subject or Subject(file.name), shape=(height, width), source=file)
    return explain(model, image, settings, known)


def explain(model: Model, image: Tensor, settings: ExplainConfig, subject: Subject = Subject()) -> Explanation:  # noqa: B008
    """Explain an image (channels, size, size) in [0, 1] that was prepared as the model's `preparation` says.

    A network without routes gets Grad-CAM instead of the method "routes", and one without cells no trees.
    """
    method, risk = settings.method, settings.risk
    if settings.strict and risk is not None:
        raise ValueError("a risk is promised for the ordinary network only; leave out --risk, or --strict")
    notes = calibration_notes(model, risk)
    batch, network, memory = image.unsqueeze(0).to(model.device), model.network.eval(), model.memory
    strict = settings.strict and _can_be_strict(model, notes)
    with strict_network(network, model.statistics) if strict else nullcontext():
        traced = _trace(model, batch, notes)
        output = answer(model, batch) if traced is None else traced.output
        predictions = of_output(model, output, [subject.name])
        (prediction,) = each_image(model, predictions, risk)
        best, presence = model.classes.index(prediction["label"]), predictions.presence
        concepts = [] if presence is None else [Target("concepts", j) for j in range(len(model.concepts))]
        targets = [*concepts, Target("classes", best)]
        path = AttributionPath(traced) if traced and (method == ROUTES or settings.trees > 0) else None
        if method == ROUTES and not has_routes(network):
            method = "grad-cam"
        along = path if method == ROUTES else None
        maps = MAP_METHODS[method](network, batch, targets) if along is None else route_maps(along, targets)
        trees: list[ParseTree] = []
        missed: list[float] = []
        if path is not None:
            most = [] if presence is None else [concepts[j] for j in np.argsort(-presence[0], kind="stable")]
            shown = [targets[-1], *most][: settings.trees]
            names = {"classes": model.classes, "concepts": model.concepts}
            where = None if subject.shape is None else model.preparation
            tree = partial(parse_tree, network, batch, preparation=where, original_shape=subject.shape, path=path)
            trees = [tree(about=about, index=index, name=names[about][index]) for about, index in shown]
            missed = [path.residual(target).max().item() for target in (targets if method == ROUTES else shown)]
    pictures = maps[0].detach().cpu().float().numpy()
    ordinary = answer(model, batch) if strict else output
    near, known_pictures = [], {}
    if memory is not None:
        if ordinary.concept_capsules is not None:
            near = similar(memory, ordinary.concept_capsules[0].float().cpu().numpy())
        known_pictures = {**memory.prototype_pictures, **memory.pictures([each.case.row for each in near])}
    known = None if presence is None else presence[0]
    return Explanation(
        name=subject.name,
        model=type(network).__name__,
        image=image,
        diagnosis=prediction["label"],
        probabilities=prediction["probabilities"],
        possible=prediction["possible"],
        abstain=prediction["abstain"],
        method=method,
        class_map=pictures[-1],
        concepts=_concepts(model, pictures[:-1], known, subject.concepts, notes),
        trees=tuple(trees),
        similar=tuple(near),
        pictures=known_pictures,
        traversals=_traversals(model, output, settings.traversals, notes),
        reasons=_reasons(model, output, known, notes),
        notes=tuple(notes),
        truth=subject.truth,
        strict=_strictness(model, ordinary) if strict else None,
        source=subject.source,
        residual=max(missed, default=None),
        choice=describe_choice(model),
    )


def calibration_notes(model: Model, risk: float | None = None) -> list[str]:
    """What to know of a model's probabilities, and of the part of an image that it looks at."""
    calibration, used = model.calibration, model.preparation.centre
    notes = [calibration.note, None if risk is None else calibration.threshold(risk).note]
    if used < 1:
        notes.append(
            f"the model looks at the middle of an image, {100 * used:.0f} % of each side; pictures show that part"
        )
    return [note for note in notes if note]


def _can_be_strict(model: Model, notes: list[str]) -> bool:
    if has_tree(model.network):
        notes.append("the strict network is not calibrated: its probabilities are at the ordinary one's temperature")
        return True
    notes.append(f"{describe_routes(model.network)}, so there is no strict tree of it")
    return False


def _strictness(model: Model, ordinary: Output) -> Strictness:
    predictions = of_output(model, ordinary)
    (prediction,) = each_image(model, predictions)
    seen = [] if predictions.presence is None else np.flatnonzero(_seen(model, predictions.presence[0])).tolist()
    names = tuple(model.concepts[j] for j in seen)
    probability = prediction["probabilities"][prediction["label"]]
    return Strictness(prediction["label"], probability, names, model.statistics is not None, model.strict_cost)


def _traversals(model: Model, output: Output, count: int, notes: list[str]) -> tuple[TraversalStrip, ...]:
    if not count:
        return ()
    try:
        if output.global_capsule is None:
            raise ValueError("the model has no global capsule to decode; give one with concepts")
        return traversal_strips(model.network, output.global_capsule[0], model.concepts, count, model.memory)
    except ValueError as error:
        notes.append(f"no traversals: {error}")
        return ()


def _seen(model: Model, presence: np.ndarray) -> np.ndarray:
    return presence > THRESHOLD if model.reasoning is None else model.reasoning.seen(presence)


def _trace(model: Model, batch: Tensor, notes: list[str]) -> RouteTree | None:
    try:
        return trace(model.network, batch)
    except ValueError:
        gradients = "" if has_routes(model.network) else ", and maps come from gradients"
        notes.append(f"{describe_routes(model.network)}, so there is no parse tree{gradients}")
        return None


def _concepts(
    model: Model, maps: np.ndarray, presence: np.ndarray | None, truth: Mapping[str, bool], notes: list[str]
) -> tuple[SeenConcept, ...]:
    if presence is None:
        notes.append(NO_CONCEPTS)
        return ()
    if model.memory is None:
        notes.append("no training cases are shown: `parsecaps remember RUN` keeps them in the run")
    seen = _seen(model, presence)
    prototypes = [()] * len(model.concepts) if model.memory is None else model.memory.prototypes
    return tuple(
        SeenConcept(name, float(presence[j]), bool(seen[j]), maps[j], truth.get(name), prototypes[j])
        for j, name in enumerate(model.concepts)
    )


def _reasons(model: Model, output: Output, presence: np.ndarray | None, notes: list[str]) -> Reasons | None:
    if presence is None:
        return None
    if model.network.reasoning() is None:
        notes.append(NO_REASONING)
        return None
    reasoning = model.reasoning or model.reasoning_of(output).of_image(0)
    flip = counterfactual(reasoning, presence)
    of_model = model.reasoning is not None
    return Reasons(reasoning, presence, reasoning.contributions(presence), flip, of_model)
