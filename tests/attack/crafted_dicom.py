"""DICOM files that lie: written byte by byte, because pydicom would not write them."""

import io
import struct
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from tests.attack.crafted import Crafted, inflating

SIDE = 8
EXPLICIT, IMPLICIT, DEFLATED = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2", "1.2.840.10008.1.2.1.99"
JPEG, JPEG_LS, JPEG_2000, RLE = (f"1.2.840.10008.1.2.{end}" for end in ("4.50", "4.80", "4.90", "5"))
_LONG = {"OB", "OW", "SQ", "UN", "UT"}  # their length takes four bytes
_UNDEFINED = 0xFFFFFFFF
_ITEM, _ITEM_END, _SEQUENCE_END = 0xFFFEE000, 0xFFFEE00D, 0xFFFEE0DD

Elements = dict[int, tuple[str, bytes | str | int]]
FRAMES, ROWS, COLUMNS, STORED, PIXELS = 0x00280008, 0x00280010, 0x00280011, 0x00280101, 0x7FE00010
PHOTOMETRIC, ALLOCATED, CENTER, WIDTH, SLOPE = 0x00280004, 0x00280100, 0x00281050, 0x00281051, 0x00281053
PATIENT, PRIVATE, MODALITY_LUT, VOI_LUT, RED = 0x00100020, 0x00091010, 0x00283000, 0x00283010, 0x00281101


def crafted_dicom() -> Iterator[Crafted]:
    """Every crafted DICOM."""
    for name, data in _headers().items():
        yield Crafted("DICOM header", f"{name}.dcm", lambda path, data=data: path.write_bytes(data))
    for name, data in _compressed().items():
        yield Crafted("DICOM pixels", f"{name}.dcm", lambda path, data=data: path.write_bytes(data))
    yield Crafted("bomb", "deflated.dcm", _deflated_bomb)


def dicom(changes: Elements | None = None, *, syntax: str = EXPLICIT, without: tuple[int, ...] = ()) -> bytes:
    """A grey image of 8 x 8 pixels with some elements changed, added or left out."""
    elements: Elements = {
        0x00080016: ("UI", "1.2.840.10008.5.1.4.1.1.7"),
        0x00080018: ("UI", "1.2.3.4"),
        PATIENT: ("LO", "p1"),
        0x00280002: ("US", 1),
        PHOTOMETRIC: ("CS", "MONOCHROME2"),
        ROWS: ("US", SIDE),
        COLUMNS: ("US", SIDE),
        ALLOCATED: ("US", 8),
        STORED: ("US", 8),
        0x00280102: ("US", 7),
        0x00280103: ("US", 0),
        PIXELS: ("OB", bytes(range(SIDE * SIDE))),
    }
    elements |= changes or {}
    return head(syntax) + b"".join(element(tag, *elements[tag]) for tag in sorted(elements) if tag not in without)


def head(syntax: str) -> bytes:
    """The preamble and the file's meta information."""
    meta = element(0x00020010, "UI", syntax)
    return bytes(128) + b"DICM" + element(0x00020000, "UL", struct.pack("<I", len(meta))) + meta


def element(tag: int, vr: str, value: bytes | str | int, length: int | None = None) -> bytes:
    """An element with explicit VR, little endian; `length` is what it claims to have."""
    raw = struct.pack("<H", value) if isinstance(value, int) else value.encode() if isinstance(value, str) else value
    raw += (b"\0" if vr in {"UI", "OB", "OW"} else b" ") * (len(raw) % 2)
    start = struct.pack("<HH2s", tag >> 16, tag & 0xFFFF, vr.encode())
    size = len(raw) if length is None else length
    return start + (struct.pack("<HI", 0, size) if vr in _LONG else struct.pack("<H", size)) + raw


def item(content: bytes, tag: int = _ITEM, length: int | None = None) -> bytes:
    """An item of a sequence, or of compressed pixels."""
    return struct.pack("<HHI", tag >> 16, tag & 0xFFFF, len(content) if length is None else length) + content


def encapsulated(stream: bytes, syntax: str, changes: Elements | None = None) -> bytes:
    """An image whose pixels are a compressed stream."""
    stream += b"\0" * (len(stream) % 2)
    pixels = element(PIXELS, "OB", item(b"") + item(stream) + item(b"", _SEQUENCE_END), _UNDEFINED)
    return dicom(changes, syntax=syntax, without=(PIXELS,)) + pixels


