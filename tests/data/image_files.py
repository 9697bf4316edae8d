"""Writes real files of every format that the reader knows, for the tests."""

import gzip
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import scipy.io
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import (
    UID,
    ExplicitVRLittleEndian,
    JPEG2000Lossless,
    RLELossless,
    SecondaryCaptureImageStorage,
    generate_uid,
)


def grey(height: int = 12, width: int = 20, levels: int = 256) -> NDArray[Any]:
    """A picture in which every row and column is different, brightest in the lower right corner."""
    rows, columns = np.mgrid[:height, :width]
    values = (rows * width + columns) * (levels - 1) // (height * width - 1)
    return values.astype(np.uint8 if levels <= 256 else np.uint16)


def colour(height: int = 12, width: int = 20) -> NDArray[Any]:
    """Three different channels."""
    plane = grey(height, width)
    return np.stack([plane, plane[::-1], 255 - plane], axis=2)


def dicom(pixels: NDArray[Any], *, syntax: UID = ExplicitVRLittleEndian, frames: int = 1, **attributes: Any) -> Dataset:
    """A data set with these pixels: (H, W), (H, W, 3), or (frames, H, W)."""
    shape = pixels.shape[1:] if frames > 1 else pixels.shape
    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=["test"])
    data.Rows, data.Columns = shape[:2]
    data.SamplesPerPixel = 3 if len(shape) == 3 else 1
    data.PhotometricInterpretation = "RGB" if len(shape) == 3 else "MONOCHROME2"
    if len(shape) == 3:
        data.PlanarConfiguration = 0
    if frames > 1:
        data.NumberOfFrames = frames
    data.BitsAllocated = data.BitsStored = pixels.dtype.itemsize * 8
    data.HighBit = data.BitsStored - 1
    data.PixelRepresentation = int(pixels.dtype.kind == "i")
    data.PixelData = pixels.tobytes()
    data["PixelData"].VR = "OW" if data.BitsAllocated > 8 else "OB"
    for name, value in attributes.items():
        setattr(data, name, value)
    if syntax != ExplicitVRLittleEndian:
        data.compress(syntax, generate_instance_uid=False)
    return data


def write_dicom(path: Path, pixels: NDArray[Any], **attributes: Any) -> Path:
    dicom(pixels, **attributes).save_as(path, enforce_file_format=True)
    return path


def write_cemri(path: Path, image: NDArray[Any], mask: NDArray[Any]) -> Path:
    with h5py.File(path, "w") as file:
        file["cjdata/image"] = image.T
        file["cjdata/tumorMask"] = mask.T.astype(np.uint8)
        file["cjdata/label"] = np.array([[2.0]])
    return path


def write_idx(path: Path, images: NDArray[np.uint8]) -> Path:
    header = b"\x00\x00\x08\x03" + np.array(images.shape, ">u4").tobytes()
    with gzip.GzipFile(path, "wb", mtime=0) as file:
        file.write(header + images.tobytes())
    return path


def write_affnist(path: Path, images: NDArray[np.uint8], *, compressed: bool = True) -> Path:
    """Digits (N, 40, 40), each a column of 1600 pixels, row by row."""
    labels = np.arange(len(images), dtype=np.uint8)[None] % 10
    data = {"image": images.reshape(len(images), 1600).T, "label_int": labels}
    scipy.io.savemat(path, {"affNISTdata": data}, do_compression=compressed)
    return path


def write_nifti(path: Path, voxels: NDArray[Any], affine: NDArray[np.float64] | None = None) -> Path:
    nibabel.save(nibabel.Nifti1Image(voxels, np.diag([-1.0, -1, 1, 1]) if affine is None else affine), path)
    return path


def write_samples(folder: Path) -> dict[str, Path]:
    """One small file of every format and of the main kinds within it."""
    digits = np.stack([grey(40, 40), grey(40, 40)[::-1]])
    for name in ("grey.png", "grey.jpg", "grey.bmp", "grey.tif"):
        Image.fromarray(grey()).save(folder / name)
    Image.fromarray(colour()).save(folder / "colour.jpg", quality=95, exif=_turned())
    Image.fromarray(colour()).convert("P").save(folder / "palette.png", transparency=3)
    Image.fromarray(grey(levels=65536)).save(folder / "deep.png")
    Image.fromarray(grey()).save(folder / "packed.tif", compression="tiff_lzw", save_all=True)
    write_dicom(folder / "grey.dcm", grey(levels=4096).astype(np.int16), WindowCenter=2000, WindowWidth=1000)
    write_dicom(folder / "rle.dcm", grey(), syntax=RLELossless)
    write_dicom(folder / "j2k.dcm", grey(48, 64), syntax=JPEG2000Lossless)
    write_nifti(folder / "volume.nii", np.stack([grey(levels=4096)] * 3, axis=2).astype(np.int16))
    write_nifti(folder / "volume.nii.gz", np.stack([grey(levels=4096)] * 3, axis=2).astype(np.float32))
    write_cemri(folder / "slice.mat", grey(levels=4096).astype(np.int16), grey() > 128)
    write_idx(folder / "two-images-idx3-ubyte.gz", digits)
    write_affnist(folder / "digits.mat", digits)
    write_affnist(folder / "plain.mat", digits, compressed=False)
    return {path.name: path for path in sorted(folder.iterdir())}


def _turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif
