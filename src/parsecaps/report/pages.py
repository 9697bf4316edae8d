"""What pages are made of: templates filled to files that need nothing but themselves, and line charts as numbers."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsecaps.files.writing import write_binary
from parsecaps.report.draw import draw, html_cell, plain_markdown
from parsecaps.types import LineChart

if TYPE_CHECKING:
    from jinja2 import Environment


COLOURS = ("#2f6fb2", "#d1622b", "#1d7a46", "#8b4fb0", "#b8860b", "#c2326a", "#2a9a9a", "#6b7280", "#7a4b2a", "#4b5bd6")
WIDTH, HEIGHT = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 46


def render(template: str, **content: Any) -> str:
    """Fill a template of `report/templates`; text in HTML is escaped, an unknown name is an error.

    The filter `plain` is for Markdown that someone else chose; `cell`, `draw` and `chart` are for results.
    """
    return _environment().get_template(template).render(**content)


@cache
def template_text(name: str) -> str:
    """A file of `report/templates` as it is."""
    return (files("parsecaps.report") / "templates" / name).read_text(encoding="utf-8")


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("parsecaps.report"),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"plain": plain_markdown, "cell": html_cell, "chart": line_chart, "draw": draw}
    return environment


def line_chart(found: LineChart) -> dict[str, Any]:
    """A line chart for `charts.html`: lines as SVG points, ticks in pixels, and what it shows in words (`alt`).

    >>> line_chart(LineChart("a", {"x": [0, 1]}, ["0", "1"], below="", beside=""))["lines"][0]["points"]
    '46.0,204.0 368.0,12.0'
    """
    count, low, high = len(found.labels), found.low, 1.0

    def x(i: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * i / max(count - 1, 1)

    def y(value: float) -> float:
        inside = min(max(value, low), high)
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - inside) / (high - low)

    lines = []
    described = []
    for i, (name, values) in enumerate(found.lines.items()):
        points = " ".join(f"{x(j):.1f},{y(value):.1f}" for j, value in enumerate(values))
        colour = COLOURS[i % len(COLOURS)]
        lines.append({"name": name, "colour": colour, "dashed": name in found.dashed, "points": points})
        described.append(f"{name} from {values[0]:.2f} to {values[-1]:.2f}")
    ticks = [low + (high - low) * k / 4 for k in range(5)]
    return {
        **{"title": found.title, "below": found.below, "beside": found.beside, "lines": lines},
        "alt": f"{found.title}: {'; '.join(described)}",
        "columns": [(round(x(j), 1), label) for j, label in enumerate(found.labels) if label],
        "rows": [(round(y(tick), 1), f"{tick:.2g}") for tick in ticks],
    }


def draw_curves(path: Path, history: Sequence[Mapping[str, float]], best: int) -> None:
    """Loss and accuracy over the epochs as a PNG, with the chosen epoch marked."""
    from matplotlib.figure import Figure  # half a second, and a cache of fonts

    figure = Figure(figsize=(10, 4), layout="constrained")
    epochs = [row["epoch"] for row in history]
    for axes, lines in zip(
        figure.subplots(1, 2),
        (("train_loss", "val_loss"), ("train_accuracy", "val_accuracy", "val_balanced_accuracy")),
        strict=True,
    ):
        for name in lines:
            if name in history[0]:
                label = name.replace("val", "validation").replace("train", "training").replace("_", " ")
                axes.plot(epochs, [row[name] for row in history], marker="." if len(epochs) < 20 else "", label=label)
        axes.axvline(epochs[best], color="0.6", linestyle=":", label=f"chosen: epoch {epochs[best]:.0f}")
        axes.set(xlabel="epoch", ylabel=lines[0].rpartition("_")[2])
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    with write_binary(path, private=True) as file:
        figure.savefig(file, format="png", dpi=120)