def jpeg(width: int = SIDE, height: int = SIDE) -> bytes:
    """A JPEG of 8 x 8 pixels that says it has another size."""
    data = bytearray(_saved("JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def jpeg_2000(width: int = SIDE, height: int = SIDE) -> bytes:
    """A JPEG 2000 codestream of 8 x 8 pixels that says it has another size, in a single tile."""
    data = bytearray(_saved("JPEG2000", no_jp2=True))
    size = data.index(b"\xff\x51")
    data[size + 6 : size + 14] = data[size + 22 : size + 30] = struct.pack(">II", width, height)
    return bytes(data)


def jpeg_ls(width: int = SIDE, height: int = SIDE, rows: int = SIDE) -> bytes:
    """A JPEG-LS stream of black pixels: each row is one run, and all bits of a run are 1 (ITU-T T.87, A.7.1)."""
    orders = [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4 + [4, 4, 5, 5, 6, 6, 7, 7, *range(8, 16)]
    index = ones = 0
    for _ in range(rows):
        left = SIDE
        while left > 0:
            step = 1 << orders[index]
            ones += 1
            index += left >= step and index < 31
            left -= step
    bits, coded = "1" * ones, bytearray()
    while bits:
        taken = 7 if coded and coded[-1] == 0xFF else 8  # after FF, a bit of 0 is stuffed
        coded.append(int(bits[:taken].ljust(taken, "0"), 2))
        bits = bits[taken:]
    frame = b"\xff\xf7" + struct.pack(">HBHHB3B", 11, 8, height, width, 1, 1, 0x11, 0)
    scan = b"\xff\xda" + struct.pack(">HB2B3B", 8, 1, 1, 0, 0, 0, 0)
    return b"\xff\xd8" + frame + scan + bytes(coded) + b"\xff\xd9"


def rle(offsets: tuple[int, ...] = (64,), segment: bytes = b"\x3f" + bytes(range(64))) -> bytes:
    """A frame of RLE: the number of segments and where each begins, then their bytes."""
    return struct.pack("<16I", len(offsets), *offsets, *[0] * (15 - len(offsets))) + segment


def _headers() -> dict[str, bytes]:
    nested_ends = b"".join([item(b"", _ITEM_END), item(b"", _SEQUENCE_END)] * 1000)
    opening = element(0x00081140, "SQ", b"", _UNDEFINED) + item(b"", length=_UNDEFINED)
    empty_table = item(element(0x00283002, "US", bytes(6)) + element(0x00283006, "OW", b""))
    palette: Elements = {PHOTOMETRIC: ("CS", "PALETTE COLOR")}
    described: Elements = {RED + i: ("US", struct.pack("<3H", 0, 0, 16)) for i in range(3)}
    small = dicom()
    found = {f"frames {text}": dicom({FRAMES: ("IS", text)}) for text in ("2147483647", "-5", "0", "abc", "3000000")}
    found |= {f"window {text}": dicom({CENTER: ("DS", text), WIDTH: ("DS", "5")}) for text in ("nan", "inf", "1e400")}
    found |= {f"width {text}": dicom({CENTER: ("DS", "5"), WIDTH: ("DS", text)}) for text in ("nan", "inf", "-1")}
    found |= {f"slope {text}": dicom({SLOPE: ("DS", text)}) for text in ("nan", "inf", "1e308")}
    found |= {f"stored {bits}": dicom({STORED: ("US", bits)}) for bits in (0, 200)}
    found |= {f"allocated {bits}": dicom({ALLOCATED: ("US", bits)}) for bits in (0, 1, 200)}
    return found | {
        "no rows": dicom(without=(ROWS,)),
        "rows twice": dicom({ROWS: ("US", struct.pack("<2H", 8, 8))}),
        "large sides": dicom({ROWS: ("US", 65535), COLUMNS: ("US", 65535)}),
        "just below the limit": dicom({ROWS: ("US", 10954), COLUMNS: ("US", 10954)}),
        "no pixels": dicom(without=(PIXELS,)),
        "no photometric": dicom(without=(PHOTOMETRIC,)),
        "empty modality table": dicom({MODALITY_LUT: ("SQ", empty_table)}),
        "empty window table": dicom({VOI_LUT: ("SQ", empty_table)}),
        "palette without table": dicom(palette),
        "palette without data": dicom(palette | described),
        "nested 1000": dicom(without=(PIXELS,)) + opening * 1000 + nested_ends,
        "nested 100000": dicom(without=(PIXELS,)) + opening * 100_000,
        "undefined length": dicom(without=(PIXELS,)) + element(PIXELS, "OB", bytes(64), _UNDEFINED),
        "undefined private": dicom(without=(PIXELS,)) + element(PRIVATE, "UN", bytes(64), _UNDEFINED),
        "claims 4 GB": dicom(without=(PIXELS,)) + element(PIXELS, "OB", bytes(64), 0xFFFFFFF0),
        "only the mark": small[:132],
        "ends in the header": small[:200],
        "unknown syntax": dicom(syntax="1.2.3.4.5"),
        "syntax of another": dicom(syntax=IMPLICIT),
        "long patient": dicom({PATIENT: ("UT", "x" * 1_000_000)}),
        "formula": dicom({PATIENT: ("LO", '=HYPERLINK("http://x")')}),
        "patient of lines": dicom({PATIENT: ("LO", b"a\nb\r\x1b[31m\0")}),
    }


def _compressed() -> dict[str, bytes]:
    large: Elements = {ROWS: ("US", 65500), COLUMNS: ("US", 65500)}
    below: Elements = {ROWS: ("US", 10950), COLUMNS: ("US", 10950)}
    sixty: Elements = {ROWS: ("US", 60000), COLUMNS: ("US", 60000)}
    mark = struct.pack(">I4sI", 12, b"jP  ", 0x0D0A870A)
    codestream = jpeg_2000()
    boxes = {
        "box of 0": mark + struct.pack(">I4s", 0, b"ftyp") + codestream,
        "box of 1": mark + struct.pack(">I4sQ", 1, b"ftyp", 0) + codestream,
        "box of 1 and 0": mark + struct.pack(">I4sQ", 1, b"jp2h", 0) * 2 + codestream,
        "box of 7": mark + struct.pack(">I4s", 7, b"jp2h") + codestream,
        "box of 4 GB": mark + struct.pack(">I4s", 0xFFFFFFFF, b"jp2h") + codestream,
    }
    found = {f"jp2 {name}": encapsulated(stream, JPEG_2000) for name, stream in boxes.items()}
    return found | {
        "jpeg 65500": encapsulated(jpeg(65500, 65500), JPEG),
        "jpeg 65500 in rows too": encapsulated(jpeg(65500, 65500), JPEG, large),
        "jpeg 10950": encapsulated(jpeg(10950, 10950), JPEG, below),
        "jpeg of 0": encapsulated(jpeg(0, 0), JPEG),
        "jpeg cut": encapsulated(jpeg()[:100], JPEG),
        "j2k 60000": encapsulated(jpeg_2000(60000, 60000), JPEG_2000),
        "j2k 60000 in rows too": encapsulated(jpeg_2000(60000, 60000), JPEG_2000, sixty),
        "j2k 10950": encapsulated(jpeg_2000(10950, 10950), JPEG_2000, below),
        "j2k 4 GB sides": encapsulated(jpeg_2000(0xFFFFFFFF, 0xFFFFFFFF), JPEG_2000),
        "j2k cut": encapsulated(codestream[:60], JPEG_2000),
        "jls 65500": encapsulated(jpeg_ls(65500, 65500), JPEG_LS),
        "jls 10950": encapsulated(jpeg_ls(10950, 10950), JPEG_LS, below),
        "jls cut": encapsulated(jpeg_ls()[:30], JPEG_LS),
        "rle wild offsets": encapsulated(rle((0xFFFFFFFF, 0x7FFFFFFF, 3)), RLE),
        "rle 15 segments": encapsulated(rle((64,) * 15), RLE),
        "rle no segments": encapsulated(rle(()), RLE),
        "rle runs": encapsulated(rle(segment=b"\x81\0" * 100_000), RLE),
        "rle many fragments": dicom(syntax=RLE, without=(PIXELS,))
        + element(PIXELS, "OB", item(b"") * 100_000 + item(b"", _SEQUENCE_END), _UNDEFINED),
        "no fragments": encapsulated(b"", JPEG),
        "offsets beyond the end": dicom({FRAMES: ("IS", "2")}, syntax=JPEG, without=(PIXELS,))
        + element(PIXELS, "OB", item(struct.pack("<2I", 0, 0xFFFFFF00)) + item(jpeg()), _UNDEFINED),
    }


def _deflated_bomb(path: Path) -> None:
    """A good image, and a private element of 3 GB of zeros; all of it deflated to 3 MB."""
    before = dicom()[len(head(EXPLICIT)) :]
    claims = element(0x7FE10010, "OB", b"", 3 * 2**30)
    with path.open("wb") as file:
        file.write(head(DEFLATED))
        for piece in inflating(before + claims, 3 * 2**30):
            file.write(piece)


def _saved(form: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.frombytes("L", (SIDE, SIDE), bytes(range(SIDE * SIDE))).save(file, form, **options)
    return file.getvalue()
