"""Concepts from texts: what each text says of each concept, with the words that say it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from parsecaps.data.cases import UNKNOWN
from parsecaps.text.clauses import clauses, stretches
from parsecaps.text.lexicon import Concept, Lexicon
from parsecaps.text.pieces import PieceReader
from parsecaps.text.statements import Statement, statements

_KINDS = {1.0: "present", 0.0: "absent"}  # all other values are unknown


class Finding(NamedTuple):
    """What one span of a text says of one concept: 1, 0 or NaN, and why."""

    concept: str
    value: float
    start: int
    end: int
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Findings:
    """The value of every concept of the lexicon in one text (1, 0, NaN = unknown), and the evidence for each."""

    values: dict[str, float]
    evidence: tuple[Finding, ...]

    def spans(self) -> list[tuple[int, int, str]]:
        """Where the text says that a concept is present, absent or unknown: start, end and which of these."""
        shown = (each for each in self.evidence if each.reason != "another kind is stated")
        return [(each.start, each.end, _KINDS.get(each.value, "unknown")) for each in shown]

    def named(self) -> dict[str, list[str]]:
        """The concepts that are present, absent and unknown, of the last only those that the text speaks of."""
        stated = {each.concept for each in self.evidence}
        kinds: dict[str, list[str]] = {"present": [], "absent": [], "unknown": []}
        for name, value in self.values.items():
            if value in _KINDS or name in stated:
                kinds[_KINDS.get(value, "unknown")].append(name)
        return kinds


def find_concepts(texts: Iterable[str], lexicon: Lexicon) -> Iterator[Findings]:
    """Read texts one by one; spaCy is needed from the first on.

    >>> found = next(find_concepts(["Irregular streaks, no veil."], Lexicon.shipped("dermoscopy")))
    >>> found.values["irregular streaks"], found.values["regular streaks"], found.values["blue-whitish veil"]
    (1.0, 0.0, 0.0)
    >>> [(finding.text, finding.reason) for finding in found.evidence][0]
    ('no veil', 'negated')
    """
    reader = _reader(lexicon)
    for text in texts:
        found = [
            statement
            for stretch in stretches(reader.read(text), text)
            for clause in clauses(stretch)
            for statement in statements(clause)
        ]
        yield weigh(found, text, lexicon)


@lru_cache(maxsize=4)
def _reader(lexicon: Lexicon) -> PieceReader:
    """Building one takes longer than reading a hundred texts."""
    return PieceReader(lexicon)


def weigh(stated: Sequence[Statement], text: str, lexicon: Lexicon) -> Findings:
    """The value of each concept from all statements of a text (docs/concepts.md, "What is decided how")."""
    values = {concept.name: UNKNOWN for concept in lexicon.concepts}
    if not stated:
        return Findings(values, ())
    evidence: list[Finding] = []
    present: dict[str, Statement] = {}
    open_ones: list[tuple[Concept, bool]] = []
    for concept in lexicon.concepts:
        about = [s for s in stated if _is_about(s, concept)]
        asserted = [s for s in about if s.value == 1 and _names(s, concept)]
        denied = [s for s in about if s.value == 0 and not _only_a_part(s, stated)]
        unkinded = [s for s in about if s.value == 1 and not _names(s, concept) and not s.heading]
        wholly_denied = [s for s in denied if not _names(s, concept)]
        contradicted = bool(denied) and (bool(asserted) or bool(wholly_denied and unkinded))
        if asserted and not denied:
            values[concept.name] = 1.0
            present[concept.name] = asserted[0]
        elif denied and not contradicted:
            values[concept.name] = 0.0
        elif not contradicted:
            open_ones.append((concept, any(s.reason == "uncertain" and _names(s, concept) for s in about)))
        evidence += [_finding(s, concept, text, contradicted) for s in about]
    for concept, in_doubt in open_ones:
        other = next((present[name] for name in _rivals(concept.name, lexicon) if name in present), None)
        if other is not None and not in_doubt:
            values[concept.name] = 0.0
            evidence.append(
                Finding(
                    concept.name, 0.0, other.start, other.end, text[other.start : other.end], "another kind is stated"
                )
            )
    return Findings(values, tuple(evidence))


def _is_about(statement: Statement, concept: Concept) -> bool:
    """Is it about the concept itself, or about its noun without naming a kind?"""
    about_noun = concept.noun is not None and statement.meaning.noun == concept.noun and statement.kind is None
    return about_noun or _names(statement, concept)


def _names(statement: Statement, concept: Concept) -> bool:
    return concept.name in (statement.kind, statement.meaning.concept)


def _only_a_part(denied: Statement, stated: Sequence[Statement]) -> bool:
    """A part is denied while another part, or the whole, is asserted: the thing itself is not denied."""
    part, noun = denied.meaning.part, denied.meaning.noun
    return part is not None and any(s.value == 1 and s.meaning.noun == noun and s.meaning.part != part for s in stated)


def _rivals(name: str, lexicon: Lexicon) -> Iterator[str]:
    for group in lexicon.exclusive:
        if name in group:
            yield from (other for other in group if other != name)


def _finding(statement: Statement, concept: Concept, text: str, contradicted: bool) -> Finding:
    value = UNKNOWN if statement.value is None else statement.value
    reason = statement.reason
    if value == 1 and not _names(statement, concept):
        value, reason = UNKNOWN, "kind not given"
    if contradicted:
        reason += ", contradicted"
    start, end = statement.start, statement.end
    return Finding(concept.name, value, start, end, text[start:end], reason)
