"""Files that lie about what they hold, of every format but DICOM: huge sizes, bombs, loops, and ways to other files."""

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np

SECRET = Path("/etc/passwd")  # what a file may not show of the machine it is read on
SECRET_START = "root:x:"
_BLOCK = 2**24
_ABOVE, _BELOW = 10955, 10954  # sides of squares just above and just below 120 million pixels


class Crafted(NamedTuple):
    """A file to write: its row in the table, its name, and how it is written.

    Where `frames` is given, the file is good and has so many; a `refused` one may not be answered.
    """

    kind: str
    name: str
    write: Callable[[Path], object]
    frames: int | None = None
    refused: bool = False


def crafted_files() -> Iterator[Crafted]:
    """Every crafted file that is no DICOM."""
    for name, data in (_idx() | _nifti() | _matlab()).items():
        yield Crafted("volume header", name, partial(_write, data))
    for name, data in (_png() | _tiff() | _bmp()).items():
        yield Crafted("picture header", name, partial(_write, data), frames=400 if name == "400 pages.tif" else None)
    for name, fill in _HDF5.items():
        outside = name.startswith("outside")
        yield Crafted("HDF5", f"{name}.mat", partial(_write_hdf5, fill), refused=outside and "patient" not in name)
    for name, bomb in _BOMBS.items():
        yield Crafted("bomb", name, bomb)


def inflating(start: bytes, zeros: int) -> Iterator[bytes]:
    """`start` and many zeros, deflated in pieces; after a full flush a block means the same wherever it stands."""
    packer = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    yield packer.compress(start) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(_BLOCK)) + packer.flush(zlib.Z_FULL_FLUSH)
    for _ in range(zeros // _BLOCK):
        yield block
    yield packer.compress(bytes(zeros % _BLOCK)) + packer.flush()


def zlib_bomb(start: bytes, zeros: int) -> bytes:
    """The same with the head and the checksum of zlib, Adler-32, of which zeros change the upper half alone."""
    upper, lower = divmod(zlib.adler32(start), 2**16)
    checksum = (upper + zeros * lower) % 65521 << 16 | lower
    return b"\x78\xda" + b"".join(inflating(start, zeros)) + struct.pack(">I", checksum)


def _write(data: bytes, path: Path) -> None:
    path.write_bytes(data)


def _idx() -> dict[str, bytes]:
    def idx(*shape: int) -> bytes:
        return b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape)

    return {
        "2^31 images-ubyte": idx(2**31, 1, 1),
        "2^32 images-ubyte": idx(2**32 - 1, 28, 28),
        "2^31 empty images-ubyte": idx(2**31, 0, 0),
        "no images-ubyte": idx(0, 28, 28),
        "255 axes-ubyte": b"\0\0\x08\xff" + struct.pack(">3I", 1, 1, 1),
        "large sides-ubyte": idx(1, 2**31, 2**31),
        "2^31 images-ubyte.gz": gzip.compress(idx(2**31, 1, 1), mtime=0),
    }


def nifti_header(shape: tuple[int, ...], *, code: int = 2, bits: int = 8, second: bool = False) -> bytes:
    """A header of NIfTI-1, or of the second version with its 64-bit sizes; `code` 2 is unsigned bytes."""
    head = bytearray(544 if second else 352)
    sizes = [len(shape), *shape, *[1] * (7 - len(shape))]
    if second:
        struct.pack_into("<i8sHH8q", head, 0, 540, b"n+2\0\r\n\x1a\n", code, bits, *sizes)
        struct.pack_into("<q", head, 168, 544)
    else:
        struct.pack_into("<i", head, 0, 348)
        struct.pack_into("<8h", head, 40, *sizes)
        struct.pack_into("<2h", head, 70, code, bits)
        struct.pack_into("<f", head, 108, 352.0)
        head[344:348] = b"n+1\0"
    return bytes(head)


def _nifti() -> dict[str, bytes]:
    many = nifti_header((4, 4, 10**12), second=True) + bytes(64)
    return {
        "10^12 slices.nii": many,
        "10^12 slices.nii.gz": gzip.compress(many, mtime=0),
        "2^62 slices.nii": nifti_header((2**31, 2**31, 2**62), second=True),
        "less than no slices.nii": nifti_header((4, 4, -3)) + bytes(64),
        "32767 slices.nii": nifti_header((4, 4, 32767)) + bytes(64),
        "large plane.nii": nifti_header((32767, 32767, 2)) + bytes(64),
        "large plane.nii.gz": gzip.compress(nifti_header((32767, 32767, 1)) + bytes(64), mtime=0),
        "plane below the limit.nii": nifti_header((_BELOW, _BELOW, 1), code=64, bits=64) + bytes(64),
        "plane below the limit.nii.gz": gzip.compress(nifti_header((_BELOW, _BELOW, 1), code=64, bits=64), mtime=0),
        "unknown voxels.nii": nifti_header((4, 4, 4), code=1234) + bytes(64),
        "complex voxels.nii": nifti_header((4, 4, 4), code=32, bits=64) + bytes(512),
        "no axes.nii": nifti_header(()) + bytes(64),
        "header alone.nii": nifti_header((4, 4, 4)),
    }


