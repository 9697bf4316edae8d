"""From pieces to clauses: which mentions form a list, and which words belong to which mention.

A clause ends at a stop, a contrast ("but", "however", "except"), a semicolon and around brackets with a mention.
Inside, two mentions form a list ("streaks and veil are absent") unless the first has its predicate ("the network is
typical, streaks ...") or the second a cue of its own ("globules, no veil").
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Literal

from parsecaps.text.tokens import Meaning, Piece, Role

Link = Literal["start", "and", "or", "comma"]

_PLURAL = ("they", "these", "those", "both", "which")
SEPARATOR = Role.AND | Role.OR | Role.COMMA
_BEFORE = Role.NO | Role.NEG | Role.NOT | Role.DOUBT_BEFORE | Role.ELSEWHERE | Role.PAST | Role.NOW
_PREDICATE = (
    Role.BE | Role.VERB | Role.STATE | Role.NEG_AFTER | Role.GONE | Role.DOUBT | Role.DOUBT_AFTER | Role.MODAL
    | Role.WOULD | Role.MODIFIER | Role.COLON | Role.NOT | Role.NO | Role.RELATIVE
)  # fmt: skip
_FRESH = (
    _BEFORE | Role.DOUBT | Role.SURE | Role.MODAL | Role.BE | Role.VERB | Role.NEG_AFTER | Role.PREPOSITION | Role.PLACE
)


@dataclass(slots=True)
class Mention:
    """A mention with what stands before it (back to the end of the one before) and after it (up to the next)."""

    piece: Piece
    meaning: Meaning
    link: Link
    before: Sequence[Piece] = ()
    after: Sequence[Piece] = ()


@dataclass(slots=True)
class Clause:
    """Mentions in a list."""

    mentions: list[Mention] = field(default_factory=list)
    elsewhere: Piece | None = None  # a cue in an earlier clause that still reaches here


def stretches(pieces: Sequence[Piece], text: str) -> Iterator[list[Piece]]:
    """Pieces between stops, contrasts and brackets with a mention; a question mark after a mention ends one too."""
    last: list[Piece] = []
    for stretch in _cut(pieces, text):
        if _speaks_of_last(stretch, text):
            while last and last[-1].role & Role.COMMA:
                last.pop()
            last = [*last, *stretch]
        else:
            yield last
            last = stretch
    yield last


def _speaks_of_last(stretch: Sequence[Piece], text: str) -> bool:
    """Does it go on about the mention before it: "They are irregular", "this is uncertain"?"""
    roles = reduce(or_, (piece.role for piece in stretch), Role.NONE)
    if not stretch or roles & Role.MENTION:
        return False
    word = text[stretch[0].start : stretch[0].end].lower()
    decides, doubts = bool(roles & Role.MODIFIER), bool(roles & (Role.DOUBT | Role.DOUBT_AFTER))
    return (word in _PLURAL and (decides or doubts)) or (word == "this" and doubts and not decides)


def _cut(pieces: Sequence[Piece], text: str) -> Iterator[list[Piece]]:
    current: list[Piece] = []
    inside = _brackets(pieces)
    for index, piece in enumerate(pieces):
        word = text[piece.start : piece.end].lower()
        as_clause = bool(current) and current[-1].role & Role.COMMA and word == "as"
        ends = bool(piece.role & (Role.STOP | Role.CONTRAST)) or index in inside or as_clause
        if word == "?":
            ends = any(p.role & Role.MENTION for p in current)
            current.append(piece._replace(role=Role.DOUBT_AFTER if ends else Role.DOUBT_BEFORE))
        elif not ends:
            current.append(piece)
        if ends:
            yield current
            current = []
    yield current


def _brackets(pieces: Sequence[Piece]) -> set[int]:
    found: set[int] = set()
    opened = None
    for index, piece in enumerate(pieces):
        if piece.role & Role.OPEN:
            opened = index
        elif piece.role & Role.CLOSE and opened is not None:
            if any(p.role & Role.MENTION for p in pieces[opened:index]):
                found |= {opened, index}
            opened = None
    return found


def clauses(stretch: Sequence[Piece]) -> list[Clause]:
    """The lists of mentions in a stretch, each piece between two mentions given to one of them."""
    positions = [index for index, piece in enumerate(stretch) if piece.role & Role.MENTION]
    found: list[Clause] = []
    start = 0
    link: Link | None = None
    for number, position in enumerate(positions):
        piece = stretch[position]
        assert piece.meaning is not None  # a mention always comes from the lexicon
        mention = Mention(piece, piece.meaning, link or "start", stretch[start:position])
        if link is None:
            found.append(Clause())
        found[-1].mentions.append(mention)
        if number + 1 == len(positions):
            mention.after = stretch[position + 1 :]
            break
        gap = stretch[position + 1 : positions[number + 1]]
        left, right, link = _divide(gap)
        mention.after = gap[:left]
        start = position + 1 + right
    _pass_on(found)
    return found


def _divide(gap: Sequence[Piece]) -> tuple[int, int, Link | None]:
    """Where the words of the first mention end and those of the second begin, and the link if they are one list."""
    separators = [index for index, piece in enumerate(gap) if piece.role & SEPARATOR]
    if not separators:
        return (*_divide_plain(gap), None)
    last = separators[-1]
    if (
        len(separators) > 1
        and gap[last].role & Role.COMMA
        and gap[last - 1].role & Role.MODIFIER
        and gap[separators[-2]].role & Role.AND
    ):
        last = separators[-2]  # "... and regular, brown globules"
    left = last
    while left and gap[left - 1].role & SEPARATOR:
        left -= 1
    own, next_one = gap[:left], gap[last + 1 :]
    roles = reduce(or_, (piece.role for piece in gap[left : last + 1]))
    link: Link | None = "or" if roles & Role.OR else "and" if roles & Role.AND else "comma"
    # a "no" that begins a list with an unknown noun: "... there are no vessels, streaks or dots"
    denials = (index for index, (one, other) in enumerate(pairwise(own)) if one.role & Role.NO and not other.role)
    if (foreign := next(denials, None)) is not None:
        return foreign, foreign, None
    closed = any(piece.role & _PREDICATE for piece in own)
    if gap[last].role & Role.NEG:  # "nor" goes on with the denial, also after a predicate
        return (left, last, None) if closed else (left, last + 1, "or")
    if closed or any(piece.role & _FRESH for piece in next_one):
        link = None
    return left, last + 1, link


def _divide_plain(gap: Sequence[Piece]) -> tuple[int, int]:
    """Without "and" or a comma, the second begins at a preposition or a cue, or else after the last verb."""
    for index, piece in enumerate(gap):
        verbal = piece.role & Role.NOT and any(p.role & (Role.BE | Role.VERB | Role.MODAL) for p in gap[:index])
        if piece.role & (_BEFORE | Role.PREPOSITION | Role.PLACE) and not verbal:
            return index, index
    verbal_roles = Role.BE | Role.VERB | Role.STATE | Role.NEG_AFTER
    cut = max((index + 1 for index, piece in enumerate(gap) if piece.role & verbal_roles), default=0)
    return cut, cut


def _pass_on(found: list[Clause]) -> None:
    """A condition or a past reaches on to the later clauses of the stretch, up to a word such as "now"."""
    cue: Piece | None = None
    for clause in found:
        clause.elsewhere = cue
        for piece in clause.mentions[0].before:
            if piece.role & (Role.ELSEWHERE | Role.PAST):
                cue = piece
            elif piece.role & Role.NOW:
                cue = None
                clause.elsewhere = None
