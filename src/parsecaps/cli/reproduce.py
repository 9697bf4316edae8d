"""`parsecaps reproduce`: a table or figure of the paper, measured again beside the published one."""

from pathlib import Path
from typing import Annotated

import typer

from parsecaps.cli.command import argument, command, option
from parsecaps.cli.output import display
from parsecaps.cli.progress import showing_training


@command()
def reproduce(
    name: Annotated[str | None, argument("[NAME]", "A table or figure; --list names them.")] = None,
    budget: Annotated[str, option("BUDGET", "quick (minutes), hour, or full.")] = "quick",
    data: Annotated[list[str] | None, option("PATH", "The data; may be repeated. PARSECAPS_DATA if left out.")] = None,
    out: Annotated[Path, option("FOLDER", "Where to; the same folder goes on.")] = Path("reproduced"),
    models: Annotated[list[str] | None, option("MODEL", "Only this model; may be repeated.")] = None,
    seed: Annotated[int, typer.Option(help="Of the trainings; the split stays.", min=0)] = 0,
    epochs: Annotated[
        int | None, typer.Option(help="Of all models; the budget's if left out.", min=1, max=10_000)
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="What there is, what it needs, how long it takes.")] = False,
    measure: Annotated[bool, typer.Option(help="With --list: time each model here, for minutes.")] = False,
) -> None:
    """Measure a table or figure of the paper again, and compare models on equal terms.

    All models of a table train on the same patients, as long, and are tested on the same other patients, with 95 %
    intervals and paired tests against ParseCaps. FOLDER then has NAME.json, NAME.md and NAME.png, updated after every
    model; `cells` keeps the models, each a run folder. The same command resumes a stopped one; several at once share
    the work.

    **Examples**

    - `parsecaps reproduce --list`
    - `parsecaps reproduce classification --data data/cemri --budget hour`
    - `parsecaps reproduce classification --data my-images --models ParseCaps --models ResNet18` (your own data)
    - `parsecaps reproduce leak --data data/cemri` (what a split that leaks is worth)
    - `parsecaps reproduce capsules` (nothing to train)

    docs/reproduce.md says how to read the tables, and when not to trust them.
    """
    from parsecaps.paper.listing import BUDGETS, describe, nearest, stored_listing

    if budget not in BUDGETS:
        raise ValueError(f"--budget is {budget!r}; {nearest(budget, BUDGETS)}")
    if listing:
        known = stored_listing()
        if measure:
            from parsecaps.paper.tables import measure_listing

            known = measure_listing(name, models or (), lambda line: display(line, stderr=True))
        display(*describe(known, name, models or (), epochs))
        return
    if name is None:
        raise ValueError("there is no table to measure; give its NAME, parsecaps reproduce --list has them")
    from parsecaps.paper.run_table import reproduce as measure_again

    with showing_training() as callbacks:
        result = measure_again(
            name,
            budget=budget,
            data=data or (),
            out=out,
            models=models or (),
            seed=seed,
            epochs=epochs,
            callbacks=callbacks,
        )
    missing = [f"missing: {', '.join(result.missing)}"] if result.missing else []
    files = [str(out / file) for file in (f"{name}.md", f"{name}.json", result.picture) if file]
    failed = [f"failed: {cell}: {why}" for cell, why in result.failed.items()]
    display(*result.tables(), *result.notes, *missing, *failed, *files)
    if failed:
        raise typer.Exit(1)
