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
from parsecaps.report.reproduced import Figure, Measure, TableSection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

OURS, THEIRS = "#1f5fa8", "#c2410c"  # told apart by shape too
COLOURS = (OURS, THEIRS, "#15803d", "#7c3aed", "#525252", "#b45309", "#0e7490")
FONT: dict[Any, Any] = {
    **{"font.family": "DejaVu Sans", "legend.fontsize": 8},
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), 9),
    **{"axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False},
    **{"savefig.dpi": 200, "savefig.facecolor": "white"},
}
_SIDE = 1.35  # inches of a picture
_LETTERS = 18  # that fit above one
_OUTLINE = "#22d3ee"


def draw_intervals(
    path: Path, sections: Sequence[TableSection], measures: Sequence[Measure], *, reference: str = ""
) -> None:
    """A row for each model: our figure with its 95 % interval as a dot, the published one as a diamond.

    A panel for each measure of each section; models are ordered by our figure of the first measure, and the figure of
    the reference is a thin line.
    """
    panels = [(section, measure) for section in sections for measure in measures]
    rows = max(len(section.rows) for section in sections)
    legend: dict[str, Any] = {"ncols": 2, "loc": "outside upper left", "handletextpad": 0.3}
    with _panels(path, len(panels), 2.1 + 2.3 * len(panels), 1.1 + 0.27 * rows, **legend) as all_axes:
        for i, (axes, (section, measure)) in enumerate(zip(all_axes, panels, strict=True)):
            _dots(axes, section, measures[0], measure, reference)
            if i % len(measures):
                axes.set_yticklabels([])
            axes.set_title(f"{section.title}: {measure.title}" if len(sections) > 1 else "", loc="left")


def _dots(axes: "Axes", section: TableSection, order: Measure, measure: Measure, reference: str) -> None:
    rows = sorted(section.rows, key=lambda row: _rank(row.figure(order)))
    for y, row in enumerate(rows):
        figure = row.figure(measure)
        if figure.value is not None:
            if figure.low is not None and figure.high is not None and measure.intervals:
                axes.plot([figure.low, figure.high], [y, y], color=OURS, linewidth=1.6, solid_capstyle="butt", zorder=2)
            said = "ours, 95 % interval over patients"
            axes.plot(figure.value, y, "o", color=OURS, markersize=5, zorder=3, label=said)
        if figure.published is not None:
            style: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": THEIRS, "markersize": 5}
            axes.plot(figure.published, y, "D", zorder=3, label="published", linestyle="none", **style)
        if row.name == reference and figure.value is not None:
            axes.axvline(figure.value, color=OURS, linewidth=0.6, linestyle=":", zorder=1)
    _name_rows(axes, [f"{row.name} ({row.status.partition(':')[0]})" if row.status else row.name for row in rows])
    axes.set_xlabel(measure.heading)


def _rank(figure: Figure) -> tuple[int, float]:
    """What is measured above what is only published, above what is missing."""
    if figure.value is not None:
        return 2, figure.value
    return (1, figure.published) if figure.published is not None else (0, 0.0)


