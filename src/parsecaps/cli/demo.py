"""`parsecaps demo`: the whole way from nothing to a trained network and a page about it."""

from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from parsecaps.cli.output import (
    ConfigFile,
    DeviceName,
    JsonFile,
    Settings,
    check_writable,
    display,
    one_line_errors,
    write_json,
)
from parsecaps.cli.progress import showing_training
from parsecaps.cli.train import show_run

FOLDER = "parsecaps-demo"


@one_line_errors
def demo(
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to; the next free parsecaps-demo if left out.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and smaller lesions: half a minute, and worse scores.")
    ] = False,
    device: DeviceName = None,
    config: ConfigFile = None,
    settings: Settings = None,
    json_file: JsonFile = None,
) -> None:
    """Draw skin lesions, train on them, score the network on patients it never saw, and a page to open.

    The page has the scores, and unseen cases with their maps, parse trees and the most similar training cases.

    Takes three to four minutes on two cores, with `--quick` half a minute. The lesions, their seven concepts and the
    diagnosis are drawn by rule (docs/phantom.md), so nothing has to be downloaded and everything about them is known.

    **Examples**

    `parsecaps demo`

    `parsecaps demo --quick`

    `parsecaps demo --set training.epochs=1 --out short`
    """
    check_writable(json_file)
    from parsecaps.files.writing import make_first_free, remove_empty
    from parsecaps.training.demo import IMAGES, demo_config
    from parsecaps.training.demo import demo as run_demo

    chosen = demo_config(config, settings, quick=quick)
    made = [] if out else make_first_free(Path(f"{FOLDER}-{i}" if i > 1 else FOLDER) for i in count(1))
    try:
        with showing_training() as callbacks:
            result = run_demo(chosen, out or made[-1], callbacks, device or "auto")
    finally:
        remove_empty(made)  # where a wrong setting has left it so
    write_json(json_file, show_run(result.run))
    display(f"open this first: {result.page}")
    if (images := result.page.parent / IMAGES).is_dir():
        display(f"images to try it on: parsecaps explain {result.run.folder} {images}")
