"""The commands about data: `data check`, `data split` and `data sources`."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from parsecaps.cli.command import Given, Numbers, argument, command, option
from parsecaps.cli.output import check_writable, display
from parsecaps.cli.progress import showing_stages
from parsecaps.config import DataSection
from parsecaps.types import Grid

data_app = typer.Typer(rich_markup_mode="markdown", no_args_is_help=True, help="Look at, check and split data.")

Data = Annotated[str, argument("DATA", "A folder, a CSV manifest, or phantom:n=2000,size=64.")]
_DIVIDING = ("source", "test_fold", "test_part", "val", "test", "seed")
SHOWN = 20  # lines of a kind that the terminal shows; the page and the JSON file have all


@data_app.command()
@command(DataSection, "split", *_DIVIDING, "skip_bad", "allow_leaks", files=False)
def check(
    data: Data,
    given: Given[DataSection],
    size: Annotated[int, typer.Option(help="Width to which images are brought before they are compared.")] = 112,
    page: Annotated[Path | None, option("HTML", "Write all of it as a page with pictures.")] = None,
    fix_split: Annotated[Path | None, option("CSV", "Write a split in which what leaks is moved to one side.")] = None,
) -> Numbers:
    """Look at a data set before training: what it holds, what is wrong with it, and what leaks between the parts.

    Reads every image once (they stay in the cache for training). Exits with 1 when training would be unsafe.

    **Examples**

    - `parsecaps data check phantom --page phantom.html`
    - `parsecaps data check cases.csv --split split.csv --fix-split split-mended.csv`
    - `parsecaps data check data/cemri --test-fold 3 --page cemri.html --json cemri.json`
    """
    for path in (page, fix_split):
        check_writable(path)
    from parsecaps.data import Preparation, check_data, open_data, prepare_all
    from parsecaps.data.leaks import find_leaks, move_to_one_side, unsafe
    from parsecaps.data.splits import divide, write_split
    from parsecaps.files.writing import write_text

    section = given.load()
    opened = open_data(data, section.source)
    if not len(opened):
        listed = "".join(f"; {problem}" for problem in opened.problems[:SHOWN])
        raise ValueError(f"{data} has no case that could be used{listed}; parsecaps data sources lists what is read")
    divided = divide(opened, section)
    with showing_stages() as show:
        reading = partial(show, "reading images")
        prepared = prepare_all(opened, Preparation(size=size, channels=3), skip_bad=True, progress=reading)
    result = check_data(opened, prepared, divided, skip_bad=section.skip_bad, allow_leaks=section.allow_leaks)
    display(*result.tables(), *result.lines(SHOWN))
    if fix_split is not None:
        leaks = find_leaks(opened, divided.division, prepared.digests, prepared.fingerprints)
        mended = move_to_one_side(opened, divided.division, unsafe(leaks, divided.division))
        write_split(fix_split, opened, mended)
        moved = sum(a != b for a, b in zip(divided.division, mended, strict=True))
        display(f"{fix_split}: {moved:,} cases moved to one side")
    if page is not None:
        from parsecaps.report.result_pages import data_page

        write_text(page, data_page(result, opened, prepared))
        display(f"page: {page}")
    return Numbers(result.as_dict(), failed=not result.safe)


@data_app.command()
@command(DataSection, *_DIVIDING, files=False)
def split(
    data: Data,
    out: Annotated[Path, option("CSV", "The file to write; with --folds, one per fold.")],
    given: Given[DataSection],
    folds: Annotated[int | None, typer.Option(help="Write this many splits, each testing other patients.")] = None,
) -> None:
    """Split a data set by patient, with the classes shared out as evenly as patients allow.

    Writes a CSV that can be read and edited: one row per image with its part (train, val, test, or blank for unused).
    Without options a data set's official parts are taken where it has some; cases without one are dealt in the same
    proportions.

    **Examples**

    - `parsecaps data split cases.csv --out split.csv --test 0.2 --val 0.15`
    - `parsecaps data split data/cemri --out fold3.csv --test-fold 3`
    - `parsecaps data split cases.csv --folds 5 --out split.csv` (split-1.csv to split-5.csv)
    """
    from parsecaps.data.sources import open_data
    from parsecaps.data.splits import Divided, describe_parts, divide, k_folds, split_hash, write_split

    check_writable(out)
    section = given.load()
    opened = open_data(data, section.source)
    if folds is None:
        made = {out: divide(opened, section)}
    elif section.test_fold or section.test_part:
        raise ValueError("--folds makes folds of its own; leave out --test-fold and --test-part")
    else:
        each = k_folds(opened, folds, val=section.val, seed=section.seed)
        made = {out.with_stem(f"{out.stem}-{i}"): Divided(division) for i, division in enumerate(each, 1)}
    for path, divided in made.items():
        write_split(path, opened, divided.division)
        parts = describe_parts(Counter(divided.division), divided.unused())
        display(f"{path}: {parts}; hash {split_hash(opened, divided.division)}")
        display(*(f"note: {note}" for note in divided.notes))
    display(*(f"left out: {problem}" for problem in opened.problems), stderr=True)


@data_app.command()
@command()
def sources() -> None:
    """List what can be read."""
    from parsecaps.data.sources import SOURCES

    rows = [(name, source.summary) for name, source in SOURCES.items()]
    display(Grid("sources", ("name", "what it is"), rows))
