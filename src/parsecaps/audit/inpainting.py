"""Painting a place of an image over, so that what was there is gone and nothing new stands out.

The pixels of the place become the smoothest surface that joins those around it (Laplace's equation, each pixel the mean
of its neighbours), which has no edge of its own for a model to see.
"""

import numpy as np

_MARGIN = 0.02  # of the image's side: the rim of a thing is part of it
_TRIES = 64
_LEAST_DETAIL = 0.5  # of what lies under the mask


def widened(mask: np.ndarray) -> np.ndarray:
    """The mask (H, W) and a margin around it; an empty one stays empty."""
    from scipy.ndimage import binary_dilation

    return np.asarray(binary_dilation(mask, iterations=max(1, round(_MARGIN * mask.shape[-1]))))


def paint_over(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The image (channels, H, W) with the mask (H, W) filled from its surroundings; something must surround it.

    >>> slope = np.arange(25.0).reshape(1, 5, 5)
    >>> place = np.zeros((5, 5), bool)
    >>> place[1:4, 2:4] = True
    >>> bool(np.allclose(paint_over(np.where(place, 99.0, slope), place), slope))
    True
    """
    if mask.all():
        raise ValueError("the mask covers the whole image, so nothing is left to fill it from; give a smaller one")
    if not mask.any():
        return image.copy()
    from scipy.sparse import csc_matrix
    from scipy.sparse.linalg import splu

    number = np.full(mask.shape, -1)
    number[mask] = np.arange(mask.sum())
    rows, columns, values = [], [], []
    known = np.zeros((int(mask.sum()), len(image)))
    neighbours = np.zeros(mask.sum())
    for axis, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
        other, there = _beside(number, axis, step), _beside(np.ones(mask.shape, bool), axis, step)
        colour = np.stack([_beside(plane, axis, step) for plane in image], axis=-1)
        here, beside = mask & there, number[mask & there]
        neighbours[beside] += 1
        inner = here & (other >= 0)
        rows.append(number[inner])
        columns.append(other[inner])
        values.append(np.full(int(inner.sum()), -1.0))
        rim = here & (other < 0)
        known[number[rim]] += colour[rim]
    diagonal = np.arange(len(neighbours))
    entries = np.concatenate([neighbours, *values])
    places = np.concatenate([diagonal, *rows]), np.concatenate([diagonal, *columns])
    painted = image.copy()
    painted[:, mask] = splu(csc_matrix((entries, places))).solve(known).T
    return painted


def another_place(image: np.ndarray, mask: np.ndarray, random: np.random.Generator) -> np.ndarray | None:
    """The mask (H, W) moved to where it does not touch itself and the image (channels, H, W) is not blank.

    Its new place has at least half of the detail (the standard deviation) that lies under the mask. None where chance
    finds no such place.
    """
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    if not len(rows):
        return None
    wanted = _LEAST_DETAIL * image[:, mask].std()
    part = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    room = np.subtract(mask.shape, part.shape) + 1
    for top, left in random.integers(0, room, size=(_TRIES, 2)):
        moved = np.zeros_like(mask)
        moved[top : top + part.shape[0], left : left + part.shape[1]] = part
        if not (moved & mask).any() and image[:, moved].std() >= wanted:
            return moved
    return None


def _beside(values: np.ndarray, axis: int, step: int) -> np.ndarray:
    """What lies one step further along an axis (H, W); 0 (False) beyond the edge."""
    moved = np.roll(values, -step, axis)
    edge = [slice(None)] * 2
    edge[axis] = slice(-1, None) if step > 0 else slice(0, 1)
    moved[tuple(edge)] = 0
    return moved
