"""Draw the figures of the capsule cell: `python -m docs.site.cell_figures` writes pconvcaps.svg and saa.svg.

They stand beside figures 3 and 4 of the paper. All shapes are those of the first cell of the preset `medical`, taken
from a forward pass; those of sparse attention are black and those of axial attention blue, as in the paper.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from docs.site.network_figure import STYLE, arrow, text
from parsecaps.models import ParseCaps
from parsecaps.nn.saa import SAARouting

ASSETS = Path(__file__).parents[1] / "assets"
MORE_STYLE = """
.network .axial { fill: #2f6fdd; }
.network .axial-box { stroke: #2f6fdd; stroke-width: 1.5; fill: #2f6fdd; fill-opacity: .1; }
.network .axial-line { stroke: #2f6fdd; fill: none; stroke-width: 1.5; }
"""
Shapes = Mapping[str, tuple[int, ...]]


def shapes_of_first_cell() -> Shapes:
    """The shapes of what flows through the first cell, for one image and by the letters of the paper."""
    model = ParseCaps.from_preset("medical", num_classes=3, num_concepts=7).eval()
    routing = next(module for module in model.modules() if isinstance(module, SAARouting))
    predict, sparse, axial = routing.predict, routing.sparse, routing.axial
    found: dict[str, tuple[int, ...]] = {}

    def keep(name: str, module: nn.Module, *, given: bool = False) -> None:
        def note(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            found[name] = tuple((inputs[0] if given else output).shape)

        module.register_forward_hook(note)

    keep("U", routing, given=True)
    keep("grid", predict.depthwise, given=True)
    keep("depthwise", predict.depthwise)
    keep("norm", predict.norm)
    keep("U_hat", predict.pointwise)
    keep("C_s", sparse.coupling)
    keep("U_s", sparse)
    keep("K_a", axial.key)
    keep("V_a", axial.value)
    keep("C_a", axial.coupling)
    keep("U_a", axial)
    keep("U_next", routing)
    size = model.config["image_size"]
    with torch.no_grad():
        model(torch.zeros(1, model.config["in_channels"], size, size))
    found["K_s"] = found["V_s"] = (*found["U"][:2], sparse.key.weight.shape[0])
    return found


def written(shape: Sequence[int]) -> str:
    """A shape for any number of images.

    >>> written((1, 784, 8))
    'B x 784 x 8'
    """
    return " x ".join(["B", *map(str, shape[1:])])


def box(x: float, y: float, name: str, about: str, kind: str = "box", width: float = 150) -> str:
    """A tensor or an operation: its name above what is to be said of it, in a box with its left upper corner there."""
    colour = "axial" if kind.startswith("axial") else ""
    name = re.sub(r"_(\w)(.*)", r'<tspan dy="5" font-size="14">\1</tspan><tspan dy="-5">\2</tspan>', name)
    return (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="64" rx="6"/>'
        + text(x + width / 2, y + 27, name, f"name {colour}".strip())
        + text(x + width / 2, y + 50, about, f"small {colour}".strip())
    )


def page(width: int, height: int, label: str, parts: Iterator[str]) -> str:
    """The parts as a picture."""
    head = [
        f'<svg class="network" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="{label}">',
        f"<style>{STYLE}{MORE_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="currentColor"/></marker></defs>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def draw_pconvcaps(shapes: Shapes) -> str:
    """Figure 3: children on their grid, a convolution for each parameter, a norm, a map for each capsule."""

    def parts() -> Iterator[str]:
        steps = [
            ("children", shapes["U"]),
            ("on the grid", shapes["grid"]),
            ("depthwise 3 x 3", shapes["depthwise"]),
            ("norm", shapes["norm"]),
            ("pointwise", shapes["U_hat"]),
        ]
        for i, (name, shape) in enumerate(steps):
            yield box(10 + 215 * i, 40, name, written(shape), width=185)
            if i:
                yield arrow(f"M{215 * i - 18} 72h24")
        yield text(102, 130, "U of layer l")
        yield text(955, 130, "U-hat: the query of the routing")

    return page(1110, 150, "PConvCaps: depthwise convolution, norm and pointwise map predict the parents", parts())


def draw_saa(shapes: Shapes) -> str:
    """Figure 4: both attentions of SAA routing, asked by the same prediction."""

    def parts() -> Iterator[str]:
        yield box(10, 150, "U, children", written(shapes["U"]), width=190)
        yield box(10, 300, "U-hat, query", written(shapes["U_hat"]), width=190)
        yield arrow("M105 214v80")
        yield text(165, 262, "PConvCaps")
        rows = (
            (20, "box", "sparse", "K_s", "V_s", "C_s", "U_s", "over the children"),
            (430, "axial-box", "axial", "K_a", "V_a", "C_a", "U_a", "over the parameters"),
        )
        for y, kind, name, key, value, coupling, out, over in rows:
            upper, lower = (y, y + 84)
            yield box(300, upper, f"{key}, keys", written(shapes[key]), kind, 190)
            yield box(300, lower, f"{value}, values", written(shapes[value]), kind, 190)
            yield box(570, upper, f"{coupling}, couplings", written(shapes[coupling]), kind, 230)
            yield box(870, lower, f"{out} = g(S)", written(shapes[out]), kind, 190)
            yield arrow(f"M200 182C250 182 250 {upper + 32} 296 {upper + 32}")
            yield arrow(f"M200 182C250 182 250 {lower + 32} 296 {lower + 32}")
            yield arrow(f"M490 {upper + 32}h76")
            yield arrow(f"M200 332H505C545 332 525 {upper + 50} 566 {upper + 50}")
            yield arrow(f"M490 {lower + 40}h376")
            yield arrow(f"M800 {upper + 32}C840 {upper + 32} 840 {lower + 20} 866 {lower + 20}")
            yield text(685, upper + 88, f"entmax {over}", "small axial" if name == "axial" else "small")
        yield box(870, 260, "U, parents", written(shapes["U_next"]), width=190)
        yield arrow("M965 168v88")
        yield arrow("M965 514C1090 514 1090 292 1064 292")
        yield text(990, 220, "+")

    return page(1110, 600, "SAA routing: sparse attention over children, axial attention over parameters", parts())


def draw_all() -> dict[str, str]:
    """The figures by the names of their files."""
    shapes = shapes_of_first_cell()
    return {"pconvcaps.svg": draw_pconvcaps(shapes), "saa.svg": draw_saa(shapes)}


if __name__ == "__main__":
    for file, drawn in draw_all().items():
        (ASSETS / file).write_text(drawn, encoding="utf-8")
