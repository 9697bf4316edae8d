"""Whether the routes carry the decision: the measurements of `parsecaps bench routes`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from parsecaps.models.parsecaps import ParseCaps
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.couplings import replace_couplings, strongest, uniform
from studies.route_tasks import RouteTask
from studies.short_training import Split, accuracy, train

KEPT = (1, 2, 4)

UNIFORM_COSTS = 20.0  # points that uniform couplings must cost at least
CONTENT_COSTS = 2.0  # points that training without content must cost at least
STRONGEST_COSTS = 5.0  # points that keeping the most of `KEPT` may cost at most


@dataclass(frozen=True)
class Criterion:
    """One criterion: what it asks, the points measured, and whether it holds (None: not measured)."""

    name: str
    points: float | None
    holds: bool | None


@dataclass(frozen=True)
class RouteResult:
    """Accuracies on the test part in percent; `prior_only` is that of the twin trained without content."""

    task: str
    seed: int
    epochs: int | None
    num_train: int
    num_test: int
    accuracy: float
    prior_only: float | None
    uniform: float
    strongest: dict[int, float]

    @property
    def criteria(self) -> list[Criterion]:
        """The three criteria, each judged by the points lost against `accuracy`."""
        most = max(self.strongest)
        uniform_cost = self.accuracy - self.uniform
        strongest_cost = self.accuracy - self.strongest[most]
        content_cost = None if self.prior_only is None else self.accuracy - self.prior_only
        return [
            Criterion(
                f"uniform couplings at test time cost at least {UNIFORM_COSTS:g} points",
                uniform_cost,
                uniform_cost >= UNIFORM_COSTS,
            ),
            Criterion(
                f"training without content costs at least {CONTENT_COSTS:g} points",
                content_cost,
                None if content_cost is None else content_cost >= CONTENT_COSTS,
            ),
            Criterion(
                f"the strongest {most} children per parent alone cost at most {STRONGEST_COSTS:g} points",
                strongest_cost,
                strongest_cost <= STRONGEST_COSTS,
            ),
        ]


def route_scores(model: PretrainedModel, split: Split) -> dict[str, float]:
    """Accuracy with every coupling made uniform, and with all but each parent's strongest children cut, in percent."""
    return with_other_couplings(model, lambda: accuracy(model, split))


def with_other_couplings(model: PretrainedModel, measure: Callable[[], float]) -> dict[str, float]:
    """What `measure` gives with uniform couplings, and with each parent's strongest 1, 2 and 4 children alone."""
    scores = {}
    with replace_couplings(model, uniform):
        scores["uniform"] = measure()
    for count in KEPT:
        with replace_couplings(model, strongest(count)):
            scores[f"strongest_{count}"] = measure()
    return scores


def measure_routes(
    task: RouteTask,
    *,
    seed: int = 0,
    model: PretrainedModel | None = None,
    prior_only: bool = True,
    log: Callable[[str], None] = lambda line: None,
) -> tuple[RouteResult, PretrainedModel]:
    """Train on the task with and without content, everything else equal, and test with other couplings.

    A `model` that is given is tested as it is; its twin without content is then not trained, for nothing says how the
    model was. Gives the result and the model it is about.
    """
    given = model is not None
    if model is None:
        model = _trained(task, seed, log, "with content", content=True)
    _check_fits(model, task)
    log("testing with other couplings")
    whole, scores = accuracy(model, task.split), route_scores(model, task.split)
    twin_accuracy = None
    if prior_only and not given:
        twin_accuracy = accuracy(_trained(task, seed, log, "prior only", content=False), task.split)
    result = RouteResult(
        task=task.name,
        seed=seed,
        epochs=None if given else task.schedule.epochs,
        num_train=0 if given else len(task.split.train),
        num_test=len(task.split.test),
        accuracy=whole,
        prior_only=twin_accuracy,
        uniform=scores["uniform"],
        strongest={count: scores[f"strongest_{count}"] for count in KEPT},
    )
    return result, model


def _trained(task: RouteTask, seed: int, log: Callable[[str], None], what: str, **changes: Any) -> PretrainedModel:
    torch.manual_seed(seed)
    model = ParseCaps.from_preset(
        task.preset,
        num_classes=len(task.classes),
        num_concepts=0,
        image_size=task.split.image.shape[-1],
        in_channels=task.split.image.shape[1],
        **changes,
    )
    train(
        model,
        task.split,
        task.schedule,
        seed=seed,
        augmentation=task.augmentation,
        log=lambda line: log(f"{what}, {line}"),
    )
    return model


def _check_fits(model: PretrainedModel, task: RouteTask) -> None:
    if model.num_classes != len(task.classes):
        raise ValueError(
            f"the model has {model.num_classes} classes and the task {len(task.classes)}; give its own data"
        )
