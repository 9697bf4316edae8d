"""A trained model, ready to answer: calibrated probabilities, concepts, and the classes it cannot rule out."""

from dataclasses import dataclass
from html import escape
from pathlib import Path

from parsecaps.bundle import Bundle, find_bundle
from parsecaps.evaluation.archive import Item, predict_items
from parsecaps.evaluation.deciding import load_decision
from parsecaps.explain.explainer import NUM_TREES, Explainer
from parsecaps.explain.explanation import Explanation
from parsecaps.explain.map_methods import ROUTES
from parsecaps.pipeline.cross_validate import CrossValidation
from parsecaps.pipeline.evaluate import folder_of
from parsecaps.training.fit import Run


@dataclass(frozen=True, repr=False)
class Prediction:
    """What a model says of an image: its class, the probability of each, and how present each concept is.

    With a risk, `possible` are the classes that cannot be ruled out, and `abstain` is true unless that is one class;
    both are None without.
    """

    image: str
    label: str
    probabilities: dict[str, float]
    concepts: dict[str, float]
    possible: list[str] | None = None
    abstain: bool | None = None

    def __repr__(self) -> str:
        lines = [f"{self.image}: {self.label}"]
        if self.abstain:
            lines[0] += f", but abstains: {' or '.join(self.possible or [])} cannot be ruled out"
        lines += [f"  {name} {value:.1%}" for name, value in _falling(self.probabilities)]
        if self.concepts:
            lines += ["  concepts: " + ", ".join(f"{name} {value:.2f}" for name, value in _falling(self.concepts))]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


@dataclass(frozen=True, repr=False)
class Model:
    """A bundle and its folder, which has what it was calibrated by."""

    bundle: Bundle
    folder: Path

    def __repr__(self) -> str:
        kind, side = type(self.bundle.model).__name__, self.bundle.preparation.size
        concepts = f"; concepts: {', '.join(self.bundle.concepts)}" if self.bundle.concepts else ""
        return f"{kind} of {self.folder}, {side} px; classes: {', '.join(self.bundle.classes)}{concepts}"

    def predict(self, image: str | Path, *, frame: int | None = None, risk: float | None = None) -> Prediction:
        """What the model says of an image file, the same as `parsecaps predict` writes.

        With a `risk`, as in 0.1, it abstains so that at most this share of the sets leaves out the truth.
        """
        decision, _ = load_decision(self.folder, risk)
        (row,) = predict_items(self.bundle, [Item(Path(image), frame)], decision)
        if row["error"]:
            raise ValueError(row["error"])
        return Prediction(str(image), row["class"], row["probabilities"], row["concepts"], row["set"], row["abstain"])

    def explain(
        self,
        image: str | Path,
        *,
        frame: int | None = None,
        risk: float | None = None,
        method: str = ROUTES,
        num_trees: int = NUM_TREES,
        strict: bool = False,
        traversals: int = 0,
    ) -> Explanation:
        """What the model says of an image file, with its reasons, the same as `parsecaps explain` writes."""
        explainer = Explainer.load(self.folder, self.bundle, risk=risk)
        return explainer.explain_file(
            image, frame, method=method, num_trees=num_trees, strict=strict, traversals=traversals
        )


def load(run: Run | CrossValidation | str | Path) -> Model:
    """The model of a run, of a run's folder, or of a folder that holds a saved model."""
    folder = find_bundle(folder_of(run))
    return Model(Bundle.load(folder), folder)


def _falling(values: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(values.items(), key=lambda item: -item[1])
