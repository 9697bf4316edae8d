"""The audit of a trained run, or of a saved model, with everything it needs found from their folders."""

from collections.abc import Sequence
from pathlib import Path

from parsecaps.audit.audit import LIMIT, Audit, Progress, audit
from parsecaps.data.cache import prepare_all
from parsecaps.data.cases import DataSet
from parsecaps.data.sources import open_data
from parsecaps.explain.case_memory import weights_digest
from parsecaps.explain.map_makers import map_makers, routes_of
from parsecaps.explain.strict_tree import load_statistics
from parsecaps.prediction.bundle import Bundle, find_bundle
from parsecaps.prediction.predict import predict_cases
from parsecaps.prediction.predictions import Predictions
from parsecaps.run import Run
from parsecaps.training.choose import absolute


def audit_model(
    model: str | Path,
    data: str | None = None,
    *,
    limit: int = LIMIT,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> Audit:
    """Audit the model of a run on the test part of its own data, or on all cases of other `data`.

    A saved model outside of a run needs `data`, and does without its training cases.
    """
    run, bundle = Run(model), Bundle.load(model)
    train: Predictions | None = None
    tested: Sequence[int] | None = None
    own: DataSet | None = None
    if run.is_there:
        own = run.data
        train = _predict(bundle, own, run.rows("train"), progress)
        if data is None or absolute(data) == run.config.data.path:
            tested = run.rows("test")
            if not tested:
                raise ValueError(f"{model} has no test part to audit on; give other data")
    elif data is None:
        raise ValueError(f"{model} is not a run, so it has no data of its own; name the data to audit on")
    cases = own if tested is not None and own is not None else open_data(str(data))
    prepared = prepare_all(cases, bundle.preparation, skip_bad=True)
    good = set(prepared.good)
    rows = [row for row in (range(len(cases)) if tested is None else tested) if row in good]
    return audit(
        bundle,
        cases,
        prepared,
        rows,
        maps=map_makers(bundle.model),
        routes=routes_of(bundle.model),
        train=train,
        statistics=load_statistics(find_bundle(model), weights_digest(bundle.model)),
        limit=limit,
        resamples=resamples,
        seed=seed,
        progress=progress,
    )


def _predict(bundle: Bundle, data: DataSet, rows: Sequence[int], progress: Progress) -> Predictions:
    prepared = prepare_all(data, bundle.preparation, skip_bad=True)
    good = set(prepared.good)
    usable = [row for row in rows if row in good]
    return predict_cases(
        bundle, data, prepared, usable, progress=lambda done, total: progress("training cases", done, total)
    )
