"""What stands before and after a mention: its deciding words, and whether its predicate denies or doubts it."""

from collections.abc import Sequence
from typing import NamedTuple

from parsecaps.text.clauses import Mention
from parsecaps.text.cues import Role
from parsecaps.text.pieces import Piece

_SEPARATOR = Role.AND | Role.OR | Role.COMMA
_CUE = Role.NO | Role.NEG | Role.NOT | Role.DOUBT_BEFORE | Role.ELSEWHERE | Role.WOULD
_ENDS_ADJECTIVES = (
    Role.DETERMINER
    | Role.PREPOSITION
    | Role.PLACE
    | Role.VERB
    | Role.BE
    | Role.COLON
    | Role.STATE
    | Role.RELATIVE
    | _CUE
)
_MAX_ADJECTIVES = 3  # words without a role between a deciding word and its noun: "irregular dark brown dots"
_NOT_REACH = 3  # "not entirely regular": pieces between "not" and the word it denies


class Attribution(NamedTuple):
    """A deciding word, and how it is meant; `alternative` when it is one side of an "or"."""

    piece: Piece
    negated: bool = False
    doubtful: bool = False
    cue: Piece | None = None
    alternative: bool = False


class Predicate(NamedTuple):
    """What follows a mention: the reason it gives (None if it gives none) with its cue, and the verb it has."""

    reason: str | None = None
    cue: Piece | None = None
    gone: bool = False
    asserts: bool = False
    copula: bool = False
    singular: bool = False


def words_before(before: Sequence[Piece]) -> list[Attribution]:
    """The deciding words directly before a noun, other adjectives between them allowed."""
    found: list[Attribution] = []
    plain = 0
    alternative = False
    for index in range(len(before) - 1, -1, -1):
        piece = before[index]
        if piece.role & Role.WORD:
            found.append(Attribution(piece, alternative=alternative))
            plain = 0
        elif piece.role & (Role.COMMA | Role.AND):
            if index == 0 or not before[index - 1].role & Role.WORD:
                break
        elif piece.role & Role.OR:
            alternative = True
        elif piece.role & _ENDS_ADJECTIVES:
            break
        else:
            plain += 1
            if plain > _MAX_ADJECTIVES:
                break
    return found


def words_after(mention: Mention) -> list[Attribution]:
    """The deciding words that are said of a mention after it: predicates, appositions, and "of irregular size"."""
    pieces = own_words(mention.after)
    found = []
    for index, piece in enumerate(pieces):
        if not piece.role & Role.WORD or not _said_of_noun(pieces, index):
            continue
        nearby = pieces[max(0, index - _NOT_REACH) : index]
        denial = next((p for p in reversed(nearby) if p.role & (Role.NOT | Role.NEG | Role.NO)), None)
        doubt = next((p for p in pieces[:index] if p.role & (Role.DOUBT | Role.MODAL | Role.DOUBT_BEFORE)), None)
        alternative = any(p.role & Role.OR for p in nearby[-1:])
        found.append(Attribution(piece, bool(denial), bool(doubt), denial or doubt, alternative))
    return found


def predicate(after: Sequence[Piece]) -> Predicate:
    """Read the predicate after a mention; the first cue decides."""
    pieces = own_words(after)
    copula = next((p for p in pieces if p.role & (Role.BE | Role.VERB | Role.MODAL)), None)
    base = Predicate(
        asserts=any(p.role & Role.STATE for p in pieces),
        copula=copula is not None,
        singular=bool(copula and copula.role & Role.SINGULAR),
    )
    gone = next((p for p in pieces if p.role & Role.GONE), None)
    if gone:
        return base._replace(reason="negated", cue=gone, gone=True)
    for index, piece in enumerate(pieces):
        reason = _reason(pieces, index)
        if reason:
            return base._replace(reason=reason, cue=piece)
    return base


def _reason(pieces: Sequence[Piece], index: int) -> str | None:
    """What the cue at `index` after a mention says of it."""
    role = pieces[index].role
    following = pieces[index + 1 :]
    decides_later = any(p.role & Role.WORD for p in following[:_NOT_REACH])
    if role & (Role.PAST | Role.WOULD):
        return "past or condition"
    if role & Role.DOUBT_AFTER:
        return "uncertain"
    if role & (Role.DOUBT | Role.MODAL):
        return None if decides_later or (role & Role.DOUBT and not _closes(following)) else "uncertain"
    if role & Role.NOT:
        return None if decides_later else "negated"
    if role & Role.NEG_AFTER:
        return "negated" if _closes(following) else None
    if role & Role.NO:
        begins = index == 0 or bool(pieces[index - 1].role & (Role.COLON | Role.OPEN | Role.BE))
        return "negated" if begins and _ends(following) else None
    return None


def own_words(after: Sequence[Piece]) -> Sequence[Piece]:
    """The part of what follows that is still about the mention: up to a new subject ("..., the lesion is ...")."""
    for index, piece in enumerate(after[:-1]):
        if not piece.role & (Role.AND | Role.COMMA):
            continue
        follower = after[index + 1]
        if follower.role & (Role.DETERMINER | Role.NEG | Role.ELSEWHERE):
            return after[:index]
        if not follower.role and index + 2 < len(after) and after[index + 2].role & (Role.BE | Role.VERB):
            return after[:index]
    return after


def _said_of_noun(pieces: Sequence[Piece], index: int) -> bool:
    """Is the deciding word at `index` about the mention, and not about a noun of its own ("in an irregular lesion")?"""
    following = pieces[index + 1 : index + 4]
    aspect = any(p.role & (Role.ASPECT) for p in following)
    for piece in reversed(pieces[:index]):
        if piece.role & (Role.PREPOSITION | Role.PLACE):
            return aspect
        if piece.role & Role.BE:
            return True
        if piece.role & (Role.VERB | _SEPARATOR | Role.COLON | Role.RELATIVE | Role.OPEN):
            return aspect or _closes(following)
    return aspect or _closes(following)


def _closes(following: Sequence[Piece]) -> bool:
    """Nothing follows that an adjective here could belong to."""
    return _ends(following) or bool(following[0].role & ~Role.WORD)


def _ends(following: Sequence[Piece]) -> bool:
    return not following or bool(following[0].role & (_SEPARATOR | Role.CLOSE))
