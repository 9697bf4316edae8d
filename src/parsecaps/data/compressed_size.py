"""The size that a compressed frame says it has, before anything is decoded: JPEG, JPEG-LS and JPEG 2000.

A decoder allocates what the frame says, whatever the header around it says, so the two are compared first.
"""

from parsecaps.data.raw_image import DefectError

_SOI, _SOC = b"\xff\xd8", b"\xff\x4f"
_JP2 = b"\0\0\0\x0cjP  "
_FRAMES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF, 0xF7}  # SOF0 to 15; JPEG-LS
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length: TEM, RST0 to 7, SOI
_DAMAGED = "has a frame whose compressed header cannot be read; replace the file"


def compressed_size(frame: bytes) -> tuple[int, int] | None:
    """Height and width by the frame's own header; None where it is of another compression (RLE).

    >>> compressed_size(bytes.fromhex("ffd8 ffc0 000b 08 0010 0020 01 01 11 00"))
    (16, 32)
    """
    if frame.startswith(_SOI):
        return _jpeg(frame)
    if frame.startswith(_JP2):
        return _jpeg_2000(frame[_codestream(frame) :])
    return _jpeg_2000(frame) if frame.startswith(_SOC) else None


def _jpeg(frame: bytes) -> tuple[int, int]:
    """Walk from marker to marker to the one that starts a frame."""
    place = len(_SOI)
    while place + 9 <= len(frame) and frame[place] == 0xFF:
        kind = frame[place + 1]
        if kind == 0xFF:  # a fill byte
            place += 1
        elif kind in _ALONE:
            place += 2
        elif kind in _FRAMES:
            return _number(frame, place + 5, 2), _number(frame, place + 7, 2)
        else:
            place += 2 + max(2, _number(frame, place + 2, 2))
    raise DefectError(_DAMAGED)


def _codestream(frame: bytes) -> int:
    """Where the codestream begins in the boxes of a JP2 file; a box that leads nowhere is refused."""
    place = len(_JP2) + 4
    while place + 8 <= len(frame):
        if frame[place + 4 : place + 8] == b"jp2c":
            return place + 8
        length = _number(frame, place, 4)
        if length < 8:
            break
        place += length
    raise DefectError(_DAMAGED)


def _jpeg_2000(stream: bytes) -> tuple[int, int]:
    """SIZ, the second marker of every codestream (ISO 15444-1, A.5.1): the extent of the grid less its offset."""
    if stream[:4] != _SOC + b"\xff\x51" or len(stream) < 24:
        raise DefectError(_DAMAGED)
    width, height, left, top = (_number(stream, 8 + 4 * i, 4) for i in range(4))
    return height - top, width - left


def _number(data: bytes, place: int, length: int) -> int:
    return int.from_bytes(data[place : place + length], "big")
