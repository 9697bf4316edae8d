"""`parsecaps report`: one page about an image or a series of cases."""

from pathlib import Path
from typing import Annotated

import typer

from parsecaps.cli.explain import Method, ModelFolder, RiskLimit, Strict, Traversals
from parsecaps.cli.output import ConfigFile, Settings, check_writable, console, one_line_errors


@one_line_errors
def report(
    model: ModelFolder,
    out: Annotated[Path, typer.Option(metavar="HTML", help="Where to write the page.")],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="IMAGES", help="Images, folders, or data sets; the run's own test part if left out."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many cases; 100 if left out.")] = None,
    method: Method = None,
    risk: RiskLimit = None,
    strict: Strict = False,
    traversals: Traversals = None,
    config: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Make one page about an image or a series of cases: maps, parse trees, similar cases, and what-if.

    The page needs nothing but itself: no network, no server. It holds the images and, where the model remembers its
    training cases (`parsecaps remember`), pictures of some of these: give it only to people who may see them.

    **Examples**

    `parsecaps report runs/cases-1 --out cases.html`

    `parsecaps report runs/cases-1 image.png --out image.html --risk 0.1`

    `parsecaps report runs/cases-1 other-hospital.csv --out cases.html --limit 40`

    A YAML file and `--set` have the keys `risk`, `method`, `strict`, `traversals`, `trees` and `limit`.
    """
    check_writable(out)
    from parsecaps.config import ReportConfig, load_settings
    from parsecaps.data.files import write_text
    from parsecaps.explain.explainer import Explainer
    from parsecaps.pipeline.explain import explain_series
    from parsecaps.report.case_page import case_page

    given = {"method": method, "risk": risk, "limit": limit, "strict": strict or None, "traversals": traversals}
    values = {key: value for key, value in given.items() if value is not None}
    chosen = load_settings(ReportConfig, config, settings or [], values=values)
    with console(stderr=True).status("explaining") as status:
        explained, errors = explain_series(
            Explainer.load(model, risk=chosen.risk),
            inputs or [],
            chosen,
            run=model,
            limit=chosen.limit,
            progress=lambda done: status.update(f"explaining: {done:,} images"),
        )
    title = f"{model.resolve().name}: {explained[0].name if len(explained) == 1 else f'{len(explained)} cases'}"
    write_text(out, case_page(explained, title=title, errors=errors))
    for line in errors:
        console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)
    size = f"{out.stat().st_size / 1e6:.1f} MB"
    console().print(f"{out}: {len(explained):,} cases, {size}", highlight=False, soft_wrap=True)
