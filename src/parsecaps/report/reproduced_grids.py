"""Rows of small pictures side by side: images, what networks saw in them, and what they drew."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
import torch

from parsecaps.report.pictures import overlay_picture
from parsecaps.report.reproduced_pictures import FONT, new_canvas, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIDE = 1.35  # inches of a picture
_LETTERS = 18  # that fit above one
_OUTLINE = "#22d3ee"


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
    from matplotlib import rc_context

    with rc_context(FONT):
        columns = max(len(row) for row in rows)
        canvas = new_canvas((columns + (0.9 if sides else 0.05)) * _SIDE, len(rows) * (_SIDE + 0.05) + 0.4)
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
        save(canvas, path)


def _outline(axes: "Axes", mask: np.ndarray) -> None:
    """Where a mask ends."""
    height, width = mask.shape
    x, y = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
    axes.contour(x, y, mask.astype(float), levels=[0.5], colors=[_OUTLINE], linewidths=0.9)
