"""Whether the routes carry the decision: the measurements of `python -m benchmarks routes`.

A network is trained, and its twin whose couplings follow from place alone: same data, order, schedule and seed. Then
the couplings of the first are replaced on its test part: by uniform ones, and by each parent's strongest children.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parsecaps.config import Config, load_config
from parsecaps.nn.couplings import replace_couplings, strongest, uniform
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.predict import predict_cases
from parsecaps.run import Run
from parsecaps.training import Callbacks
from studies.parts import write_parts
from studies.routings import PLACE
from studies.runs import QUIET, train_or_resume

KEPT = (1, 2, 4)
PARTS_REMARK = "these are synthetic images, on which place alone may be enough with some seeds; give DATA for real ones"

UNIFORM_COSTS = 20.0  # points that uniform couplings must cost at least
CONTENT_COSTS = 2.0  # points that training without content must cost at least
STRONGEST_COSTS = 5.0  # points that keeping the most of `KEPT` may cost at most

# how the synthetic parts are learned in a minute or two; lines of `--set` may change them
PARTS_SETTINGS = (
    "data.val=0",
    "model.preset=tiny",
    "model.num_concepts=0",
    "augmentation=null",
    "training.epochs=4",
    "training.batch_size=32",
    "training.learning_rate=0.005",
    "training.class_balance=none",
)


@dataclass(frozen=True)
class Criterion:
    """One criterion: what it asks, the points measured, and whether it holds (None: not measured)."""

    name: str
    points: float | None
    holds: bool | None


@dataclass(frozen=True)
class RouteResult:
    """Accuracies of a run on its test part in percent; `prior_only` is that of the twin trained without content."""

    run: str
    seed: int
    epochs: int
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


def routes_config(
    data: str | None, out: Path, *, config: str | Path | None = None, settings: Sequence[str] = ()
) -> Config:
    """The settings of a run: those of any training on `data`; without it, of the parts, which are written to `out`."""
    if data is not None:
        return load_config(config, settings).change("data", path=data)
    chosen = load_config(config, [*PARTS_SETTINGS, *settings])
    return chosen.change("data", path=str(write_parts(out / "parts")))


def train_with_twin(
    config: Config, out: Path, *, twin: bool = True, callbacks: Callbacks = QUIET
) -> tuple[Run, Run | None]:
    """Train in `out/run`, and in `out/twin` the same network without content; what is there is not trained again."""
    run = train_or_resume(config, out / "run", callbacks)
    if not twin:
        return run, None
    return run, train_or_resume(without_content(config), out / "twin", callbacks)


def without_content(config: Config) -> Config:
    """The same configuration of a network whose couplings follow from place alone."""
    return config.change("model", settings={**config.model.settings, **PLACE})


def measure_run(
    folder: str | Path, twin: str | Path | None = None, *, log: Callable[[str], None] = lambda line: None
) -> RouteResult:
    """Score the test part of a run with other couplings; `twin` is the same run trained without content."""
    run = Run(folder)
    rows = [row for row in run.rows("test") if run.data.cases[row].label >= 0]
    if not rows:
        raise ValueError(f"{folder} has no test part to try other couplings on; train with data.test above 0")

    def accuracy(bundle: Bundle) -> float:
        predictions = predict_cases(bundle, run.data, run.prepared, rows)
        return 100 * float((predictions.logits.argmax(1) == predictions.label).mean())

    log("testing with other couplings")
    bundle = run.bundle
    whole = accuracy(bundle)
    with replace_couplings(bundle.model, uniform):
        evenly = accuracy(bundle)
    kept = {}
    for count in KEPT:
        with replace_couplings(bundle.model, strongest(count)):
            kept[count] = accuracy(bundle)
    return RouteResult(
        run=str(folder),
        seed=run.config.training.seed,
        epochs=run.about["epochs"],
        num_train=len(run.rows("train")),
        num_test=len(rows),
        accuracy=whole,
        prior_only=None if twin is None else accuracy(_twin(Run(twin), run)),
        uniform=evenly,
        strongest=kept,
    )


def _twin(twin: Run, run: Run) -> Bundle:
    """The model of a run that differs from another in nothing but that its couplings do not look at content."""
    if twin.config != without_content(run.config):
        change = ", ".join(f"model.settings.{name}={value}" for name, value in PLACE.items())
        raise ValueError(f"{twin.folder} is no twin of {run.folder}; train it alike, with {change}")
    return twin.bundle
