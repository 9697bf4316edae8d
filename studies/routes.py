"""What a network loses with other couplings than its own: the measurements of `python -m benchmarks routes`.

A network is trained, and its twin whose couplings follow from place alone: same data, order, schedule and seed. Then
the couplings of the first are replaced on its test part, without training anew: by uniform ones, those of another
image, the mean over images (`audit.ablation`), and by each parent's strongest children.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parsecaps.audit.ablation import UNIFORM, compare_couplings
from parsecaps.config import Config, load_config
from parsecaps.data.case_set import CaseSet
from parsecaps.metrics import Comparison, compare
from parsecaps.metrics.bootstrap import few_patients
from parsecaps.metrics.predictions import Predictions
from parsecaps.model import Model
from parsecaps.models import find_model
from parsecaps.nn.couplings import strongest
from parsecaps.nn.recorder import replace_couplings
from parsecaps.nn.trunk import NO_TRUNK
from parsecaps.prediction.predict import predict_cases
from parsecaps.run import Run
from parsecaps.training import Callbacks
from studies.parts import write_parts
from studies.routings import PLACE
from studies.runs import QUIET, train_or_resume

KEPT = (1, 2, 4)
TWIN = "trained without content"
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


def strongest_of(count: int) -> str:
    """What a comparison with each parent's strongest children is called."""
    return f"strongest {count} per parent"


@dataclass(frozen=True)
class Criterion:
    """One criterion: what it asks, the points measured, and whether it holds (None: not measured)."""

    name: str
    points: float | None
    holds: bool | None


@dataclass(frozen=True)
class RouteResult:
    """A run on its test part as it is, compared with other couplings and, if there is one, with its twin."""

    run: str
    seed: int
    epochs: int
    num_train: int
    num_test: int
    compared: dict[str, Comparison]

    @property
    def notes(self) -> list[str]:
        """What to know of the intervals."""
        return few_patients(self.compared[UNIFORM].patients)

    def accuracy(self, name: str) -> float:
        """With these couplings, in per cent."""
        return 100 * (self.compared[name].differences["accuracy"].second or 0)

    def cost(self, name: str) -> float | None:
        """The points of accuracy that these couplings cost; None where they were not measured."""
        if name not in self.compared:
            return None
        return round(-100 * (self.compared[name].differences["accuracy"].difference or 0), 9)

    @property
    def criteria(self) -> list[Criterion]:
        """The three criteria, each judged by the points lost."""
        uniform, twin, most = (self.cost(name) for name in (UNIFORM, TWIN, strongest_of(max(KEPT))))
        assert uniform is not None
        assert most is not None
        return [
            Criterion(
                f"uniform couplings at test time cost at least {UNIFORM_COSTS:g} points",
                uniform,
                uniform >= UNIFORM_COSTS,
            ),
            Criterion(
                f"training without content costs at least {CONTENT_COSTS:g} points",
                twin,
                None if twin is None else twin >= CONTENT_COSTS,
            ),
            Criterion(
                f"the strongest {max(KEPT)} children per parent alone cost at most {STRONGEST_COSTS:g} points",
                most,
                most <= STRONGEST_COSTS,
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
    """The same configuration of a network whose couplings follow from place alone, so without a context."""
    settings = config.model.settings
    return config.change(
        "model", settings={**settings, **PLACE, **({"context": NO_TRUNK} if _has_context(config) else {})}
    )


def _has_context(config: Config) -> bool:
    preset = find_model(config.model.kind).presets.get(config.model.preset, {})
    found: str = config.model.settings.get("context", preset.get("context", NO_TRUNK))
    return found != NO_TRUNK


def measure_run(
    folder: str | Path, twin: str | Path | None = None, *, log: Callable[[str], None] = lambda line: None
) -> RouteResult:
    """Score the test part of a run with other couplings; `twin` is the same run trained without content."""
    run = Run(folder)
    rows = [row for row in run.rows("test") if run.data.cases[row].label >= 0]
    if not rows:
        raise ValueError(f"{folder} has no test part to try other couplings on; train with data.test above 0")

    def predict(model: Model) -> Predictions:
        return predict_cases(model, CaseSet(run.data, run.prepared, rows))

    log("testing with other couplings")
    model = run.model
    whole = predict(model)
    compared = {} if twin is None else {TWIN: compare(whole, predict(_twin(Run(twin), run)))}
    compared |= compare_couplings(model, CaseSet(run.data, run.prepared, rows), whole)
    for count in KEPT:
        with replace_couplings(model.network, strongest(count)):
            compared[strongest_of(count)] = compare(whole, predict(model))
    return RouteResult(
        run=str(folder),
        seed=run.config.training.seed,
        epochs=run.about["epochs"],
        num_train=len(run.rows("train")),
        num_test=len(rows),
        compared=compared,
    )


def _twin(twin: Run, run: Run) -> Model:
    """The model of a run that differs from another in nothing but that its couplings do not look at content."""
    if twin.config != without_content(run.config):
        change = ", ".join(f"model.settings.{name}={value}" for name, value in PLACE.items())
        raise ValueError(f"{twin.folder} is no twin of {run.folder}; train it alike, with {change}")
    return twin.model
