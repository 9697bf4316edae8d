"""`parsecaps pretrain`: weights for other trainings to start from."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from parsecaps.cli.command import DeviceName, Given, argument, command, option
from parsecaps.cli.output import check_writable, display
from parsecaps.cli.progress import showing_training
from parsecaps.config import Config


@command(Config, "model.start", "training.devices")
def pretrain(
    given: Given[Config],
    data: Annotated[list[str], argument("DATA...", "Data sets, as `parsecaps train` takes them.")],
    out: Annotated[Path, option("WEIGHTS", "The folder to make.")],
    licences: Annotated[
        list[str] | None,
        typer.Option("--licence", metavar="TEXT", help="The licence of each data set, in their order; for the card."),
    ] = None,
    device: DeviceName = None,
) -> None:
    """Learn weights from several data sets, for trainings to start from.

    One network learns from all of them, with a head for the classes and concepts of each. Unlabelled images help too:
    two views of an image must get the same answer. Official test parts are left out. WEIGHTS is then a run like any
    other; the card in `bundle` names every source, its licence and its size. Fingerprints of the images are kept, so
    that a later test on one of them is refused.

    **Examples**

    - `parsecaps pretrain isic/manifest.csv wbcatt --licence "CC0" --licence "CC BY 4.0" --out trunk`
    - `parsecaps train my-images --start trunk`
    - `parsecaps pretrain labelled unlabelled-scans --out trunk --set training.epochs=20`
    - `parsecaps train --resume trunk` (after Ctrl-C, kill or a power cut)
    """
    check_writable(out.parent / "x" if out.parent.exists() else None)
    from parsecaps.training.fit import fit
    from parsecaps.training.pretrain import DEFAULTS, pretraining_config

    own = [f"{key}={value}" for key, value in DEFAULTS.items()] if given.file is None else []
    chosen = pretraining_config(data, licences=licences or (), base=replace(given, lines=[*own, *given.lines]).load())
    with showing_training() as callbacks:
        run = fit(chosen, run_folder=out, callbacks=callbacks, device=device or "auto")
    if run.is_main:
        display(f"weights: {run.folder}", f"card: {run.card_file}")
        display(f"start from them: parsecaps train DATA --start {out}")
        if run.failure:
            raise typer.Exit(1)
