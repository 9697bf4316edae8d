"""Line charts as plain numbers, for templates to draw as SVG within a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 46


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
    places = len(labels)

    def x(i: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * i / max(places - 1, 1)

    def y(value: float) -> float:
        inside = min(max(value, low), high)
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - inside) / (high - low)

    drawn = []
    said = []
    for i, (name, values) in enumerate(lines.items()):
        points = " ".join(f"{x(j):.1f},{y(value):.1f}" for j, value in enumerate(values))
        drawn.append(Line(name, colours[i % len(colours)], name in dashed, points))
        said.append(f"{name} from {values[0]:.2f} to {values[-1]:.2f}")
    ticks = [low + (high - low) * k / 4 for k in range(5)]
    return Chart(
        alt=f"{title}: {'; '.join(said)}",
        below=below,
        beside=beside,
        columns=[(round(x(j), 1), label) for j, label in enumerate(labels) if label],
        rows=[(round(y(tick), 1), f"{tick:.2g}") for tick in ticks],
        lines=drawn,
    )
