"""`parsecaps audit`: how far the explanations of a model can be trusted."""

from pathlib import Path
from typing import Annotated, Any

import typer

from parsecaps.cli.command import DeviceName, ModelFolder, argument, command, option
from parsecaps.cli.output import display, write_json
from parsecaps.cli.progress import free_threads, showing_stages


@command()
def audit(
    model: ModelFolder,
    data: Annotated[str | None, argument("DATA", "What to measure on; the run's own test part if left out.")] = None,
    out: Annotated[Path | None, option("FOLDER", "For audit.html and audit.json; run or MODEL if left out.")] = None,
    limit: Annotated[int, typer.Option(help="How many cases, drawn at random, get maps.")] = 200,
    resamples: Annotated[int, typer.Option(help="Resamples of the patients behind the intervals.")] = 1000,
    device: DeviceName = None,
) -> dict[str, Any]:
    """Measure how far the explanations of a model can be trusted.

    Maps along the routes stand beside gradient maps in one table: localisation against masks, deletion and insertion of
    image regions, random weights. Then what is still found with lesions and concepts painted over, what cutting the
    shown routes does, what other couplings cost, whether concepts are right and are the reasons, and how alike capsules
    are. Each number comes with n and a 95 % interval over patients.

    **Examples**

    - `parsecaps audit runs/cases-1`
    - `parsecaps audit runs/cases-1 phantom:n=500,seed=7 --limit 100 --out audits`
    """
    from parsecaps.audit.measure import audit_model
    from parsecaps.files.hub_download import is_hub_name, parse_hub_name
    from parsecaps.files.writing import refuse_links, write_text
    from parsecaps.report.result_pages import audit_page
    from parsecaps.run import Run

    if out is None and is_hub_name(model):
        raise ValueError(f"{parse_hub_name(model)} is on the hub; say where to write the audit: --out FOLDER")
    folder = out or (run.folder if (run := Run.around(model)) else model)
    refuse_links(folder)
    with free_threads(), showing_stages(ends=True) as progress:
        found = audit_model(model, data, limit=limit, resamples=resamples, device=device or "auto", progress=progress)
    folder.mkdir(parents=True, exist_ok=True)
    page, stored = folder / "audit.html", folder / "audit.json"
    write_text(page, audit_page(found, title=f"How far can the explanations of {model.name} be trusted?"))
    write_json(stored, found.as_dict())
    display(*found.tables(), *found.lines(), f"numbers: {stored}", f"page: {page}")
    return found.as_dict()
