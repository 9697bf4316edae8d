"""Whether the routes carry the decision of a trained run, on the test part of its own data."""

from collections.abc import Callable
from pathlib import Path

from parsecaps.training.run_folder import RunFolder

from parsecaps.data.cache import prepare_all
from parsecaps.data.sources import open_data
from parsecaps.data.splits import rows_of
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.predict import predict_cases
from studies.routes import KEPT, RouteResult, with_other_couplings


def measure_run(
    folder: str | Path, twin: str | Path | None = None, *, log: Callable[[str], None] = lambda line: None
) -> RouteResult:
    """Score the test part again with other couplings; `twin` is the same run trained without content."""
    run = RunFolder(Path(folder))
    config = run.read_config()
    data = open_data(config.data.path, config.data.source)
    division = run.read_division(data)
    rows = [row for row in rows_of(division, "test") if data.cases[row].label >= 0]
    if not rows:
        raise ValueError(f"{folder} has no test part to try other couplings on; train with data.test above 0")
    bundle = Bundle.load(run.bundle)
    prepared = prepare_all(data, bundle.preparation, skip_bad=config.data.skip_bad)

    def accuracy(of: Bundle) -> float:
        said = predict_cases(of, data, prepared, rows)
        return 100 * float((said.logits.argmax(1) == said.label).mean())

    log("testing with other couplings")
    whole, scores = accuracy(bundle), with_other_couplings(bundle.model, lambda: accuracy(bundle))
    return RouteResult(
        task=str(folder),
        seed=config.training.seed,
        epochs=run.read_about()["epochs"],
        num_train=len(rows_of(division, "train")),
        num_test=len(rows),
        accuracy=whole,
        prior_only=None if twin is None else accuracy(_twin(RunFolder(Path(twin)), run)),
        uniform=scores["uniform"],
        strongest={count: scores[f"strongest_{count}"] for count in KEPT},
    )


def _twin(twin: RunFolder, run: RunFolder) -> Bundle:
    """The model of a run that differs from another in nothing but that its couplings do not look at content."""
    config, other = run.read_config(), twin.read_config()
    if other != config.change("model", settings={**config.model.settings, "content": False}):
        raise ValueError(f"{twin.path} is no twin of {run.path}; train it alike with model.settings.content=false")
    return Bundle.load(twin.bundle)
