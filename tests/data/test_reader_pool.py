"""Files that lie about themselves, and readers that crash, hang or want too much: each is refused in a line."""

import gzip
import os
import signal
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import pytest
from PIL import Image
from pydicom import dcmread
from pydicom.uid import DeflatedExplicitVRLittleEndian, JPEG2000Lossless

from parsecaps.data import reader_pool, reader_process
from parsecaps.data.raw_image import DefectError, RawImage
from parsecaps.data.reader_pool import RefusedError, call
from parsecaps.data.reading import look_into, prepare_image, read_image
from tests.attack.crafted import zlib_bomb
from tests.data.image_files import grey, write_cemri, write_dicom, write_idx
from tests.messages import refused


def crash(path: Path, number: int) -> None:
    os.kill(os.getpid(), number)


def hang(path: Path) -> None:
    while True:
        pass


def sleep(path: Path) -> None:
    time.sleep(60)


def allocate(path: Path, num_bytes: int) -> int:
    return len(bytearray(num_bytes))


def print_much(path: Path) -> str:
    os.write(1, b"printed" * 1000)
    print("more")
    return "answer"


def limits(path: Path) -> list[Any]:
    return [np.zeros((0, 3), np.float32), np.ones((2, 2), bool), None, float("inf"), "\udce9"]


def process_id(path: Path) -> int:
    return os.getpid()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT])
def test_a_crash_refuses_the_file_and_the_next_one_is_read(tmp_path: Path, number: signal.Signals) -> None:
    with refused(RefusedError):
        call(crash, tmp_path, int(number))
    assert call(print_much, tmp_path) == "answer"


def test_a_reader_that_was_killed_while_it_waited_is_replaced(tmp_path: Path) -> None:
    first = call(process_id, tmp_path)
    os.kill(first, signal.SIGKILL)
    assert call(process_id, tmp_path) != first


def test_an_answer_that_nobody_waited_for_is_not_that_to_the_next_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(reader_pool, "receive", interrupt)
        with pytest.raises(KeyboardInterrupt):
            call(process_id, tmp_path)
    assert call(print_much, tmp_path) == "answer"


def test_what_never_returns_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_pool, "_WALL_SECONDS", 1.0)
    for function in (sleep, hang):
        with refused(RefusedError):
            call(function, tmp_path)


def test_too_much_computing_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_pool, "_pool", reader_pool._Pool())  # readers that have the shorter limit
    shorter = "from parsecaps.data import reader_process; reader_process.CPU_SECONDS = 1; main()"
    monkeypatch.setattr(reader_pool, "_START", reader_pool._START.replace("main()", shorter))
    try:
        with refused(RefusedError):
            call(hang, tmp_path)
    finally:
        reader_pool._pool.close()


def test_memory_is_limited(tmp_path: Path) -> None:
    with refused(RefusedError):
        call(allocate, tmp_path, reader_process.MEMORY_BYTES + 2**20)
    assert call(allocate, tmp_path, 2**20) == 2**20


def test_of_large_images_one_at_a_time_is_in_memory(tmp_path: Path) -> None:
    for name in "abcd":
        Image.new("L", (8200, 8200)).save(tmp_path / f"{name}.png")  # just above the limit
    here = most = 0

    def prepare(raw: RawImage) -> int:
        nonlocal here, most
        here += 1
        most = max(most, here)
        time.sleep(0.05)
        here -= 1
        return raw.pixels.shape[0]

    with ThreadPoolExecutor(4) as threads:
        sides = list(threads.map(lambda path: prepare_image(path, None, prepare), sorted(tmp_path.iterdir())))
    assert sides == [8200] * 4
    assert most == 1


def test_any_value_comes_back(tmp_path: Path) -> None:
    empty, flags, nothing, infinite, text = call(limits, tmp_path)
    assert (empty.shape, empty.dtype) == ((0, 3), np.float32)
    assert flags.dtype == bool
    assert flags.all()
    assert (nothing, infinite, text) == (None, float("inf"), "\udce9")


def test_several_threads_have_several_readers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(reader_pool.READERS) as threads:
        numbers = list(threads.map(lambda _: call(process_id, tmp_path), range(50)))
    assert 1 <= len(set(numbers)) <= reader_pool.READERS


def write_j2k(path: Path, change: Any) -> Path:
    """A DICOM whose JPEG 2000 frame was changed."""
    write_dicom(path, grey(48, 64), syntax=JPEG2000Lossless)
    raw = bytearray(path.read_bytes())
    change(raw, raw.index(b"\xff\x4f\xff\x51"))
    path.write_bytes(raw)
    return path


def boxed_for_ever(raw: bytearray, start: int) -> None:
    raw[start : start + 20] = b"\0\0\0\x0cjP  \r\n\x87\n" + b"\0\0\0\0ftyp"


