"""NIfTI: slices by number, values, and the orientation in which a radiologist reads them."""

import gzip
from pathlib import Path

import nibabel
import numpy as np
import pytest

from parsecaps.data.reading import image_size, look_into, read_image, read_mask
from tests.data.image_files import grey, write_nifti
from tests.messages import refused

VOXELS = np.arange(4 * 5 * 6, dtype=np.int16).reshape(4, 5, 6)


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
def test_slices(tmp_path: Path, name: str) -> None:
    path = write_nifti(tmp_path / name, VOXELS)
    assert look_into(path).frames == 6
    assert image_size(path) == (5, 4)
    for number in range(6):
        assert np.array_equal(read_image(path, number).pixels, VOXELS[:, :, number].T)
    assert read_image(path, 0).full_range is None
    with refused(ValueError):
        read_image(path)


@pytest.mark.parametrize("name", ["a.nii", "a.nii.gz"])
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("other", ["a", "a.bin", "b.nii", "b.nii.gz"])
def test_any_name_will_do(tmp_path: Path, name: str, kind: type, other: str) -> None:
    nibabel.save(kind(VOXELS, np.eye(4)), tmp_path / name)
    wanted = read_image(tmp_path / name, 4).pixels
    path = (tmp_path / name).rename(tmp_path / other)
    assert look_into(path).frames == 6
    assert np.array_equal(read_image(path, 4).pixels, wanted)


@pytest.mark.parametrize("code", ["LPS", "RAS", "LAS", "PSR", "SRA", "AIL", "RSA", "IPL"])
def test_orientation(tmp_path: Path, code: str) -> None:
    """The value of a voxel says where it is; rows must run to the back or feet, columns to the left or back."""
    codes = nibabel.orientations.axcodes2ornt(tuple(code))
    affine = np.zeros((4, 4))
    for axis, (world, direction) in enumerate(codes):
        affine[int(world), axis] = direction * 2
    affine[3, 3] = 1
    path = write_nifti(tmp_path / "a.nii", VOXELS, affine)
    seen = read_image(path, 3).pixels
    assert seen.shape == image_size(path)

    def position(value: int) -> np.ndarray:
        index = np.argwhere(value == VOXELS)[0]
        return affine[:3, :3] @ index * [-1, -1, 1]  # to the left, to the back, to the head

    down, right = position(seen[1, 0]) - position(seen[0, 0]), position(seen[0, 1]) - position(seen[0, 0])
    through = set(code) & set({0: "LR", 1: "AP", 2: "SI"}[int(codes[2][0])])
    assert down.tolist() == ([0, 2, 0] if through <= set("SI") else [0, 0, -2])
    assert right.tolist() == ([0, 2, 0] if through <= set("LR") else [2, 0, 0])


def test_two_axes_slope_and_bytes(tmp_path: Path) -> None:
    image = nibabel.Nifti1Image(VOXELS[:, :, 0], np.diag([-1.0, -1, 1, 1]))
    image.header.set_slope_inter(0.5, 10)
    nibabel.save(image, tmp_path / "a.nii")
    scaled = nibabel.load(tmp_path / "a.nii").get_fdata()
    assert np.allclose(read_image(tmp_path / "a.nii").pixels, scaled.T)
    raw = read_image(write_nifti(tmp_path / "b.nii.gz", grey()))
    assert np.array_equal(raw.pixels, grey().T)
    assert raw.full_range == (0, 255)
    assert read_image(write_nifti(tmp_path / "c.nii", VOXELS[:, :, :1, None]), 0).pixels.shape == (5, 4)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = write_nifti(tmp_path / "a.nii.gz", VOXELS)
    read_image(path, 0)
    write_nifti(path, np.concatenate([VOXELS, VOXELS], axis=2) + 1)
    assert np.array_equal(read_image(path, 7).pixels, VOXELS[:, :, 1].T + 1)


def test_mask(tmp_path: Path) -> None:
    mask = (VOXELS % 3 == 0).astype(np.uint8)
    assert np.array_equal(read_mask(write_nifti(tmp_path / "a.nii.gz", mask), 2), mask[:, :, 2].T == 1)


def test_bad_volumes(tmp_path: Path) -> None:
    four = write_nifti(tmp_path / "four.nii", np.stack([VOXELS, VOXELS], axis=3))
    with refused(ValueError):
        read_image(four, 0)
    nan = VOXELS.astype(np.float32)
    nan[0, 0, 1], nan[1, 1, 1] = np.nan, np.inf
    path = write_nifti(tmp_path / "nan.nii", nan)
    assert read_image(path, 0).pixels.shape == (5, 4)
    with refused(ValueError):
        read_image(path, 1)
    complex_ = write_nifti(tmp_path / "complex.nii", VOXELS.astype(np.complex64))
    with refused(ValueError):
        read_image(complex_, 0)


def test_a_small_file_that_unpacks_to_too_much(tmp_path: Path) -> None:
    header = nibabel.Nifti1Header()
    header.set_data_shape((10_000, 10_000, 1000))
    header.set_data_dtype(np.int16)
    header["magic"], header["vox_offset"] = b"n+1", 352
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(header.binaryblock + bytes(100_000)))
    with refused(ValueError):
        read_image(tmp_path / "a.nii.gz", 0)
    header.set_data_shape((30_000, 30_000))
    (tmp_path / "b.nii.gz").write_bytes(gzip.compress(header.binaryblock + bytes(100_000)))
    with refused(ValueError):
        image_size(tmp_path / "b.nii.gz")
