"""NIfTI slices (.nii, .nii.gz), by nibabel.

A slice is taken along the last axis and turned by the affine as a radiologist sees it: the front of the patient at the
top (the head, in a coronal or sagittal plane), the patient's left on the right. A mask needs the affine of its image.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsecaps.data.raw_image import (
    EIGHT_BIT,
    DefectError,
    Format,
    LastFiles,
    RawImage,
    check_bytes,
    check_length,
    check_size,
    is_packed,
    open_unpacked,
    pick_frame,
)

_SECOND = b"n+2\0"  # the mark of version 2, after its length


def read(path: Path, frame: int | None) -> RawImage:
    """Read a slice along the last axis, `frame` being its number."""
    voxels, slope, intercept, affine = _volume(path)
    plane = np.asarray(voxels[:, :, pick_frame(frame, voxels.shape[2])])
    full_range = None
    if (slope, intercept) != (1, 0):
        plane = plane.astype(np.float32) * np.float32(slope) + np.float32(intercept)
    elif plane.dtype == np.uint8:
        full_range = EIGHT_BIT
    first, second = _world_axes(affine)
    plane = plane[::-1] if first[1] else plane  # rows then run to the back or the feet
    plane = plane[:, ::-1] if second[1] else plane  # and columns to the patient's left or back
    return RawImage(plane if first[0] > second[0] else plane.T, full_range)


def count_frames(path: Path) -> int:
    """The number of slices."""
    image = _open(path)
    shape = _shape(image)
    _check_length(path, image, shape)
    return shape[2]


def image_size(path: Path) -> tuple[int, int]:
    """Height and width of a slice, from the header."""
    image = _open(path)
    width, height, _ = _shape(image)
    first, second = _world_axes(image.affine)
    return (width, height) if first[0] > second[0] else (height, width)


def _open(path: Path) -> Any:
    import nibabel

    packed = is_packed(path)
    if path.name.lower().endswith(".nii.gz" if packed else ".nii"):
        return nibabel.load(path, mmap="r")
    file = open_unpacked(path)  # slices are read from it later
    kind: Any = nibabel.Nifti2Image if file.read(8)[4:] == _SECOND else nibabel.Nifti1Image
    file.seek(0)
    return kind.from_file_map(kind.make_file_map({"image": file}), mmap="r")


def _shape(image: Any) -> tuple[int, int, int]:
    """(X, Y, Z) without the axes of length 1 at the end."""
    shape = [int(length) for length in image.shape]
    while len(shape) > 2 and shape[-1] == 1:
        shape.pop()
    if len(shape) not in (2, 3):
        raise DefectError(f"has {len(shape)} axes {tuple(shape)}; give a NIfTI of 2 or 3 axes, one volume without time")
    width, height, depth = (*shape, 1)[:3]
    check_size(height, width)
    return width, height, depth


@LastFiles  # a .nii.gz is unpacked; a plain .nii stays on the disk
def _volume(path: Path) -> tuple[NDArray[Any], float, float, NDArray[np.float64]]:
    """Voxels (X, Y, Z) as stored, slope and intercept of their values, and the affine."""
    image = _open(path)
    shape = _shape(image)
    stored = image.dataobj
    if stored.dtype.kind not in "iuf":
        raise DefectError(f"has voxels of type {stored.dtype}; give a NIfTI of whole or real numbers")
    _check_length(path, image, shape)
    return stored.get_unscaled().reshape(shape), float(stored.slope), float(stored.inter), image.affine


def _check_length(path: Path, image: Any, shape: tuple[int, int, int]) -> None:
    """Refuse a file that is too short for what its header says, or too long when unpacked."""
    stored = image.dataobj
    wanted = int(stored.offset) + stored.dtype.itemsize * math.prod(shape)
    if is_packed(path):
        check_bytes(wanted, "unpack it: slices of a .nii file are read one by one")
    check_length(path, wanted, f"{shape[2]:,} slices")


def _world_axes(affine: NDArray[np.float64]) -> list[tuple[int, bool]]:
    """For the first two axes: the patient's axis (0 right, 1 front, 2 head) and whether the index grows that way."""
    from nibabel.orientations import io_orientation

    finite = np.isfinite(affine).all()
    axes = io_orientation(affine)[:2] if finite else np.full((2, 2), np.nan)  # type: ignore[no-untyped-call]
    if not np.isfinite(axes).all():
        return [(0, False), (1, False)]
    return [(int(axis), direction > 0) for axis, direction in axes]


FORMAT = Format(
    name="NIfTI",
    suffixes=(".nii", ".nii.gz"),
    recognise=lambda head: head[344:348] == b"n+1\0" or head[4:8] == _SECOND,
    read=read,
    count=count_frames,
    size=image_size,
    packed=True,
)
