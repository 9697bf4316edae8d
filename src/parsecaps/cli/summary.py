"""`parsecaps summary`: the layers of a network."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from parsecaps.cli.command import command
from parsecaps.cli.output import display


@command()
def summary(
    preset: Annotated[str, typer.Argument(help="A named size: medical, digits, tiny ...")],
    size: Annotated[int | None, typer.Option(help="Width of the square image; the preset's own if left out.")] = None,
    channels: Annotated[int, typer.Option(help="1 for grey, 3 for colour.")] = 1,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 3,
    concepts: Annotated[int | None, typer.Option(help="Number of concepts; 0 leaves out the decoder too.")] = None,
    head: Annotated[str, typer.Option(help="parallel (the paper's) or bottleneck.")] = "parallel",
) -> dict[str, Any]:
    """Print the layers of a network: name, n, d, parameters and FLOPs of each layer.

    n capsules of d numbers come out of a layer. FLOPs are those of one image, two for each multiply-add of a
    convolution or matrix product.

    **Examples**

    - `parsecaps summary medical`
    - `parsecaps summary medical --size 512 --channels 3 --concepts 7 --head bottleneck`
    - `parsecaps summary digits --classes 10 --json digits.json`
    """
    from parsecaps.models import ParseCaps
    from parsecaps.models.summary import layer_table, summarize

    wanted = {"image_size": size, "num_concepts": concepts}
    changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    model = ParseCaps.from_preset(preset, num_classes=classes, in_channels=channels, head=head, **changes)
    rows = summarize(model)
    display(layer_table(rows, f"{preset}, {channels} x {model.image_size} x {model.image_size}"))
    return {"preset": preset, "config": model.config, "layers": [asdict(row) for row in rows]}
