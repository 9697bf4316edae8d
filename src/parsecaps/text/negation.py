"""From clauses to statements: what each mention says of which concept, with the words that say it.

Not by negspaCy: NegEx denies everything before or after a cue up to the end of the sentence, so "network typical,
streaks absent" loses its network, and "no irregular streaks" is the same as "no streaks" (studies/text_rules.md).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from parsecaps.text.clauses import SEPARATOR, Clause, Mention
from parsecaps.text.tokens import Meaning, Piece, Role

_LIST_ON = ("and", "or")
_WEIGHT = ("stated", "negated", "uncertain", "past or condition")
_CUE = Role.NO | Role.NEG | Role.NOT | Role.DOUBT_BEFORE | Role.ELSEWHERE | Role.WOULD
_ENDS_ADJECTIVES = (
    Role.DETERMINER | Role.PREPOSITION | Role.PLACE | Role.VERB | Role.BE | Role.COLON | Role.STATE | Role.RELATIVE
    | _CUE
)  # fmt: skip
_MAX_ADJECTIVES = 3  # words without a role between a modifier and its noun: "irregular dark brown dots"
_NOT_REACH = 3  # "not entirely regular": pieces between "not" and the word it denies


class Attribution(NamedTuple):
    """A modifier, and how it is meant; `alternative` when it is one side of an "or"."""

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


class Statement(NamedTuple):
    """One mention and one reading of it: `kind` is the concept its modifier names, None without one."""

    meaning: Meaning
    kind: str | None
    value: float | None  # 1, 0, None for unknown
    reason: str
    start: int
    end: int
    heading: bool = False


class Force(NamedTuple):
    """How a mention is meant, and the cue that says so."""

    reason: str
    cue: Piece | None = None
    reaches_lists: bool = False


STATED = Force("stated")


def statements(clause: Clause) -> Iterator[Statement]:
    """Every statement of a clause."""
    mentions = clause.mentions
    words = _own_and_inherited(mentions)
    after = words_after(mentions[-1])
    predicated = _predicated(mentions, words)
    forces = _forces(clause, words, predicated)
    for index, mention in enumerate(mentions):
        attributions = words[index] or (after if index in predicated else [])
        yield from _of_mention(mention, attributions, forces[index])


def _of_mention(mention: Mention, attributions: Sequence[Attribution], force: Force) -> Iterator[Statement]:
    """Statements of one mention: one per modifier that means something for its noun, or one without a kind."""
    kinds = []
    for attribution in attributions:
        decides = attribution.piece.meaning.decides if attribution.piece.meaning else ()
        kinds += [(concept, attribution) for noun, concept in decides if noun == mention.meaning.noun]
    several = len({concept for concept, _ in kinds}) > 1
    alternatives = several and any(a.alternative and not a.negated for a in attributions)
    cues = [mention.piece] + ([force.cue] if force.cue else [])
    heading = _any(mention.after[:1], Role.COLON)
    for concept, attribution in kinds:
        reason = force.reason
        if reason == "stated" and (attribution.doubtful or alternatives):
            reason = "uncertain"
        elif reason == "stated" and attribution.negated:
            reason = "negated"
        spans = [*cues, attribution.piece, *([attribution.cue] if attribution.cue else [])]
        yield _statement(mention, concept, reason, spans, heading)
    if not kinds:
        yield _statement(mention, None, force.reason, cues, heading)


def _statement(mention: Mention, kind: str | None, reason: str, spans: Sequence[Piece], heading: bool) -> Statement:
    value = {"stated": 1.0, "negated": 0.0}.get(reason)
    start, end = min(piece.start for piece in spans), max(piece.end for piece in spans)
    return Statement(mention.meaning, kind, value, reason, start, end, heading)


def _own_and_inherited(mentions: Sequence[Mention]) -> list[list[Attribution]]:
    """The modifiers before each mention; a bare noun in a list takes those of the noun before it."""
    words: list[list[Attribution]] = []
    for index, mention in enumerate(mentions):
        own = words_before(mention.before)
        if not own and index and not mention.before and not mentions[index - 1].after:
            closing = any(later.link in _LIST_ON for later in mentions[index + 1 :])
            if mention.link in _LIST_ON or closing:
                own = words[-1]
        words.append(own)
    return words


def _predicated(mentions: Sequence[Mention], words: Sequence[Sequence[Attribution]]) -> set[int]:
    """Which mentions of a list the predicate after the last one speaks of."""
    first = last = len(mentions) - 1
    after = predicate(mentions[-1].after)
    listed = False
    while first and not after.singular:
        listed = listed or mentions[first].link in _LIST_ON
        unequal = words[first - 1] and not words[last] and not after.copula
        if not listed or unequal:
            break
        first -= 1
    return {*range(first, last + 1)}


def _forces(clause: Clause, words: Sequence[Sequence[Attribution]], predicated: set[int]) -> list[Force]:
    """How each mention of a list is meant; a condition or past outweighs doubt, and doubt outweighs negation."""
    mentions = clause.mentions
    after = predicate(mentions[-1].after)
    before = _force_before(mentions)
    forces = []
    current = before
    for index in range(len(mentions)):
        if index and not _reaches(current, mentions, words, index, asserted=after.asserts and not after.copula):
            current = STATED
        force = current
        if index in predicated and after.reason and not _outweighs(force.reason, after.reason):
            force = Force(after.reason, after.cue)
        if clause.elsewhere and not after.gone:
            force = Force("past or condition", clause.elsewhere)
        if force.reason == "past or condition" and index in predicated and after.gone:
            force = Force("negated", after.cue)
        forces.append(force)
    return forces


def _outweighs(one: str, other: str) -> bool:
    return _WEIGHT.index(one) > _WEIGHT.index(other)


def _force_before(mentions: Sequence[Mention]) -> Force:
    before, best = mentions[0].before, STATED
    for index, piece in enumerate(before):
        force = _cue_before(piece, before[index + 1 :], mentions)
        if force and not _outweighs(best.reason, force.reason):
            best = force
    return best


def _cue_before(piece: Piece, between: Sequence[Piece], mentions: Sequence[Mention]) -> Force | None:
    """What a cue does to the first mention, given the pieces between them, or None if it does not reach it."""
    role = piece.role
    commas = _any(between, Role.COMMA)
    if role & (Role.ELSEWHERE | Role.PAST | Role.WOULD):
        return None if _any(between, Role.NOW) else Force("past or condition", piece, True)
    if role & (Role.DOUBT_BEFORE | Role.MODAL | Role.DOUBT):
        weak = not role & (Role.DOUBT_BEFORE | Role.MODAL)
        ended = commas or _any(between, Role.COLON | Role.SURE | Role.WITH)
        ended = ended or (weak and _any(between, Role.BE | Role.VERB | Role.PLACE))
        return None if ended else Force("uncertain", piece, not weak)
    if role & (Role.NEG | Role.NOT):
        return None if _any(between, Role.WITH) else Force("negated", piece, True)
    if role & Role.NEG_AFTER:
        return None if _any(between, ~Role.COLON) else Force("negated", piece)
    if role & (Role.NO | Role.GONE):
        if _any(between, Role.BE | Role.VERB | Role.PLACE | Role.WITH):
            return None
        goes_on = any(later.link == "or" for later in mentions[1:]) or _any(between, Role.OR)
        bare = bool(between) and bool(between[-1].role & Role.COMMA)
        new_subject = any(one.role & Role.AND and other.role & Role.DETERMINER for one, other in pairwise(between))
        ended = new_subject or (commas and not bare)
        return None if ended and not goes_on else Force("negated", piece)
    return None


def _any(pieces: Sequence[Piece], roles: int) -> bool:
    return any(piece.role & roles for piece in pieces)


def _reaches(
    force: Force, mentions: Sequence[Mention], words: Sequence[Sequence[Attribution]], index: int, *, asserted: bool
) -> bool:
    """Does a cue before the list still reach its mention `index`?"""
    if force.reason in ("stated", "past or condition") or force.reaches_lists:
        return True
    mention = mentions[index]
    links = [later.link for later in mentions[index + 1 :]]
    if mention.link in _LIST_ON or "or" in links:
        return True
    placed = _any(mention.after[:1], Role.PLACE)  # "no veil, streaks at the edge"
    if mention.before or words[index] or placed:
        return False
    return "and" in links if force.reason == "uncertain" else not (asserted and index == len(mentions) - 1)


def words_before(before: Sequence[Piece]) -> list[Attribution]:
    """The modifiers directly before a noun, other adjectives between them allowed."""
    found: list[Attribution] = []
    plain = 0
    alternative = False
    for index in range(len(before) - 1, -1, -1):
        piece = before[index]
        if piece.role & Role.MODIFIER:
            found.append(Attribution(piece, alternative=alternative))
            plain = 0
        elif piece.role & (Role.COMMA | Role.AND):
            if index == 0 or not before[index - 1].role & Role.MODIFIER:
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
    """The modifiers that describe a mention after it: predicates, appositions, and "of irregular size"."""
    pieces = own_words(mention.after)
    found = []
    for index, piece in enumerate(pieces):
        if not piece.role & Role.MODIFIER or not _modifies_mention(pieces, index):
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
    singular = bool(copula and copula.role & Role.SINGULAR)
    base = Predicate(asserts=_any(pieces, Role.STATE), copula=copula is not None, singular=singular)
    gone = next((p for p in pieces if p.role & Role.GONE), None)
    if gone:
        return base._replace(reason="negated", cue=gone, gone=True)
    for index, piece in enumerate(pieces):
        if reason := _reason(pieces, index):
            return base._replace(reason=reason, cue=piece)
    return base


def _reason(pieces: Sequence[Piece], index: int) -> str | None:
    role = pieces[index].role
    following = pieces[index + 1 :]
    decides_later = any(p.role & Role.MODIFIER for p in following[:_NOT_REACH])
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
    for index, (piece, follower) in enumerate(pairwise(after)):
        named = bool(follower.role & (Role.DETERMINER | Role.NEG | Role.ELSEWHERE))
        named = named or (not follower.role and _any(after[index + 2 : index + 3], Role.BE | Role.VERB))
        if piece.role & (Role.AND | Role.COMMA) and named:
            return after[:index]
    return after


def _modifies_mention(pieces: Sequence[Piece], index: int) -> bool:
    """Is the modifier at `index` about the mention, and not about a noun of its own ("in an irregular lesion")?"""
    following = pieces[index + 1 : index + 4]
    aspect = _any(following, Role.ASPECT)
    for piece in reversed(pieces[:index]):
        if piece.role & (Role.PREPOSITION | Role.PLACE):
            return aspect
        if piece.role & Role.BE:
            return True
        if piece.role & (Role.VERB | SEPARATOR | Role.COLON | Role.RELATIVE | Role.OPEN):
            return aspect or _closes(following)
    return aspect or _closes(following)


def _closes(following: Sequence[Piece]) -> bool:
    """Nothing follows that an adjective here could belong to."""
    return _ends(following) or bool(following[0].role & ~Role.MODIFIER)


def _ends(following: Sequence[Piece]) -> bool:
    return not following or bool(following[0].role & (SEPARATOR | Role.CLOSE))