def _matlab() -> dict[str, bytes]:
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H2s", 0x0100, b"IM")

    def matrix(rows: int, columns: int, claimed: int | None = None) -> bytes:
        """A matrix of bytes called affNISTdata that says how large it is."""
        parts = struct.pack("<IIII", 6, 8, 9, 0) + struct.pack("<IIii", 5, 8, rows, columns)
        parts += struct.pack("<II16s", 1, 11, b"affNISTdata") + struct.pack("<II", 2, rows * columns & 0xFFFFFFF8)
        return struct.pack("<II", 14, len(parts) + 64 if claimed is None else claimed) + parts + bytes(64)

    packed = zlib.compress(matrix(1600, 2**24))
    return {
        "large matrix.mat": head + matrix(1600, 2**21),
        "less than no rows.mat": head + matrix(-1600, 3),
        "claims 4 GB.mat": head + matrix(8, 8, 0xFFFFFFF0),
        "variable of 0.mat": head + struct.pack("<II", 14, 0) * 1000,
        "packed large matrix.mat": head + struct.pack("<II", 15, len(packed)) + packed,
        "unknown types.mat": head + struct.pack("<II", 99, 64) + bytes(64),
        "header alone.mat": head,
    }


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *chunks: bytes, pixels: bytes | None = None, depth: int = 8, colour: int = 0) -> bytes:
    """A PNG that says it has this size; `chunks` stand before its pixels, which are 8 x 8 black ones."""
    size = _chunk(b"IHDR", struct.pack(">II5B", width, height, depth, colour, 0, 0, 0))
    data = _chunk(b"IDAT", zlib.compress(bytes(72)) if pixels is None else pixels)
    return b"\x89PNG\r\n\x1a\n" + size + b"".join(chunks) + data + _chunk(b"IEND", b"")


def _png() -> dict[str, bytes]:
    text = zlib.compress(bytes(2**26), 9)
    return {
        "large sides.png": png(2**31 - 1, 2**31 - 1),
        "above the limit.png": png(_ABOVE, _ABOVE),
        "below the limit.png": png(_BELOW, _BELOW),
        "no sides.png": png(0, 0),
        "packed text.png": png(8, 8, *[_chunk(b"zTXt", b"a\0\0" + text)] * 20),
        "long text.png": png(8, 8, _chunk(b"tEXt", b"a\0" + b"x" * 5_000_000)),
        "many texts.png": png(8, 8, *[_chunk(b"tEXt", b"a\0b")] * 100_000),
        "packed profile.png": png(8, 8, _chunk(b"iCCP", b"a\0\0" + text)),
        "wild orientation.png": png(8, 8, _chunk(b"eXIf", b"MM\0*" + b"\xff" * 60)),
        "no pixels.png": png(8, 8, pixels=b""),
        "palette without colours.png": png(8, 8, colour=3),
        "large sides.jpg": b"\xff\xd8\xff\xc0" + struct.pack(">HBHHB3B", 11, 8, 65500, 65500, 1, 1, 17, 0),
    }


def tiff_page(next_page: int, **tags: tuple[int, int, int]) -> bytes:
    """A TIFF page of 8 x 8 grey pixels at offset 8; a tag `t258` is its type, how many values, and the value."""
    entries = {256: (3, 1, 8), 257: (3, 1, 8), 258: (3, 1, 8), 259: (3, 1, 1), 262: (3, 1, 1)}
    entries |= {273: (4, 1, 8), 277: (3, 1, 1), 278: (4, 1, 8), 279: (4, 1, 64)}
    entries |= {int(name[1:]): value for name, value in tags.items()}
    packed = b"".join(struct.pack("<HHII", tag, *entries[tag]) for tag in sorted(entries))
    return struct.pack("<H", len(entries)) + packed + struct.pack("<I", next_page)


def tiff(*pages: bytes) -> bytes:
    """A TIFF of these pages after its 64 pixels."""
    return struct.pack("<2sHI", b"II", 42, 72) + bytes(range(64)) + b"".join(pages)


