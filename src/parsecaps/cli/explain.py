"""`parsecaps explain`: the reasons for what a model says of images; `parsecaps remember`: the cases to compare with."""

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from parsecaps.cli.command import DeviceName, Given, ModelFolder, argument, command, option
from parsecaps.cli.output import check_writable, display, model_name, next_free
from parsecaps.cli.progress import free_threads, showing_stages
from parsecaps.config import ExplainConfig

PAGE = "explanation.html"


@command(ExplainConfig, "limit", "method", "risk", "strict", "traversals", "device")
def explain(
    model: ModelFolder,
    given: Given[ExplainConfig],
    inputs: Annotated[
        list[str] | None, argument("IMAGES", "Images, folders or data; the run's test part if left out.")
    ] = None,
    out: Annotated[Path | None, option("PAGE.html", f"The page to write; the next free {PAGE} if left out.")] = None,
    files: Annotated[Path | None, option("FOLDER", "Write overlays, trees and numbers of each image here.")] = None,
    dicom: Annotated[Path | None, option("FOLDER", "Write DICOM objects about DICOM images here.")] = None,
) -> dict[str, Any] | None:
    """Give the reasons: concepts and where they were seen, parse trees, similar cases.

    Writes a page that needs no network. It holds the images and, where the model remembers its training cases
    (`parsecaps remember`), pictures of some of these: give it only to people who may see them. With `--files`, each
    image gets a folder with overlays, the parse trees as SVG, strips of traversals, and `explanation.json`.
    docs/explain.md says what the parts mean.

    With `--dicom`, each image that came from a DICOM file gets a structured report, a secondary capture with the maps
    and, where it has a geometry, a parametric map, for the same patient and study (docs/dicom.md).

    **Examples**

    - `parsecaps explain runs/cases-1` (the run's own test part, with what is known of each case)
    - `parsecaps explain runs/cases-1 image.png --out image.html --files why`
    - `parsecaps explain runs/cases-1 image.dcm --risk 0.1 --method grad-cam --json why.json`
    - `parsecaps explain runs/cases-1 other-hospital.csv --limit 40`
    - `parsecaps explain runs/cases-1 study --dicom study-explained`
    """
    if out is not None and not out.is_dir() and out.suffix not in {".html", ".htm"}:
        raise ValueError(f"--out is {out}; give a page, such as {out}.html, or --files {out} for a folder of pictures")
    page = next_free(Path(PAGE)) if out is None else out
    check_writable(page)
    from parsecaps.explain.explain_cases import explain_series
    from parsecaps.model import Model

    if dicom is not None:
        from parsecaps.export.dicom_report import dicom_folder, write_dicom

    chosen = given.load()
    if files is not None:
        files.mkdir(parents=True, exist_ok=True)
    with nullcontext() if dicom is None else dicom_folder(dicom):
        loaded = Model.load(model, chosen.device)
        with free_threads(), showing_stages() as show:
            progress = partial(show, "explaining")
            explained = explain_series(loaded, inputs or [], chosen, progress=progress)
        cases = explained.cases
        objects = None if dicom is None else write_dicom(loaded, cases, dicom)
    from parsecaps.files.writing import plain_name, write_text
    from parsecaps.report.case_page import case_page  # once there is something to show
    from parsecaps.report.explanation_document import explanation_document
    from parsecaps.report.explanations import explanation_summary, write_explanation

    explained.errors.extend([] if objects is None else objects.errors)
    display(*explanation_summary(cases))
    display(*dict.fromkeys(note for each in cases for note in each.notes), *explained.errors, stderr=True)
    if explained.limited:
        display(f"there are more than {chosen.limit:,} images; --limit explains more of them", stderr=True)
    title = f"{model_name(model)}: {cases[0].name if len(cases) == 1 else f'{len(cases):,} cases'}"
    if files is not None:
        for number, each in enumerate(cases, 1):
            write_explanation(each, files / f"{number:03d}-{plain_name(each.name)}")
        display(f"pictures and numbers of each image: {files}")
    if objects is not None:
        display(f"DICOM: {objects} in {dicom}")
    write_text(page, case_page(cases, title=title, errors=explained.errors))
    display(f"open this page ({page.stat().st_size / 1e6:.1f} MB): {page}")
    if given.json_file is None:
        return None
    return explanation_document(cases, title=title, errors=explained.errors).to_dict()


@command()
def remember(
    run: Annotated[Path, argument("RUN", "The folder of a finished run of parsecaps train.")],
    device: DeviceName = None,
) -> None:
    """Keep training cases beside a model, to show similar ones.

    `known_cases` of the run then holds small pictures, file names and patient ids of training cases: give it only to
    people who may see these patients. The model, in `bundle`, holds none of them.

    **Example**

    - `parsecaps remember runs/cases-1`
    """
    from parsecaps.explain.case_memory import remember_run
    from parsecaps.run import Run

    with free_threads(), showing_stages() as show:
        progress = partial(show, "looking at the training cases")
        memory = remember_run(run, device=device or "auto", progress=progress)
    own = Run(run)
    warning = f"it holds pictures and patient ids: do not give it away with the model, which is in {own.bundle_folder}"
    display(f"{len(memory):,} training cases in {own.known_cases_folder}; {warning}")
