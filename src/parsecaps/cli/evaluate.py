"""`parsecaps evaluate`: the scores of trained runs, and how they compare."""

from pathlib import Path
from typing import Annotated

import typer

from parsecaps.cli.output import JsonFile, check_writable, console, one_line_errors, write_json


@one_line_errors
def evaluate(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="One run or several, trained by parsecaps train.")
    ],
    part: Annotated[str, typer.Option(help="The part of the run's data to score: test, val or train.")] = "test",
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="Score on all cases of other data, which must have the classes.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="HTML", help="Where to write the page; scores.html in the first run if left out."),
    ] = None,
    resamples: Annotated[int, typer.Option(help="Resamples of the patients behind the intervals.")] = 1000,
    json_file: JsonFile = None,
) -> None:
    """Score runs on the patients they never saw, each score with n and a 95 % interval over patients.

    The temperature of the probabilities is fitted on the validation part. With several runs, each is compared with the
    first on the same cases: McNemar's test, and a bootstrap of the differences. The first run's folder gets
    `scores.json` and `scores.html`.

    **Examples**

    `parsecaps evaluate runs/cases-1`

    `parsecaps evaluate runs/tree runs/cnn --page both.html`

    `parsecaps evaluate runs/cases-1 --data other-hospital.csv`
    """
    page = runs[0] / "scores.html" if page is None else page
    for path in (page, json_file):
        check_writable(path)
    if len(set(runs)) < len(runs):
        raise ValueError("the same run is given twice; give each once")
    from parsecaps.data.cases import SPLITS
    from parsecaps.evaluation.comparison import compare
    from parsecaps.evaluation.runs import evaluate_run
    from parsecaps.report.scores_page import scores_page
    from parsecaps.terminal_scores import comparison_lines, comparison_table, score_lines, score_tables

    chosen = next((name for name in SPLITS if name == part), None)
    if chosen is None:
        raise ValueError(f"part is {part!r}; choose one of {', '.join(SPLITS)}")
    with console(stderr=True).status("scoring"):
        results = {str(run): evaluate_run(run, part=chosen, data=data, resamples=resamples) for run in runs}
    first, *others = results
    comparisons = {
        (first, other): compare(results[first].predictions, results[other].predictions, resamples=resamples)
        for other in others
    }
    stored = {
        "runs": {
            name: {**result.scores.as_dict(), "notes": [*result.scores.notes, *result.notes]}
            for name, result in results.items()
        },
        "comparisons": [
            {"first": one, "second": other, **comparison.as_dict()} for (one, other), comparison in comparisons.items()
        ],
    }
    scores = {name: result.scores for name, result in results.items()}
    page.write_text(scores_page(scores, comparisons, title=f"Scores: {', '.join(results)}"), encoding="utf-8")
    write_json(runs[0] / "scores.json", stored)
    write_json(json_file, stored)
    out = console()
    for name, result in results.items():
        if len(results) > 1:
            out.rule(name)
        for table in score_tables(result.scores):
            out.print(table)
        for line in [*score_lines(result.scores), *(f"note: {note}" for note in result.notes)]:
            out.print(line, highlight=False, markup=False, soft_wrap=True)
    for (one, other), comparison in comparisons.items():
        out.print(comparison_table(comparison, one, other))
        for line in comparison_lines(comparison, one, other):
            out.print(line, highlight=False, markup=False, soft_wrap=True)
    out.print(f"scores: {runs[0] / 'scores.json'}\npage: {page}", highlight=False, soft_wrap=True)
