"""What a strict tree costs, as an audit has measured it, and what an explanation by it has to say of that."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsecaps.explain.case_memory import weights_digest
from parsecaps.metrics import Score
from parsecaps.metrics.comparison import Difference
from parsecaps.prediction.bundle import Bundle

AUDIT_FILE = "audit.json"


@dataclass(frozen=True)
class Paired:
    """A score of both networks on the same cases, each with its interval, and their difference with its own."""

    ordinary: Score
    strict: Score
    difference: Difference


@dataclass(frozen=True)
class StrictCost:
    """What the strict network scores beside the ordinary one; None where labels or concepts are not known.

    `auroc` is the mean over the concepts. `adjusted` says that the strict network had batch statistics of its own,
    `model` is the digest of the weights that were measured.
    """

    accuracy: Paired | None
    auroc: Paired | None
    adjusted: bool
    model: str

    def sentence(self) -> str:
        """The cost in words."""
        parts = [
            f"{name} {each.strict.value:{form}} instead of {each.ordinary.value:{form}}"
            + _interval(each.difference, form)
            for name, each, form in (("accuracy", self.accuracy, ".1%"), ("mean concept AUROC", self.auroc, ".3f"))
            if each is not None and each.difference.difference is not None
        ]
        known = self.accuracy or self.auroc
        if not parts or known is None:
            return "What strictness costs could not be measured: neither labels nor concepts are known."
        return f"Measured on {known.strict.n:,} cases, the strict network has {' and '.join(parts)}."

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "StrictCost":
        """What `dataclasses.asdict` gave, also after a journey through JSON."""
        accuracy, auroc = (None if each is None else _paired(each) for each in (stored["accuracy"], stored["auroc"]))
        return cls(accuracy, auroc, bool(stored["adjusted"]), str(stored["model"]))


@dataclass(frozen=True)
class Strictness:
    """That an explanation is of the strict network, beside what the ordinary one says of the same image."""

    diagnosis: str
    probability: float
    seen: tuple[str, ...]
    adjusted: bool
    cost: StrictCost | None

    def sentences(self, diagnosis: str, seen: Sequence[str]) -> list[str]:
        """What a reader must know, beside the `diagnosis` and the concepts that the strict network sees."""
        same = "the same" if diagnosis == self.diagnosis else f"otherwise: {self.diagnosis}"
        ordinary = f"The ordinary network says {same} ({self.probability:.1%})"
        only = [name for name in self.seen if name not in seen]
        extra = [name for name in seen if name not in self.seen]
        if only:
            ordinary += f", and also sees {', '.join(only)}"
        if extra:
            ordinary += f", and does not see {', '.join(extra)}"
        lines = ["Strict tree: each capsule keeps the one parent that chose it most.", f"{ordinary}."]
        if not self.adjusted:
            lines.append(
                "Its batch statistics are those of the ordinary network: `parsecaps remember RUN` adjusts them."
            )
        unknown = "What strictness costs was not measured for it: `parsecaps audit RUN` does."
        return [*lines, unknown if self.cost is None else self.cost.sentence()]


def load_cost(folder: str | Path, bundle: Bundle, adjusted: bool) -> StrictCost | None:
    """What an audit of this very model measured, from `audit.json` beside the model or in its run; None without one."""
    for place in (Path(folder), Path(folder).parent):
        try:
            stored = json.loads((place / AUDIT_FILE).read_text(encoding="utf-8"))
            cost = StrictCost.from_dict(stored["strict"])
        except (OSError, KeyError, TypeError, ValueError):  # no audit, an older one, or of a model without routes
            continue
        if cost.model == weights_digest(bundle.model) and cost.adjusted == adjusted:
            return cost
    return None


def _paired(stored: Mapping[str, Any]) -> Paired:
    return Paired(Score(**stored["ordinary"]), Score(**stored["strict"]), Difference(**stored["difference"]))


def _interval(difference: Difference, form: str) -> str:
    if difference.low is None or difference.high is None:
        return ""
    return f" (95 % interval of the difference {difference.low:+{form}} to {difference.high:+{form}})"
