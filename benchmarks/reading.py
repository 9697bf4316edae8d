"""What does it cost to read files in processes of their own? Images per second, beside reading them in this one."""

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from benchmarks.timing import Effort, best_seconds
from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import READERS, RawImage, decode_image, in_shares, read_image

_SIDE = 224


@dataclass(frozen=True)
class ReadingSpeed:
    """Images per second, read and prepared: one after another in this process, and by the readers."""

    kind: str
    here: float
    readers: float

    @property
    def ratio(self) -> float:
        return self.readers / self.here


def time_reading(effort: Effort, *, files: int = 64) -> list[ReadingSpeed]:
    """Small and large JPEG files, PNG and DICOM, each kind drawn once, the two ways taking turns."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, (write, count) in _kinds(files).items():
            paths = [Path(folder) / f"{i}-{kind.replace(' ', '-')}" for i in range(count)]
            for i, path in enumerate(paths):
                write(path, np.random.default_rng(i))
            best = _both_ways(paths, effort)
            rows.append(ReadingSpeed(kind, count / best["here"], count / best["readers"]))
    return rows


def _both_ways(paths: list[Path], effort: Effort) -> dict[str, float]:
    with ThreadPoolExecutor(READERS) as threads:
        ways = {"here": lambda: [*map(_here, paths)], "readers": lambda: in_shares(threads, _asked, paths)}
        return best_seconds(ways, effort)


def _kinds(files: int) -> dict[str, tuple[Callable[[Path, np.random.Generator], None], int]]:
    return {
        "JPEG of 128 px": (lambda path, random: _picture(random, 128, 128).save(path, "JPEG"), files),
        "PNG of 512 px": (lambda path, random: _picture(random, 512, 512).save(path, "PNG"), files),
        "JPEG of 12 million px": (lambda path, random: _picture(random, 4000, 3000).save(path, "JPEG"), files // 8),
        "DICOM of 512 px": (_write_dicom, files),
    }


def _picture(random: np.random.Generator, width: int, height: int) -> Image.Image:
    coarse = random.integers(0, 256, (32, 32, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def _write_dicom(path: Path, random: np.random.Generator) -> None:
    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID = CTImageStorage
    data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    data.Rows = data.Columns = 512
    data.SamplesPerPixel, data.PhotometricInterpretation, data.PixelRepresentation = 1, "MONOCHROME2", 1
    data.BitsAllocated, data.BitsStored, data.HighBit = 16, 16, 15
    data.WindowCenter, data.WindowWidth = 40, 400
    data.PixelData = random.integers(-1000, 1000, (512, 512), dtype=np.int16).tobytes()
    data["PixelData"].VR = "OW"
    data.save_as(path, enforce_file_format=True)


def _here(path: Path) -> None:
    _prepare(decode_image(path, None))


def _asked(path: Path) -> None:
    _prepare(read_image(path))


def _prepare(raw: RawImage) -> None:
    Preparation(_SIDE, 3).prepare(raw)