def _tiff() -> dict[str, bytes]:
    length = len(tiff_page(0))
    empty = b"".join(struct.pack("<HI", 0, 72 + 6 * (i + 1)) for i in range(100_000))
    sides = {"t256": (4, 1, _BELOW), "t257": (4, 1, _BELOW)}
    return {
        "400 pages.tif": tiff(*(tiff_page(72 + length * (i + 1) if i < 399 else 0) for i in range(400))),
        "next page is itself.tif": tiff(tiff_page(72)),
        "pages in a loop.tif": tiff(tiff_page(72 + length), tiff_page(72)),
        "100000 empty pages.tif": struct.pack("<2sHI", b"II", 42, 72) + bytes(64) + empty + bytes(6),
        "wild strips.tif": tiff(tiff_page(0, t273=(4, 1, 0xFFFFFFF0), t279=(4, 1, 0x7FFFFFFF))),
        "strips without end.tif": tiff(tiff_page(0, t273=(4, 0xFFFFFFFF, 8), t279=(4, 0xFFFFFFFF, 8))),
        "strip of itself.tif": tiff(tiff_page(0, t273=(4, 1, 72))),
        "large sides.tif": tiff(tiff_page(0, t256=(4, 1, 2**31), t257=(4, 1, 2**31))),
        "above the limit.tif": tiff(tiff_page(0, t256=(4, 1, _ABOVE), t257=(4, 1, _ABOVE))),
        "below the limit.tif": tiff(tiff_page(0, **sides, t278=(4, 1, _BELOW))),
        "lzw below the limit.tif": tiff(tiff_page(0, **sides, t259=(3, 1, 5))),
        "1000 samples.tif": tiff(tiff_page(0, t277=(3, 1, 1000))),
        "200 bits.tif": tiff(tiff_page(0, t258=(3, 1, 200))),
        "unknown compression.tif": tiff(tiff_page(0, t259=(3, 1, 34892))),
        "page beyond the end.tif": struct.pack("<2sHI", b"II", 42, 0xFFFFFFF0),
        "big tiff of 2^60 tags.tif": struct.pack("<2sHHHQQ", b"II", 43, 8, 0, 16, 2**60),
    }


def _bmp() -> dict[str, bytes]:
    def bmp(width: int, height: int, bits: int = 24, packing: int = 0, data: bytes = b"", colours: int = 0) -> bytes:
        info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, packing, len(data), 0, 0, colours, 0)
        return struct.pack("<2sIHHI", b"BM", 54 + len(data), 0, 0, 54 + 4 * min(colours, 256)) + info + data

    return {
        "large sides.bmp": bmp(2**31 - 1, 2**31 - 1),
        "less than no width.bmp": bmp(-(2**31), -(2**31)),
        "above the limit.bmp": bmp(_ABOVE, _ABOVE),
        "below the limit.bmp": bmp(_BELOW, _BELOW),
        "runs below the limit.bmp": bmp(_BELOW, _BELOW, 8, 1, bytes(1024) + b"\xff\0" * 1000 + b"\0\1", 256),
        "jump.bmp": bmp(_BELOW, _BELOW, 8, 1, bytes(1024) + b"\0\2\xff\xff" * 1000 + b"\0\1", 256),
        "4 billion colours.bmp": bmp(8, 8, 8, colours=0xFFFFFFFF),
    }


def _write_hdf5(fill: Callable[[h5py.File, Path], object], path: Path) -> None:
    """A CE-MRI slice as it should be, but for what `fill` puts in the place of something."""
    with h5py.File(path, "w") as file:
        fill(file, path)
        if "cjdata" not in file:
            file.create_group("cjdata")
        for name, value in {"image": np.arange(64, dtype=np.int16).reshape(8, 8), "label": np.ones((1, 1))}.items():
            if file["cjdata"].get(name, getlink=True) is None:
                file["cjdata"][name] = value


def _other(path: Path) -> Path:
    """A file beside the crafted one that holds an image nobody asked for."""
    other = path.with_name(f".{path.stem}.h5")
    with h5py.File(other, "w") as file:
        file["image"] = np.arange(64, dtype=np.int16).reshape(8, 8)
    return other


def _virtual(file: h5py.File, path: Path) -> None:
    layout = h5py.VirtualLayout((8, 8), np.int16)
    layout[:] = h5py.VirtualSource(str(_other(path)), "image", (8, 8))
    file.create_virtual_dataset("cjdata/image", layout)


