"""Good small files of every format, and what chance makes of them: the same for the same seed and number."""

import gzip
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
from PIL import Image
from pydicom.uid import JPEG2000Lossless

from tests.attack.crafted_dicom import DEFLATED, JPEG, JPEG_LS, RLE, dicom, encapsulated, head, jpeg, jpeg_ls, rle
from tests.data.image_files import colour, grey, write_dicom, write_samples

_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
_MAX_CHANGES = 6
_MAT_TEXT = slice(0, 116)  # where scipy writes the time
_HEAD_BYTES = 400  # where most formats say what is to come

Chance = random.Random
Operator = Callable[[bytearray, Chance, list[bytes]], bytearray]


def good_files(folder: Path) -> dict[str, bytes]:
    """A small file of every format and of its main kinds, by name."""
    write_samples(folder)
    stack = np.stack([grey()] * 3)
    pages = [Image.fromarray(plane) for plane in stack]
    pages[0].save(folder / "pages.tif", save_all=True, append_images=pages[1:])
    pages[0].save(folder / "deflated.tif", compression="tiff_adobe_deflate")
    pages[0].save(folder / "progressive.jpg", progressive=True)
    Image.fromarray(colour()).convert("CMYK").save(folder / "cmyk.jpg")
    Image.fromarray(colour()).convert("RGBA").save(folder / "opacity.png")
    Image.fromarray(colour()).save(folder / "colour.bmp")
    write_dicom(folder / "frames.dcm", stack, frames=3)
    write_dicom(folder / "colour.dcm", colour())
    write_dicom(folder / "j2k-colour.dcm", colour(48, 64), syntax=JPEG2000Lossless)
    nibabel.save(nibabel.Nifti2Image(stack.T.astype(np.int16), np.eye(4)), folder / "second.nii")
    (folder / "jpeg.dcm").write_bytes(encapsulated(jpeg(), JPEG))
    (folder / "jls.dcm").write_bytes(encapsulated(jpeg_ls(), JPEG_LS))
    (folder / "rle-8.dcm").write_bytes(encapsulated(rle(), RLE))
    whole = dicom(syntax=DEFLATED)
    start = len(head(DEFLATED))
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    (folder / "deflated.dcm").write_bytes(whole[:start] + packer.compress(whole[start:]) + packer.flush())
    plain = gzip.decompress((folder / "two-images-idx3-ubyte.gz").read_bytes())
    (folder / "plain-idx3-ubyte").write_bytes(plain)
    for path in folder.glob("*.mat"):
        _forget_time(path)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def mutate(good: dict[str, bytes], seed: int, number: int) -> tuple[str, bytes]:
    """File `number` of a seed: its name, which begins with the number, and its bytes."""
    chance = random.Random(f"{seed} {number}")
    name = sorted(good)[number % len(good)]
    data, repack = _unpacked(good[name], chance)
    others = [good[other] for other in sorted(good)]
    for _ in range(chance.randint(1, _MAX_CHANGES)):
        data = chance.choice(OPERATORS)(data, chance, others)
    return f"{number:06}-{name}", repack(bytes(data))


def flip_bits(data: bytearray, chance: Chance, others: list[bytes]) -> bytearray:
    """Flip a few bits, mostly in the header."""
    for _ in range(chance.randint(1, 8)):
        if data:
            data[_place(data, chance)] ^= 1 << chance.randrange(8)
    return data


def put_extreme(data: bytearray, chance: Chance, others: list[bytes]) -> bytearray:
    """Overwrite a number of 16, 32 or 64 bits by an extreme one, in either byte order."""
    form, bits = chance.choice((("H", 16), ("I", 32), ("Q", 64)))
    value = chance.choice((*_EXTREMES, 2**63, 2**64 - 1)) % 2**bits
    raw = struct.pack(chance.choice("<>") + form, value)
    place = _place(data, chance)
    data[place : place + len(raw)] = raw
    return data


def change_length(data: bytearray, chance: Chance, others: list[bytes]) -> bytearray:
    """Add to or take from a number that is small enough to be a length."""
    for _ in range(20):
        place, form = _place(data, chance), chance.choice(("<H", ">H", "<I", ">I"))
        size = struct.calcsize(form)
        if place + size > len(data):
            continue
        (value,) = struct.unpack_from(form, data, place)
        if 0 < value <= len(data):
            changed = value + chance.choice((-value, -8, -2, -1, 1, 2, 8, value, 255 * value, len(data)))
            struct.pack_into(form, data, place, changed % 2 ** (8 * size))
            break
    return data


def truncate(data: bytearray, chance: Chance, others: list[bytes]) -> bytearray:
    """Cut the end off."""
    return data[: chance.randrange(len(data) + 1)]


def delete_block(data: bytearray, chance: Chance, others: list[bytes]) -> bytearray:
    """Leave a block out."""
    place = _place(data, chance)
    del data[place : place + chance.choice((1, 2, 4, 16, 64, 512))]
    return data


def repeat_block(data: bytearray, chance: Chance, others: list[bytes]) -> bytearray:
    """Write a block several times."""
    place, length = _place(data, chance), chance.choice((1, 2, 8, 64, 512))
    data[place:place] = data[place : place + length] * chance.choice((1, 2, 100))
    return data


def fill_block(data: bytearray, chance: Chance, others: list[bytes]) -> bytearray:
    """Overwrite a block by one byte or by noise."""
    place, length = _place(data, chance), chance.choice((4, 16, 64, 512))
    length = min(length, len(data) - place)
    data[place : place + length] = chance.choice((bytes(length), b"\xff" * length, chance.randbytes(length)))
    return data


def splice(data: bytearray, chance: Chance, others: list[bytes]) -> bytearray:
    """Go on with another file from some place."""
    other = chance.choice(others)
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other)) :]


OPERATORS: tuple[Operator, ...] = (
    *(flip_bits, put_extreme, put_extreme, change_length, change_length),
    *(truncate, delete_block, repeat_block, fill_block, splice),
)


def _place(data: bytearray, chance: Chance) -> int:
    end = min(len(data), _HEAD_BYTES) if chance.random() < 0.7 else len(data)
    return chance.randrange(max(end, 1))


def _unpacked(data: bytes, chance: Chance) -> tuple[bytearray, Callable[[bytes], bytes]]:
    """What to change, and how to put it back: half of the time behind the checksums, which stop most damage."""
    if chance.random() < 0.5:
        if data.startswith(b"\x1f\x8b"):
            return bytearray(gzip.decompress(data)), lambda changed: gzip.compress(changed, mtime=0)
        if data.startswith(b"\x89PNG"):
            return bytearray(data), _with_checksums
    return bytearray(data), lambda changed: changed


def _with_checksums(data: bytes) -> bytes:
    """A PNG whose chunks all have the right checksum, as far as they can be followed."""
    fixed, place = bytearray(data), 8
    while place + 12 <= len(fixed):
        (length,) = struct.unpack_from(">I", fixed, place)
        end = place + 8 + length
        if end + 4 > len(fixed):
            break
        struct.pack_into(">I", fixed, end, zlib.crc32(fixed[place + 4 : end]))
        place = end + 4
    return bytes(fixed)


def _forget_time(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data.startswith(b"MATLAB"):
        data[_MAT_TEXT] = b"MATLAB 5.0 MAT-file".ljust(116)
        path.write_bytes(data)
