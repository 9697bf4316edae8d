"""`parsecaps export`: a trained model as a file or folder that runs elsewhere."""

from pathlib import Path
from typing import Annotated

import typer

from parsecaps.cli.command import argument, command, option
from parsecaps.cli.output import console, display, model_name, next_free

_MAPS = "With maps of where concepts were seen, where the format can have them."


@command()
def export(
    model: Annotated[Path | None, argument("MODEL", "A run or a saved model, or hf://owner/name.")] = None,
    to: Annotated[str | None, option("FORMAT", "The format; --list has them.")] = None,
    out: Annotated[Path | None, option("PATH", "Where to write; a name like the model's, here, if left out.")] = None,
    maps: Annotated[bool | None, typer.Option("--maps/--no-maps", help=_MAPS)] = None,
    push: Annotated[str | None, option("OWNER/NAME", "With --to hub: upload it to this repository of the hub.")] = None,
    private: Annotated[bool, typer.Option("--private", help="With --push: nobody else sees the repository.")] = False,
    list_formats: Annotated[bool, typer.Option("--list", help="Say what each format is for, needs and gives.")] = False,
) -> None:
    """Export a model: ONNX, MONAI, a web page, the Hugging Face hub.

    What is written runs without this package. Each export is checked against PyTorch on the validation cases of the
    run, where they are there, and on drawn images before it takes its name; a failed check leaves no file.

    **Examples**

    - `parsecaps export --list`
    - `parsecaps export runs/cases-1 --to onnx --out cases.onnx`
    - `parsecaps export runs/cases-1 --to hub --push owner/cases --private`
    """
    from parsecaps.export.export import export_model, find_format, formats

    if list_formats:
        from rich.table import Table

        table = Table("format", "for", "needs", "gives", box=None, pad_edge=False)
        for each in formats().values():
            table.add_row(each.name, each.purpose, each.needs, each.gives)
        display(table)
        return
    if model is None:
        example = "run parsecaps export RUN --to onnx"
        raise ValueError(f"no model is given; {example}; parsecaps export --list has the formats")
    if to is None:
        raise ValueError(f"--to is missing; choose one of {', '.join(formats())}")
    wanted = find_format(to)
    place = next_free(Path(model_name(model) + (wanted.suffix or f"-{to}"))) if out is None else out
    with console(stderr=True).status(f"exporting to {to}"):
        lines = export_model(model, to, place, maps=maps, push=push, private=private)
    display(*lines, str(place))
