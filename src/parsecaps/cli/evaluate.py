"""`parsecaps evaluate`: the scores of trained runs, and how they compare."""

from pathlib import Path
from typing import Annotated, Any

from parsecaps.cli.command import Given, argument, command, option
from parsecaps.cli.output import check_writable, console, display, write_json
from parsecaps.cli.progress import free_threads, showing_stages
from parsecaps.config import EvaluateConfig


@command(EvaluateConfig, "part", "data", "resamples", "views", "device")
def evaluate(
    runs: Annotated[list[Path], argument("RUN...", "One run or several, or cross-validations, of parsecaps train.")],
    given: Given[EvaluateConfig],
    page: Annotated[Path | None, option("HTML", "Where to write the page; in the first run if left out.")] = None,
) -> dict[str, Any]:
    """Score runs again, on other data too, and compare them.

    Each score has n and a 95 % interval over patients. Probabilities are calibrated on the validation part. A run alone
    on its own test part gets a new `scores.json`, `scores.html` and model card; anything else goes to files of other
    names. Several runs are compared with the first on the same cases (McNemar's test, bootstrap of the differences),
    and their ensemble is scored. The folds of a cross-validation count as one, pooled.

    **Examples**

    - `parsecaps evaluate runs/cases-1`
    - `parsecaps evaluate runs/tree runs/cnn --page both.html`
    - `parsecaps evaluate runs/cases-1 --data other-hospital.csv`
    - `parsecaps evaluate runs/cases-1 --set risks=[0.01,0.05] --set resamples=5000`
    - `parsecaps evaluate runs/cases-1 --views 16`
    """
    check_writable(page)
    if len({run.resolve() for run in runs}) < len(runs):
        raise ValueError("the same run is given twice; give each once")
    from parsecaps.evaluation import compare_runs, write_results
    from parsecaps.files.writing import plain_name, refuse_links, write_text
    from parsecaps.run import Run

    refuse_links(runs[0])  # where the scores are written
    chosen = given.load()
    with free_threads(), showing_stages() as show:
        compared = compare_runs({str(run): run for run in runs}, chosen, show=show)
    stored, first = compared.as_dict(), str(runs[0])
    own = Run(runs[0])
    if len(runs) == 1 and chosen.data is None and chosen.part in ("auto", "test") and chosen.views == 1:
        write_results(own, compared.evaluations[first])
        numbers, written = own.scores_file, own.page_file
    else:
        part = chosen.part if chosen.data is None else plain_name(chosen.data)
        parts = ["scores" if len(runs) == 1 else "comparison", *([] if part in ("auto", "test") else [part])]
        stem = "-".join([*parts, *([f"{chosen.views}-views"] if chosen.views > 1 else [])])
        numbers, written = (runs[0] / f"{stem}.{ending}" for ending in ("json", "html"))
        write_json(numbers, stored)
    if page is not None or written != own.page_file:
        written = written if page is None else page
        write_text(written, compared.page(title=f"Scores: {', '.join(compared.scores)}"))
    for name, each in compared.scores.items():
        if len(runs) > 1:
            console().rule(name)
        display(*each.tables().values(), *each.lines(), *(f"note: {note}" for risk in each.sets for note in risk.notes))
    for (one, other), comparison in compared.comparisons.items():
        display(comparison.table(one, other), comparison.line(one, other))
    display(*(compared.ensemble.tables() if compared.ensemble else ()), f"scores: {numbers}", f"page: {written}")
    return stored
