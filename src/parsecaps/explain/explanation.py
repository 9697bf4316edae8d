"""What a model says of one image, with its reasons: all that a page, a file or a person needs."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from parsecaps.explain.case_memory import Prototype, SimilarCase
from parsecaps.explain.counterfactual import Counterfactual
from parsecaps.explain.intervention import ConceptReasoning
from parsecaps.explain.parse_tree import ParseTree
from parsecaps.explain.strict_tree import Strictness
from parsecaps.explain.traversal import TraversalStrip
from parsecaps.prediction.files import ImageFile


@dataclass(frozen=True, eq=False)
class SeenConcept:
    """One concept in one image: how present it is, whether that counts as seen, and where.

    `truth` is what is known of the image, None where it is not. `prototypes` are the training cases that show the
    concept most, the same for every image.

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

    `of_model`: the reasoning is that of every image, and not of this one alone.

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
        """The counterfactual in words."""
        if self.flip is None:
            return "No change of its concepts alone would change the diagnosis."
        parts = [f"{name} were {'present' if there else 'absent'}" for name, there in self.flip.changes.items()]
        listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
        chance = self.flip.after[self.reasoning.classes.index(self.flip.diagnosis)]
        return f"The diagnosis would be {self.flip.diagnosis} ({chance:.1%}) if {listed}."


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """One image, explained by a model, of which `model` is the class.

    `probabilities` are calibrated where the model is. With a risk, `possible` are the classes that cannot be ruled out
    and `abstain` is true unless that is one class; both are None without. `class_map` is where the reasons for the
    diagnosis were seen, by the same `method` as the maps of the concepts. `trees` are for the diagnosis, then for the
    most present concepts. `pictures` are JPEG files of the known cases, by their row in the memory. `notes` say what
    cannot be given, and why. `truth` is the known class, None where it is not known. `strict` is there where all of
    this is of the strict network, except for similar cases. `traversals` are pictures of the decoder. `source` is the
    file that the image was read from, None where there is none. `residual` is what the shares of the worst target and
    layer miss of that target's change (`AttributionPath.residual`), None without a path.

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

    @property
    def probability(self) -> float:
        """That of the diagnosis."""
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
        if self.reasons is not None:
            lines.append(f"  {self.reasons.sentence()}")
        lines += [f"  {line}" for line in self.strict_lines]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])
