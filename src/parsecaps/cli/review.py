"""`parsecaps review`: reviews of the server as training data."""

from pathlib import Path
from typing import Annotated

from parsecaps.cli.command import argument, command, option
from parsecaps.cli.output import display


@command()
def review(
    file: Annotated[Path, argument("FILE", "The file of parsecaps serve --review.")],
    out: Annotated[Path, option("FOLDER", "The new folder to write to.")],
) -> None:
    """Turn reviews of the server into data that `parsecaps train` reads.

    The folder gets `manifest.csv`, the images, and `reviews.json` with every review. Of each reviewer the last review
    of an image counts; what most reviewers say is taken, and where they are split the cell stays blank. A patient is a
    pseudonym, one for each study or image: put ids that you know in their place, so that no patient is in two parts.

    **Examples**

    - `parsecaps review reviews.sqlite --out reviewed`
    - `parsecaps train reviewed`
    """
    from parsecaps.serve.review_store import ReviewStore, write_reviews

    settled = write_reviews(ReviewStore(file, create=False), out)
    labelled = sum(each.label is not None for each in settled)
    display(f"{len(settled):,} images, {labelled:,} with a class, in {out}")
    for each in (each for each in settled if each.disputed):
        frame = "" if each.frame is None else f"#{each.frame}"
        said = ", ".join(each.disputed)
        display(f"reviewers differ on {each.image[:24]}{frame}: {said}")
    if any(each.disputed for each in settled):
        display("taken is what most of them say; blank where they are split")
