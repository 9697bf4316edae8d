"""Pictures of tables that were measured again, as one would put them into a paper, and rows of small pictures."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from parsecaps.files.writing import write_binary
from parsecaps.report.pictures import overlay_picture
from parsecaps.report.reproduced import Figure, Measure, Row, Section

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

OURS, THEIRS = "#1f5fa8", "#c2410c"  # told apart by shape too
COLOURS = (OURS, THEIRS, "#15803d", "#7c3aed", "#525252", "#b45309", "#0e7490")
FONT: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "font.family": "DejaVu Sans",
}
_DPI = 200
_SIDE = 1.35  # inches of a picture
_LETTERS = 18  # that fit above one
_OUTLINE = "#22d3ee"


def draw_intervals(
    path: Path, sections: Sequence[Section], measures: Sequence[Measure], *, reference: str = ""
) -> None:
    """A row for each model: our figure with its 95 % interval as a dot, the published one as a diamond.

    A panel for each measure of each section; models are ordered by our figure of the first measure, and the figure of
    the reference is a thin line.
    """
    panels = [(section, measure) for section in sections for measure in measures]
    rows = max(len(section.rows) for section in sections)
    with _canvas(path, 2.1 + 2.3 * len(panels), 1.1 + 0.27 * rows) as canvas:
        axes = canvas.subplots(1, len(panels), squeeze=False)[0]
        for i, (own, (section, measure)) in enumerate(zip(axes, panels, strict=True)):
            first = i % len(measures) == 0
            _dots(own, section, measures[0], measure, reference)
            if not first:
                own.set_yticklabels([])
            own.set_title(f"{section.title}: {measure.title}" if len(sections) > 1 else "", loc="left")
        _legend(canvas, axes[0], 2, loc="outside upper left", handletextpad=0.3)


def _dots(axes: "Axes", section: Section, order: Measure, measure: Measure, reference: str) -> None:
    rows = sorted(section.rows, key=lambda row: _place(row.figures.get(order.key, Figure())))
    for y, row in enumerate(rows):
        figure = row.figures.get(measure.key, Figure())
        if figure.value is not None:
            if figure.low is not None and figure.high is not None and measure.intervals:
                axes.plot([figure.low, figure.high], [y, y], color=OURS, linewidth=1.6, solid_capstyle="butt", zorder=2)
            axes.plot(
                figure.value, y, "o", color=OURS, markersize=5, zorder=3, label="ours, 95 % interval over patients"
            )
        if figure.published is not None:
            style: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": THEIRS, "markersize": 5}
            axes.plot(figure.published, y, "D", zorder=3, label="published", linestyle="none", **style)
    found = next((row for row in rows if row.name == reference), None)
    line = found.figures.get(measure.key, Figure()).value if found is not None else None
    if line is not None:
        axes.axvline(line, color=OURS, linewidth=0.6, linestyle=":", zorder=1)
    axes.set_yticks(range(len(rows)), [_label(row) for row in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel(measure.heading)
    axes.grid(axis="x", color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)
    _clean(axes)
    _one_entry_each(axes)


def _place(figure: Figure) -> tuple[int, float]:
    """What is measured above what is only published, above what is missing."""
    if figure.value is not None:
        return 2, figure.value
    return (1, figure.published) if figure.published is not None else (0, 0.0)


def _label(row: Row) -> str:
    return row.name if not row.status else f"{row.name} ({row.status.partition(':')[0]})"


def _one_entry_each(axes: "Axes") -> None:
    """Keep one line of each kind for the legend."""
    seen: set[str] = set()
    for line in axes.get_lines():
        label = str(line.get_label())
        if label in seen:
            line.set_label("_again")
        seen.add(label)


def draw_layers(
    path: Path, layers: Mapping[str, Sequence[tuple[int, int]]], printed: Mapping[str, Sequence[Any]]
) -> None:
    """Number and dimension of the capsules from layer to layer: ours as lines, the printed ones dashed."""
    with _canvas(path, 6.6, 2.9) as canvas:
        both = canvas.subplots(1, 2)
        for k, (axes, title) in enumerate(zip(both, ("capsules n", "dimension d"), strict=True)):
            for i, (name, pairs) in enumerate(layers.items()):
                colour = COLOURS[i % len(COLOURS)]
                values = [pair[k] for pair in pairs]
                axes.plot(np.linspace(0, 1, len(values)), values, "o-", color=colour, markersize=4, label=name)
                if name in printed:
                    theirs = [pair[k] for pair in printed[name]]
                    axes.plot(
                        np.linspace(0, 1, len(theirs)),
                        theirs,
                        "D--",
                        color=colour,
                        markersize=4,
                        alpha=0.55,
                        markerfacecolor="white",
                    )
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
            axes.set_ylabel(title)
            axes.set_xticks([0, 1], ["primary", "class"])
            axes.set_xlabel("layer, from first to last")
            _clean(axes)
        both[0].plot([], [], "D--", color="0.4", markerfacecolor="white", markersize=4, label="as printed")
        _legend(canvas, both[0], 3)


def draw_curves_of(
    path: Path,
    panels: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]],
    *,
    below: str,
    beside: str,
) -> None:
    """Curves by name in a panel for each title; a name has the same colour and dashes in all of them."""
    with _canvas(path, 0.6 + 3.0 * len(panels), 3.0) as canvas:
        names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
        all_axes = canvas.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for i, (axes, (title, curves)) in enumerate(zip(all_axes, panels.items(), strict=True)):
            for name, (x, y) in curves.items():
                number = names.index(name)
                style = ("-", "--", "-.", ":")[number // len(COLOURS) % 4]
                width = 2.2 if number == 0 else 1.4
                axes.plot(x, y, style, color=COLOURS[number % len(COLOURS)], linewidth=width, label=name)
            axes.set(title=title, xlabel=below, ylabel="" if i else beside)
            axes.set_ylim(bottom=0)
            _clean(axes)
        _legend(canvas, all_axes[0], 4)


def draw_speeds(path: Path, panels: Mapping[str, Mapping[str, Mapping[tuple[str, int], float]]]) -> None:
    """Images a second on a logarithmic scale: a panel for each title, a row for each name.

    Forward passes are dots and training steps squares; hollow ones are of the smallest batch.
    """
    rows = max(len(names) for names in panels.values())
    with _canvas(path, 0.9 + 3.0 * len(panels), 1.2 + 0.33 * rows) as canvas:
        all_axes = canvas.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for axes, (title, names) in zip(all_axes, panels.items(), strict=True):
            for y, values in enumerate(reversed(list(names.values()))):
                smallest = min(size for _, size in values)
                for (phase, size), value in values.items():
                    forward = phase == "forward"
                    colour = OURS if forward else THEIRS
                    axes.plot(
                        value,
                        y + (0.12 if forward else -0.12),
                        "o" if forward else "s",
                        color=colour,
                        markerfacecolor="white" if size == smallest else colour,
                        markersize=5,
                        linestyle="none",
                        label=f"{phase}, batch {size}",
                    )
            axes.set_yticks(range(len(names)), list(reversed(list(names))))
            axes.set_ylim(-0.6, len(names) - 0.4)
            axes.set_xscale("log")
            axes.set(title=title, xlabel="images a second")
            axes.grid(axis="x", color="0.92", linewidth=0.6)
            axes.set_axisbelow(True)
            _clean(axes)
            _one_entry_each(axes)
        _legend(canvas, all_axes[0], 4, handletextpad=0.2)


@dataclass(frozen=True)
class Panel:
    """A picture: an image (C, H, W) uint8, a map (H, W) over it, the outline of a mask (H, W), and a caption."""

    image: np.ndarray
    caption: str = ""
    heat: np.ndarray | None = None
    mask: np.ndarray | None = None


def draw_panels(
    path: Path, rows: Sequence[Sequence[Panel]], *, heads: Sequence[str] = (), sides: Sequence[str] = ()
) -> None:
    """Pictures in rows; `heads` stand above the columns, `sides` beside the rows."""
    columns = max(len(row) for row in rows)
    with _canvas(path, (columns + (0.9 if sides else 0.05)) * _SIDE, len(rows) * (_SIDE + 0.05) + 0.4) as canvas:
        grid = canvas.subplots(len(rows), columns, squeeze=False)
        for i, row in enumerate(rows):
            for j in range(columns):
                axes = grid[i, j]
                axes.set(xticks=[], yticks=[])
                for spine in axes.spines.values():
                    spine.set_visible(False)
                if j >= len(row):
                    continue
                panel = row[j]
                image = torch.from_numpy(np.array(panel.image)).float() / 255
                axes.imshow(np.asarray(overlay_picture(image, panel.heat)), extent=(0, 1, 1, 0))
                if panel.mask is not None and panel.mask.any() and not panel.mask.all():
                    _outline(axes, panel.mask)
                if panel.caption:
                    axes.set_xlabel(panel.caption, fontsize=7, labelpad=2)
                if i == 0 and j < len(heads):
                    axes.set_title("\n".join(wrap(heads[j], _LETTERS)), fontsize=8)
                if j == 0 and i < len(sides):
                    axes.set_ylabel(sides[i], fontsize=8, rotation=0, ha="right", va="center")


def _outline(axes: "Axes", mask: np.ndarray) -> None:
    """Where a mask ends."""
    height, width = mask.shape
    x, y = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
    axes.contour(x, y, mask.astype(float), levels=[0.5], colors=[_OUTLINE], linewidths=0.9)


def _clean(axes: "Axes") -> None:
    """No frame above and on the right."""
    axes.spines[["top", "right"]].set_visible(False)


@contextmanager
def _canvas(path: Path, width: float, height: float) -> "Iterator[Canvas]":
    """An empty picture, in inches, which is written as PNG at the end, whole or not at all.

    It may show patients, so other users cannot open it.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Drawn  # half a second, and a cache of fonts

    with rc_context(FONT):
        canvas = Drawn(figsize=(width, height), layout="constrained")
        yield canvas
        with write_binary(path, private=True) as file:
            canvas.savefig(file, format="png", dpi=_DPI, facecolor="white")


def _legend(canvas: "Canvas", axes: "Axes", columns: int, **settings: Any) -> None:
    """The lines of one panel, which stand for those of all, above it if nothing else is said."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        canvas.legend(handles, labels, ncols=columns, frameon=False, **{"loc": "outside upper center", **settings})
