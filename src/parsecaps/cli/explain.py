"""`parsecaps explain`: the reasons for what a model says of images; `parsecaps remember`: the cases to compare with."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parsecaps.cli.output import ConfigFile, JsonFile, Settings, check_writable, console, one_line_errors, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from parsecaps.explain.explanation import Explanation

Method = Annotated[
    str | None,
    typer.Option(help="How maps are made: routes (if left out), grad-cam, integrated-gradients or occlusion."),
]
RiskLimit = Annotated[
    float | None, typer.Option(help="Abstain so that at most this share of the sets leaves out the truth.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Explain the strict network, in which each capsule has a single parent.")
]
Traversals = Annotated[
    int | None, typer.Option(help="Draw what the decoder makes of so many numbers of the global capsule as they move.")
]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="The folder of a run, or of a saved model.")]


@one_line_errors
def explain(
    model: ModelFolder,
    inputs: Annotated[list[str], typer.Argument(metavar="IMAGES", help="Images, DICOM files, folders, or data sets.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write overlays, trees and numbers of each image here.")
    ] = None,
    method: Method = None,
    risk: RiskLimit = None,
    strict: Strict = False,
    traversals: Traversals = None,
    config: ConfigFile = None,
    settings: Settings = None,
    json_file: JsonFile = None,
) -> None:
    """Explain what a model says of images: its concepts and where it saw them, its parse tree, and known cases.

    With `--out`, each image gets a folder with an overlay for the diagnosis and for each concept, the parse trees as
    SVG, strips of traversals, and `explanation.json`. `parsecaps report` makes a page of the same. docs/explain.md says
    what the parts mean.

    **Examples**

    `parsecaps explain runs/cases-1 image.png --out why`

    `parsecaps explain runs/cases-1 image.dcm --risk 0.1 --method grad-cam --json why.json`

    A YAML file and `--set` have the keys `risk`, `method`, `strict`, `traversals` and `trees` (how many parse trees an
    image gets).
    """
    check_writable(json_file)
    from parsecaps.config import ExplainConfig, load_settings
    from parsecaps.explain.explainer import Explainer
    from parsecaps.pipeline.explain import explain_series

    given = {"method": method, "risk": risk, "strict": strict or None, "traversals": traversals}
    values = {key: value for key, value in given.items() if value is not None}
    chosen = load_settings(ExplainConfig, config, settings or [], values=values)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with console(stderr=True).status("explaining") as status:
        explained, errors = explain_series(
            Explainer.load(model, risk=chosen.risk),
            inputs,
            chosen,
            progress=lambda done: status.update(f"explaining: {done:,} images"),
        )
    for number, each in enumerate(explained, 1):
        console().print(_table(each))
        if each.reasons is not None:
            console().print(each.reasons.sentence(), highlight=False, markup=False)
        for line in each.strict_lines:
            console().print(line, highlight=False, markup=False)
        if out is not None:
            folder = out / f"{number:03d}-{_plain(each.name)}"
            _write(each, folder)
            console().print(f"written: {folder}", highlight=False, markup=False, soft_wrap=True)
    for line in [*dict.fromkeys(note for each in explained for note in each.notes), *errors]:
        console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)
    write_json(json_file, {"images": [each.as_dict() for each in explained], "errors": errors})


@one_line_errors
def remember(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run of parsecaps train.")],
) -> None:
    """Keep the training cases of a run beside its model, so that explanations can show similar ones.

    They hold small pictures, file names and patient ids of training cases, in `memory.npz` and `thumbnails.zip` of the
    run's bundle: delete the two before you give the model to anyone who may not see these patients.

    **Example**

    `parsecaps remember runs/cases-1`
    """
    from parsecaps.explain.case_memory import MEMORY_FILE, THUMBNAILS_FILE, remember_run
    from parsecaps.run import Run

    with console(stderr=True).status("looking at the training cases") as status:
        memory = remember_run(
            run, progress=lambda done, total: status.update(f"looking at the training cases: {done:,} of {total:,}")
        )
    files = " and ".join(str(Run(run).bundle_folder / name) for name in (MEMORY_FILE, THUMBNAILS_FILE))
    warning = "they hold pictures and patient ids: do not give them away with the model"
    console().print(f"{len(memory):,} training cases in {files}; {warning}", highlight=False, soft_wrap=True)


def _write(told: "Explanation", folder: Path) -> None:
    """Overlays, trees and numbers of one image."""
    from parsecaps.report.pictures import overlay_png

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "image.png").write_bytes(overlay_png(told.image, None))
    (folder / f"diagnosis-{_plain(told.diagnosis)}.png").write_bytes(overlay_png(told.image, told.class_map))
    for j, concept in enumerate(told.concepts, 1):
        (folder / f"concept-{j}-{_plain(concept.name)}.png").write_bytes(overlay_png(told.image, concept.map))
    for tree in told.trees:
        kind = "diagnosis" if tree.about == "classes" else f"concept-{tree.index + 1}"
        (folder / f"tree-{kind}-{_plain(tree.name)}.svg").write_text(tree.to_svg(told.image), encoding="utf-8")
    for each in told.traversals:
        (folder / f"traversal-{_plain(each.name)}.png").write_bytes(each.png)
    text = json.dumps(told.as_dict(), indent=2) + "\n"
    (folder / "explanation.json").write_text(text, encoding="utf-8")


def _plain(name: str) -> str:
    from parsecaps.training.opening import plain_name

    return plain_name(name)


def _table(told: "Explanation") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    answer = f"{told.diagnosis} {told.probability:.1%}"
    if told.abstain:
        answer += f"; abstains: {' or '.join(told.possible or ['nothing'])} cannot be ruled out"
    if told.truth is not None:
        answer += f" (known to be {told.truth})"
    table = Table(title=escape(f"{told.name}: {answer}"), title_justify="left")
    table.add_column("concept")
    table.add_column("presence", justify="right")
    table.add_column("seen")
    if told.reasons:
        table.add_column(f"to {escape(told.diagnosis)}", justify="right")
    best = list(told.probabilities).index(told.diagnosis)
    order = sorted(range(len(told.concepts)), key=lambda j: -told.concepts[j].presence)
    for j in order:
        each = told.concepts[j]
        adds = [f"{told.reasons.contributions[best, j]:+.2f}"] if told.reasons else []
        table.add_row(escape(each.name), f"{each.presence:.2f}", "yes" if each.seen else "no", *adds)
    return table
