"""`parsecaps discover`: the concepts that a run found without labels; `parsecaps name`: what a clinician calls them."""

from pathlib import Path
from typing import Annotated, Any

from parsecaps.cli.command import DeviceName, ModelFolder, argument, command, option
from parsecaps.cli.output import check_writable, display
from parsecaps.cli.progress import free_threads, showing_stages


@command()
def discover(
    run: Annotated[Path, argument("RUN", "The folder of a run on data without concept labels.")],
    others: Annotated[list[Path] | None, argument("OTHER_RUNS", "Runs of other seeds on the same data.")] = None,
    out: Annotated[Path | None, option("HTML", "Where to write the sheet; RUN/concepts.html if left out.")] = None,
    device: DeviceName = None,
) -> dict[str, Any]:
    """Show the concepts that a run found without labels, on a sheet to name them.

    For each concept: the training images that show it most and where, how one-sided they are by class, how far its maps
    lie inside masks, whether it varies at all or repeats another, and, with runs of other seeds, whether these find it
    again. `parsecaps name` takes the names back.

    The sheet and the memory of the run (`parsecaps remember`), which is made if needed, hold pictures of training
    cases: give them only to people who may see these patients.

    **Examples**

    - `parsecaps discover runs/cases-1 --out sheet.html`
    - `parsecaps discover runs/cases-1 runs/cases-2 runs/cases-3 --out sheet.html --json concepts.json`
    """
    sheet = run / "concepts.html" if out is None else out
    check_writable(out)
    from parsecaps.discovery.discover import discover_run
    from parsecaps.discovery.naming import naming_sheet
    from parsecaps.files.writing import write_text

    with free_threads(), showing_stages(ends=True) as progress:
        found = discover_run(run, others or (), device=device or "auto", progress=progress)
        progress("naming sheet", 0, 1)
        write_text(sheet, naming_sheet(found))
        progress("naming sheet", 1, 1)
    lines = found.lines()
    if found.remembered:
        lines.append(f"{len(found.memory):,} training cases are now kept beside the model, as by parsecaps remember")
    lines.append(f"sheet: {sheet}, with pictures of training cases; take names back by parsecaps name {run} NAMES.csv")
    display(found.table(), *lines)
    return found.as_dict()


@command()
def name(
    model: ModelFolder,
    names: Annotated[Path, argument("NAMES.csv", "The table that the naming sheet gave.")],
) -> None:
    """Give these concepts the names that a clinician chose.

    They then show wherever the model is used. The table has the columns `concept` (its number, from 1), `name`, and,
    where the sheet wrote it, `note` and `model`. A blank name leaves a concept as it is called; the same command with
    another table changes the names again.

    **Example**

    - `parsecaps name runs/cases-1 concept-names.csv`
    """
    from parsecaps.discovery.naming import name_run

    changed = name_run(model, names)
    display(*([f"{each.before} is now {each.name}" for each in changed] or [f"{names} changes no name"]))
