"""The one way in: formats by content, errors of one line, and nothing else however broken a file is."""

import threading
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from struct import pack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from parsecaps.data.reading import image_size, look_into, mislabelled, read_image, read_mask
from tests.data.image_files import grey, write_samples
from tests.messages import LIBRARY, message, refused


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_samples(tmp_path_factory.mktemp("samples"))


def png(width: int, height: int, data: bytes) -> bytes:
    """A PNG of 8 bits of grey."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return pack(">I", len(body)) + kind + body + pack(">I", zlib.crc32(kind + body))

    header = pack(">2I5B", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_size_and_frames_agree_with_the_image(samples: dict[str, Path]) -> None:
    for path in samples.values():
        frames = look_into(path).frames
        raw = read_image(path, frames - 1)
        assert raw.pixels.shape[:2] == image_size(path), path.name
        assert read_mask(path, frames - 1).shape == image_size(path), path.name
        assert mislabelled(path) is None
        assert raw.pixels.flags.c_contiguous
        assert raw.pixels.flags.writeable


def test_few_formats_name_a_patient(samples: dict[str, Path], data_root: Path) -> None:
    assert {look_into(path).patient for path in samples.values()} == {""}
    assert look_into(data_root / "cemri" / "1.mat").patient == "100360"


def test_the_name_does_not_matter_but_is_reported(samples: dict[str, Path], tmp_path: Path) -> None:
    fake = tmp_path / "a.jpg"
    fake.write_bytes(samples["grey.png"].read_bytes())
    assert np.array_equal(read_image(fake).pixels, grey())
    message(mislabelled(fake))
    nameless = tmp_path / "IM0001"
    nameless.write_bytes(samples["grey.dcm"].read_bytes())
    assert read_image(nameless).full_range is not None
    assert mislabelled(nameless) is None


BAD = {
    "empty.png": b"",
    "text.png": b"<html>404</html>",
    "cut.png": png(9, 9, zlib.compress(bytes(90)))[:46],
    "giant.png": png(30_000, 30_000, b""),
    "large.png": png(13_000, 10_000, zlib.compress(bytes(10**6))),
    "wide.png": png(4_000_000_000, 1, b""),
    "broken.jpg": b"\xff\xd8\xff\xe0" + bytes(100),
    "packed.png": b"\x1f\x8b\x08\x00garbage",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(BAD[name])
    with refused(ValueError, hide=LIBRARY):
        read_image(path)


def test_giant_tiff(tmp_path: Path) -> None:
    Image.new("1", (12_001, 10_000)).save(tmp_path / "a.tif", compression="group4")
    for function in (read_image, image_size):
        with refused(ValueError):
            function(tmp_path / "a.tif")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for function in (read_image, read_mask, look_into, image_size, mislabelled):
        with refused(FileNotFoundError):
            function(tmp_path / "a.png")
        with refused(ValueError):
            function(tmp_path)


def test_half_a_file_is_refused(samples: dict[str, Path], tmp_path: Path) -> None:
    for path in samples.values():
        half = tmp_path / path.name
        half.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with refused(ValueError, hide=LIBRARY):
            read_image(half, 0)


def complaint(function: Callable[[Path], object], path: Path) -> str | None:
    """What the ValueError says, or None without one; any other exception or a warning fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            function(path)
        except ValueError as error:
            return str(error)
    return None


def check_survives(path: Path) -> None:
    """Every function gives its result or one line that names the file."""
    for function in (image_size, look_into, lambda file: read_image(file, 0), read_mask):
        message = complaint(function, path)
        assert message is None or (message.startswith(f"{path} ") and "\n" not in message)


SAMPLES = [
    *("grey.png", "palette.png", "deep.png", "grey.jpg", "colour.jpg", "grey.bmp", "grey.tif", "packed.tif"),
    *("grey.dcm", "rle.dcm", "j2k.dcm", "volume.nii", "volume.nii.gz", "slice.mat", "digits.mat", "plain.mat"),
    "two-images-idx3-ubyte.gz",
]


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data())
def test_any_damage_is_survived(name: str, samples: dict[str, Path], data: st.DataObject) -> None:
    whole = bytearray(samples[name].read_bytes())
    head = st.integers(0, min(len(whole), 600) - 1)  # most of the damage where it hurts most
    for place in data.draw(st.lists(head | st.integers(0, len(whole) - 1), max_size=6)):
        whole[place] ^= 1 << data.draw(st.integers(0, 7))
    end = data.draw(st.just(len(whole)) | st.integers(0, len(whole)))
    damaged = samples[name].with_name(f"damaged-{name}")
    damaged.write_bytes(whole[:end])
    check_survives(damaged)


@given(start=st.sampled_from(SAMPLES), noise=st.binary(max_size=300), kept=st.integers(0, 600))
def test_noise_is_survived(samples: dict[str, Path], start: str, noise: bytes, kept: int) -> None:
    damaged = samples[start].with_name(f"noise-{start}")
    damaged.write_bytes(samples[start].read_bytes()[:kept] + noise)
    check_survives(damaged)


def test_threads_leave_the_warning_filters_alone(samples: dict[str, Path]) -> None:
    before = list(warnings.filters)
    threads = [threading.Thread(target=lambda: [read_image(samples["grey.png"]) for _ in range(30)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(warnings.filters) == before
