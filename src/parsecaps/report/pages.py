"""What pages are made of: templates filled to files that need nothing but themselves, and line charts as numbers."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsecaps.files.writing import write_binary

if TYPE_CHECKING:
    from jinja2 import Environment


WIDTH, HEIGHT = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 46


def plain_markdown(text: object) -> str:
    r"""Text as it is, on one line, whatever signs of Markdown or HTML are in it.

    >>> plain_markdown("a|b <i> [x](y)")
    'a\\|b \\<i\\> \\[x\\](y)'
    """
    return re.sub(r"([\\`*_|<>\[\]#~])", r"\\\1", " ".join(str(text).split()))


def render(template: str, **content: Any) -> str:
    """Fill a template of `report/templates`; text in HTML is escaped, an unknown name is an error.

    Markdown has the filter `plain` for text that someone else chose.
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
    environment.filters["plain"] = plain_markdown
    return environment


@dataclass(frozen=True)
class Line:
    """A line by its name: `points` as SVG writes them, `dashed` for what others are compared with."""

    name: str
    colour: str
    dashed: bool
    points: str


@dataclass(frozen=True)
class Chart:
    """Lines over a few places, in pixels; `alt` says in words what they show."""

    alt: str
    below: str
    beside: str
    columns: list[tuple[float, str]]
    rows: list[tuple[float, str]]
    lines: list[Line]


def line_chart(
    title: str,
    lines: Mapping[str, Sequence[float]],
    colours: Sequence[str],
    *,
    below: str,
    beside: str,
    labels: Sequence[str],
    low: float = 0.0,
    high: float = 1.0,
    dashed: Sequence[str] = (),
) -> Chart:
    """Lines by name over evenly spaced places; a place has a label or a blank one. Values run from `low` to `high`.

    >>> chart = line_chart("a", {"x": [0, 1]}, ["red"], below="", beside="", labels=["0", "1"])
    >>> chart.lines[0].points
    '46.0,204.0 368.0,12.0'
    """
    count = len(labels)

    def x(i: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * i / max(count - 1, 1)

    def y(value: float) -> float:
        inside = min(max(value, low), high)
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - inside) / (high - low)

    drawn = []
    described = []
    for i, (name, values) in enumerate(lines.items()):
        points = " ".join(f"{x(j):.1f},{y(value):.1f}" for j, value in enumerate(values))
        drawn.append(Line(name, colours[i % len(colours)], name in dashed, points))
        described.append(f"{name} from {values[0]:.2f} to {values[-1]:.2f}")
    ticks = [low + (high - low) * k / 4 for k in range(5)]
    return Chart(
        alt=f"{title}: {'; '.join(described)}",
        below=below,
        beside=beside,
        columns=[(round(x(j), 1), label) for j, label in enumerate(labels) if label],
        rows=[(round(y(tick), 1), f"{tick:.2g}") for tick in ticks],
        lines=drawn,
    )


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