_HDF5: dict[str, Callable[[h5py.File, Path], object]] = {
    "outside storage": lambda file, path: file.create_dataset(
        "cjdata/image", (8, 8), np.uint8, external=[(str(SECRET), 0, 64)]
    ),
    "outside patient": lambda file, path: file.create_dataset(
        "cjdata/PID", (64, 1), np.uint8, external=[(str(SECRET), 0, 64)]
    ),
    "outside virtual": _virtual,
    "outside link": lambda file, path: file.create_group("cjdata").__setitem__(
        "image", h5py.ExternalLink(str(_other(path)), "/image")
    ),
    "link loop": lambda file, path: file.create_group("cjdata").__setitem__("image", h5py.SoftLink("/cjdata/image")),
    "group loop": lambda file, path: file.__setitem__("cjdata", h5py.SoftLink("/")),
    "large chunks": lambda file, path: file.create_dataset("cjdata/image", (10**6, 10**6), np.float64, chunks=(64, 64)),
    "below the limit": lambda file, path: file.create_dataset(
        "cjdata/image", (_BELOW, _BELOW), np.float64, chunks=(64, 64)
    ),
    "one large chunk": lambda file, path: file.create_dataset(
        "cjdata/image", (_BELOW, _BELOW), np.float64, chunks=(_BELOW, _BELOW), compression="gzip"
    ),
    "large patient": lambda file, path: file.create_dataset("cjdata/PID", (10**9, 1), np.uint16, chunks=(4096, 1)),
    "patient of lines": lambda file, path: file.create_dataset("cjdata/PID", data=np.array([[10], [13], [61]])),
    "patient of texts": lambda file, path: file.create_dataset("cjdata/PID", data=["a", "b"]),
    "patient beyond Unicode": lambda file, path: file.create_dataset("cjdata/PID", data=[[2**31], [0xD800]]),
    "image is a group": lambda file, path: file.create_group("cjdata/image"),
    "image of texts": lambda file, path: file.create_dataset("cjdata/image", data=[["a", "b"], ["c", "d"]]),
    "image of nan": lambda file, path: file.create_dataset("cjdata/image", data=np.full((8, 8), np.nan)),
    "no pixels": lambda file, path: file.create_dataset("cjdata/image", (0, 0), np.int16),
}


def _gzip_bomb(header: bytes, zeros: int, path: Path) -> None:
    """A gzip file whose pieces are members of their own, so that each has its right checksum."""
    member = gzip.compress(bytes(_BLOCK), mtime=0)
    with path.open("wb") as file:
        file.write(gzip.compress(header + bytes(zeros % _BLOCK), mtime=0))
        for _ in range(zeros // _BLOCK):
            file.write(member)


def _png_bomb(side: int, depth: int, colour: int, bytes_per_pixel: int, path: Path) -> None:
    pixels = zlib_bomb(b"", side * (1 + side * bytes_per_pixel))
    path.write_bytes(png(side, side, pixels=pixels, depth=depth, colour=colour))


def _tiff_bomb(side: int, path: Path) -> None:
    packed = zlib_bomb(b"", side * side)
    sizes = {"t256": (4, 1, side), "t257": (4, 1, side), "t278": (4, 1, side), "t259": (3, 1, 8)}
    page = tiff_page(0, **sizes, t273=(4, 1, 72 + len(tiff_page(0))), t279=(4, 1, len(packed)))
    path.write_bytes(tiff(page) + packed)


def _matlab_bomb(path: Path) -> None:
    """A packed variable that says it is small and unpacks to 3 GB."""
    packed = zlib_bomb(struct.pack("<II", 14, 64), 3 * 2**30)
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H2s", 0x0100, b"IM")
    path.write_bytes(head + struct.pack("<II", 15, len(packed)) + packed)


_BOMBS: dict[str, Callable[[Path], object]] = {
    "2 GB.nii.gz": partial(_gzip_bomb, nifti_header((10000, 10000, 20)), 2 * 10**9),
    "more than it says.nii.gz": partial(_gzip_bomb, nifti_header((8, 8, 1)), 3 * 2**30),
    "2 GB-ubyte.gz": partial(_gzip_bomb, b"\0\0\x08\x03" + struct.pack(">3I", 20, 10000, 10000), 2 * 10**9),
    "more than it says-ubyte.gz": partial(_gzip_bomb, b"\0\0\x08\x03" + struct.pack(">3I", 1, 8, 8), 3 * 2**30),
    "grey below the limit.png": partial(_png_bomb, _BELOW, 8, 0, 1),
    "colour below the limit.png": partial(_png_bomb, _BELOW, 8, 2, 3),
    "deep colour below the limit.png": partial(_png_bomb, _BELOW, 16, 6, 8),
    "above the limit in full.png": partial(_png_bomb, _ABOVE, 8, 2, 3),
    "packed below the limit.tif": partial(_tiff_bomb, _BELOW),
    "3 GB.mat": _matlab_bomb,
}