def _name_rows(axes: "Axes", names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(axis="x", color="0.92", linewidth=0.6)
    axes.set_axisbelow(True)


def draw_layers(
    path: Path, layers: Mapping[str, Sequence[tuple[int, int]]], printed: Mapping[str, Sequence[Any]]
) -> None:
    """Number and dimension of the capsules from layer to layer: ours as lines, the printed ones dashed."""
    hollow: dict[str, Any] = {"markersize": 4, "markerfacecolor": "white"}
    with _panels(path, 2, 6.6, 2.9, ncols=3) as both:
        for k, (axes, title) in enumerate(zip(both, ("capsules, or their types", "dimension d"), strict=True)):
            for i, (name, ours) in enumerate(layers.items()):
                colour, theirs = COLOURS[i % len(COLOURS)], printed.get(name, ())
                places = [np.linspace(0, 1, len(pairs)) for pairs in (ours, theirs)]
                axes.plot(places[0], [pair[k] for pair in ours], "o-", color=colour, markersize=4, label=name)
                axes.plot(places[1], [pair[k] for pair in theirs], "D--", color=colour, alpha=0.55, **hollow)
            axes.set_yscale("log", base=2)
            axes.yaxis.set_major_formatter(lambda value, place: f"{value:g}")
            axes.set_ylabel(title)
            axes.set_xticks([0, 1], ["primary", "class"])
            axes.set_xlabel("layer, from first to last")
        both[0].plot([], [], "D--", color="0.4", label="as printed", **hollow)


def draw_curves_of(
    path: Path, panels: Mapping[str, Mapping[str, tuple[np.ndarray, np.ndarray]]], *, below: str, beside: str
) -> None:
    """Curves by name in a panel for each title; a name has the same colour and dashes in all of them."""
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves))
    with _panels(path, len(panels), 0.6 + 3.0 * len(panels), 3.0, sharey=True, ncols=4) as all_axes:
        for i, (axes, (title, curves)) in enumerate(zip(all_axes, panels.items(), strict=True)):
            for name, (x, y) in curves.items():
                number = names.index(name)
                style = ("-", "--", "-.", ":")[number // len(COLOURS) % 4]
                width = 2.2 if number == 0 else 1.4
                axes.plot(x, y, style, color=COLOURS[number % len(COLOURS)], linewidth=width, label=name)
            axes.set(title=title, xlabel=below, ylabel="" if i else beside)
        all_axes[0].set_ylim(bottom=0)  # of all, once every curve is there: it ends the scaling


def draw_speeds(path: Path, panels: Mapping[str, Mapping[str, Mapping[tuple[str, int], float]]]) -> None:
    """Images a second on a logarithmic scale: a panel for each title, a row for each name.

    Forward passes are dots and training steps squares; hollow ones are of the smallest batch.
    """
    rows = max(len(names) for names in panels.values())
    width, height = 0.9 + 3.0 * len(panels), 1.2 + 0.33 * rows
    with _panels(path, len(panels), width, height, sharey=True, ncols=4, handletextpad=0.2) as all_axes:
        for axes, (title, names) in zip(all_axes, panels.items(), strict=True):
            for y, values in enumerate(reversed(list(names.values()))):
                smallest = min(size for _, size in values)
                for (phase, size), value in values.items():
                    marker, up, colour = ("o", 0.12, OURS) if phase == "forward" else ("s", -0.12, THEIRS)
                    face = "white" if size == smallest else colour
                    style: dict[str, Any] = {"color": colour, "markerfacecolor": face, "markersize": 5}
                    axes.plot(value, y + up, marker, linestyle="none", label=f"{phase}, batch {size}", **style)
            _name_rows(axes, list(reversed(list(names))))
            axes.set(title=title, xlabel="images a second", xscale="log")


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
            for j, axes in enumerate(grid[i]):
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set_visible(False)
                if j >= len(row):
                    continue
                panel = row[j]
                image = torch.from_numpy(np.array(panel.image)).float() / 255
                axes.imshow(np.asarray(overlay_picture(image, panel.heat)), extent=(0, 1, 1, 0))
                if panel.mask is not None and panel.mask.any() and not panel.mask.all():
                    y, x = ((np.arange(side) + 0.5) / side for side in panel.mask.shape)
                    axes.contour(x, y, panel.mask.astype(float), levels=[0.5], colors=[_OUTLINE], linewidths=0.9)
                if panel.caption:
                    axes.set_xlabel(panel.caption, fontsize=7, labelpad=2)
        for axes, head in zip(grid[0], heads, strict=False):
            axes.set_title("\n".join(wrap(head, _LETTERS)), fontsize=8)
        for axes, side in zip(grid[:, 0], sides, strict=False):
            axes.set_ylabel(side, fontsize=8, rotation=0, ha="right", va="center")


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
            canvas.savefig(file, format="png")


@contextmanager
def _panels(
    path: Path, count: int, width: float, height: float, *, sharey: bool = False, **legend: Any
) -> "Iterator[Sequence[Axes]]":
    """Panels side by side, without a frame above and on the right; the legend of the first stands for all, above it."""
    with _canvas(path, width, height) as canvas:
        panels: list[Axes] = list(canvas.subplots(1, count, squeeze=False, sharey=sharey)[0])
        yield panels
        handles, labels = panels[0].get_legend_handles_labels()
        entries = dict(zip(labels, handles, strict=True))  # one of each kind
        if entries:
            canvas.legend(entries.values(), entries, **{"loc": "outside upper center", **legend})