def test_a_header_that_claims_too_much_is_refused_as_a_whole(tmp_path: Path) -> None:
    nifti = nibabel.Nifti2Header()
    nifti.set_data_shape((64, 64, 10**12))
    nifti["magic"], nifti["vox_offset"] = b"n+2\0\r\n\x1a\n", 544
    (tmp_path / "a.nii").write_bytes(nifti.binaryblock + bytes(1000))
    (tmp_path / "b.nii.gz").write_bytes(gzip.compress(nifti.binaryblock + bytes(1000)))
    (tmp_path / "c-ubyte").write_bytes(b"\0\0\x08\x03" + struct.pack(">3I", 2**31 - 1, 1, 1))
    (tmp_path / "d-ubyte").write_bytes(b"\0\0\x08\x03" + struct.pack(">3I", 2**25, 4, 4))
    for name, frames in (("e", 2**31 - 1), ("f", -5), ("g", 3_000_000)):
        write_dicom(tmp_path / f"{name}.dcm", grey(), NumberOfFrames=frames)
    names = ["a.nii", "b.nii.gz", "c-ubyte", "d-ubyte", "e.dcm", "f.dcm", "g.dcm"]
    for name in names:
        with refused(ValueError):
            look_into(tmp_path / name)


def test_a_compressed_frame_is_measured_before_it_is_decoded(tmp_path: Path) -> None:
    def larger(raw: bytearray, start: int) -> None:
        raw[start + 8 : start + 16] = struct.pack(">2I", 60_000, 60_000)

    began = time.monotonic()
    with refused(ValueError):
        read_image(write_j2k(tmp_path / "a.dcm", larger))
    with refused(ValueError):
        read_image(write_j2k(tmp_path / "b.dcm", boxed_for_ever))
    assert time.monotonic() - began < 20  # pydicom would look for the end of the second one for ever


def test_a_file_that_inflates_is_refused(tmp_path: Path) -> None:
    path = write_dicom(tmp_path / "a.dcm", grey())
    data = dcmread(path)
    data.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    data.save_as(path)
    data = dcmread(path)
    with open(path, "rb") as file:
        raw = file.read()
    start = 132 + 12 + data.file_meta.FileMetaInformationGroupLength
    inflated = zlib.decompress(raw[start:], wbits=-15)
    with open(path, "wb") as file:
        header = inflated[: inflated.index(b"\xe0\x7f\x10\x00")]
        bomb = zlib_bomb(header + b"\xe0\x7f\x10\x00OB\0\0" + struct.pack("<I", 2**31), 60 * 2**24)
        file.write(raw[:start] + bomb[2:-4])  # without the header and checksum of zlib
    with refused(ValueError):
        look_into(path)


def test_hdf5_does_not_read_other_files(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(range(240)))
    path = write_cemri(tmp_path / "a.mat", grey().astype(np.int16), grey() > 9)
    with h5py.File(path, "a") as file:
        del file["cjdata/image"]
        file.create_dataset("cjdata/image", (20, 12), np.uint8, external=[(str(secret), 0, 240)])
    with refused(ValueError):
        read_image(path)
    with h5py.File(path, "a") as file:
        del file["cjdata/image"]
        layout = h5py.VirtualLayout((20, 12), np.int16)
        layout[:] = h5py.VirtualSource(str(secret), "x", (20, 12))
        file.create_virtual_dataset("cjdata/image", layout)
    with refused(ValueError):
        read_image(path)
    with h5py.File(path, "a") as file:
        del file["cjdata/image"]
        file["cjdata/image"] = h5py.ExternalLink(str(secret), "x")
    with refused(ValueError):
        read_image(path)


@pytest.mark.parametrize(("name", "value"), [("WindowCenter", "nan"), ("WindowWidth", "inf"), ("RescaleSlope", "nan")])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, name: str, value: str) -> None:
    given = {"WindowCenter": "100", "WindowWidth": "50", name: "1" + "0" * (len(value) - 1)}
    path = write_dicom(tmp_path / "a.dcm", grey(), **given)
    raw = path.read_bytes()
    place = dcmread(path).get_item(name).value_tell
    path.write_bytes(raw[:place] + value.encode() + raw[place + len(value) :])
    with refused(ValueError):
        read_image(path)


def test_pages_of_a_tiff_take_a_step_each(tmp_path: Path) -> None:
    def seconds(pages: int) -> float:
        path = tmp_path / f"{pages}.tif"
        plain = [Image.fromarray(np.full((4, 4), page % 256, np.uint8)) for page in range(pages)]
        plain[0].save(path, save_all=True, append_images=plain[1:])
        began = time.monotonic()
        for page in range(pages):
            assert read_image(path, page).pixels[0, 0] == page % 256
        return time.monotonic() - began

    assert seconds(800) < 10 * seconds(200)  # it was 16 times as long, and 24 s for 400 pages


def test_a_file_without_a_good_frame_is_refused_once(tmp_path: Path) -> None:
    path = write_idx(tmp_path / "a-ubyte.gz", np.zeros((5, 8, 8), np.uint8))
    raw = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(raw[:-10]))
    with refused(ValueError):
        look_into(path)


def test_a_defect_is_said_in_its_own_words(tmp_path: Path) -> None:
    with refused(RefusedError):
        call(defect, tmp_path)


def defect(path: Path) -> None:
    raise DefectError("two\nlines and \0")
