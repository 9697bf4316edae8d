"""`parsecaps demo`: the whole way from nothing to a trained network and a page about it."""

from collections import Counter
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsecaps.cli.command import DeviceName, Given, command, option
from parsecaps.cli.output import display
from parsecaps.cli.progress import showing_training
from parsecaps.cli.train import show_run
from parsecaps.config import Config, ExplainConfig

if TYPE_CHECKING:
    from parsecaps.data.cases import DataSet
    from parsecaps.run import Run

FOLDER, RUN = "parsecaps-demo", "run"
PAGE, IMAGES = "index.html", "images"
_SHOWN = 12
_KNOWN = 1500  # training cases to compare with: a quarter of them, for time


@command(Config)
def demo(
    given: Given[Config],
    out: Annotated[Path | None, option("FOLDER", "Where to; the next free parsecaps-demo if left out.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller lesions: half a minute.")] = False,
    device: DeviceName = None,
) -> dict[str, Any]:
    """See all of it on drawn images, in minutes: training, scores, explanations.

    Draws skin lesions by rule (docs/phantom.md), trains on them, and scores the network on patients it never saw. A
    page to open has the scores, and unseen cases with their maps, parse trees and the most similar training cases.
    Takes three to four minutes on two cores, with `--quick` half a minute.

    **Examples**

    - `parsecaps demo`
    - `parsecaps demo --quick`
    - `parsecaps demo --set training.epochs=1 --out short`
    """
    from parsecaps.files.writing import make_first_free, remove_empty
    from parsecaps.system.threads import using_threads
    from parsecaps.training.fit import fit

    if quick and given.file is not None:
        raise ValueError(f"--quick and --config {given.file} both name settings; give one of them")
    chosen = given.load(default="demo-quick" if quick else "demo")
    made = [] if out else make_first_free(Path(f"{FOLDER}-{i}" if i > 1 else FOLDER) for i in count(1))
    folder, place = out or made[-1], device or "auto"
    page, images = folder / PAGE, folder / IMAGES
    try:
        with showing_training() as callbacks:
            run = fit(chosen, run_folder=folder / RUN, callbacks=callbacks, device=place)
            callbacks.log("keeping the training cases to compare with, and explaining unseen ones")
            try:
                with using_threads(run.threads):
                    _write_page(run, page, place)
            except KeyboardInterrupt as stopped:
                words = f"stopped before the page was written; parsecaps explain {run.folder} makes one of the run"
                raise type(stopped)(words) from None
    finally:
        remove_empty(made)  # where a wrong setting has left it so
    numbers = show_run(run)
    display(f"open this first: {page}")
    if images.is_dir():
        display(f"images to try it on: parsecaps explain {run.folder} {images}")
    return numbers


def _write_page(run: "Run", page: Path, device: str) -> None:
    from parsecaps.data.cases import first_of_patients
    from parsecaps.explain.case_memory import remember_run
    from parsecaps.explain.explain_cases import explain_series
    from parsecaps.files.writing import write_text
    from parsecaps.model import Model
    from parsecaps.report.case_page import demo_page

    if run.scores is None:
        raise ValueError(f"the demonstration shows scores; {run.failure or 'add --set data.test=0.1'}")
    remember_run(run.folder, limit=_KNOWN, device=device)
    shown = run.data.subset(first_of_patients(run.data, run.rows("test"), _SHOWN))
    _write_images(shown, page.parent / IMAGES)
    explained = explain_series(Model.load(run, device), [shown], ExplainConfig(limit=_SHOWN))
    write_text(page, demo_page(run, run.scores, explained.cases, RUN))


def _write_images(data: "DataSet", folder: Path) -> None:
    """Write drawn images as files, named by class."""
    from PIL import Image

    if data.draw is None:
        return
    folder.mkdir(exist_ok=True)
    pixels = data.draw(range(len(data))).transpose(0, 2, 3, 1)  # (n, H, W, 3)
    numbers = Counter[str]()
    for case, image in zip(data.cases, pixels, strict=True):
        numbers[name := data.classes[case.label]] += 1
        Image.fromarray(image).save(folder / f"{name}-{numbers[name]}.png")
