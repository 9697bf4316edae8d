"""An explanation as one picture that says by itself what it shows: the image, its maps, and captions."""

from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

from parsecaps.explain.explanation import Explanation
from parsecaps.files.writing import visible
from parsecaps.report.pictures import overlay_picture

_PANEL, _GAP, _COLUMNS = 320, 12, 4  # pixels of a picture, between two of them, and how many stand beside each other
_TITLE, _TEXT = 22, 16  # pixels of a letter
_Line = tuple[str, int, tuple[int, int, int]]  # text, size, colour
_INK, _FAINT, _ALERT, _PAPER = (240, 240, 240), (170, 170, 170), (255, 200, 60), (16, 16, 16)
_SCALE = "Maps go from blue (a little) to yellow (most), each scaled to its own highest value."


def draw_montage(explanation: Explanation, footer: str, which: str = "") -> Image.Image:
    """The image, the map of the diagnosis and that of each concept seen, each over its name; the footer stands out.

    `which` says which image it is.
    """
    seen = sorted((each for each in explanation.concepts if each.seen), key=lambda each: -each.presence)
    panels = [
        (["image as the model saw it", which], None),
        ([f"diagnosis: {explanation.diagnosis}", f"probability {explanation.probability:.1%}"], explanation.class_map),
        *(([each.name, f"presence {each.presence:.2f}"], each.map) for each in seen),
    ]
    columns = min(_COLUMNS, max(3, len(panels)))
    width = columns * (_PANEL + _GAP) + _GAP
    high = _PANEL + 2 * _height(_TEXT) + 6 + _GAP  # a panel with its caption
    heading = [
        *_wrapped(_headline(explanation), _TITLE, _INK, width),
        *_wrapped(_unseen(explanation), _TEXT, _FAINT, width),
    ]
    ending = [*_wrapped(_SCALE, _TEXT, _FAINT, width), *_wrapped(footer, _TEXT, _ALERT, width)]
    top = 2 * _GAP + sum(_height(size) for _, size, _ in heading)
    below = top + -(-len(panels) // columns) * high
    height = below + sum(_height(size) for _, size, _ in ending) + 2 * _GAP
    picture = Image.new("RGB", (width, height), _PAPER)
    pen = ImageDraw.Draw(picture)
    for start, texts in ((_GAP, heading), (below, ending)):
        for line, size, ink in texts:
            pen.text((_GAP, start), line, fill=ink, font=_font(size))
            start += _height(size)
    for i, (lines, found) in enumerate(panels):
        x, y = _GAP + i % columns * (_PANEL + _GAP), top + i // columns * high
        panel = overlay_picture(explanation.image, found).resize((_PANEL, _PANEL), Image.Resampling.LANCZOS)
        picture.paste(panel, (x, y))
        for j, line in enumerate(lines):
            place = (x, y + _PANEL + 4 + j * _height(_TEXT))
            pen.text(place, _cut(line, _TEXT, _PANEL), fill=_INK, font=_font(_TEXT))
    return picture


def _headline(explanation: Explanation) -> str:
    said = f"{explanation.diagnosis} {explanation.probability:.1%}"
    if explanation.abstain:
        return f"{said}, but abstains: {' or '.join(explanation.possible or []) or 'no class'} cannot be ruled out"
    return said


def _unseen(explanation: Explanation) -> str:
    if not explanation.concepts:
        return "The model was trained without concepts."
    names = [f"{each.name} {each.presence:.2f}" for each in explanation.concepts if not each.seen]
    return f"not seen: {', '.join(names)}" if names else "all concepts were seen"


def _wrapped(text: str, size: int, ink: tuple[int, int, int], width: int) -> list[_Line]:
    room, lines = width - 2 * _GAP, [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if _font(size).getlength(longer) <= room or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return [(_cut(line, size, room), size, ink) for line in lines]


def _cut(text: str, size: int, width: int) -> str:
    text = visible(" ".join(text.split()))
    if _font(size).getlength(text) <= width:
        return text
    while text and _font(size).getlength(f"{text}…") > width:
        text = text[:-1]
    return f"{text}…"


def _height(size: int) -> int:
    return round(size * 1.35)


@lru_cache(maxsize=4)
def _font(size: int) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which matplotlib brings: it has the letters of most languages of Europe."""
    from matplotlib import get_data_path

    file = f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf"
    return ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC)  # the other one fails on some texts
