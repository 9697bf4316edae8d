"""Noun phrases (a noun and its adjectives), the source of the paper's concepts, and a lexicon of the frequent ones.

There is no statistical tagger: a phrase is a run of words that are no cues (`pieces`), its last word the noun. An
adjective after its noun ("the border is pearly", "border: irregular") is told by its shape.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import yaml

from parsecaps.text.tokens import DASHES, Piece, Role, normal, phrases_of

_MOST_WORDS = 4  # of a phrase, counted from its noun
_COLOURS = {
    "red",
    "blue",
    "white",
    "gray",
    "black",
    "brown",
    "pink",
    "yellow",
    "green",
    "orange",
    "purple",
    "tan",
    "dark",
}
_ADJECTIVES = ("ed", "al", "ar", "ous", "ish", "ive", "less", "like", "ic", "ly")
_ADVERBS = ("ally", "ily", "tly", "dly", "ably", "ibly", "ely", "gly", "usly", "larly")
_OTHERS = set(
    phrases_of(
        """very, quite, rather, more, most, less, some, slight, mild, left, right, upper, lower, year, month, week, day,
        old, new, mm, cm, male, female, man, woman, patient, lesion, image, picture, photograph, case, figure, i, we,
        he, she, you, not"""
    )
)
_SHORT = 4  # letters: scar, bed
_MOST_CONCEPTS = 100  # of a proposed lexicon
_RAREST = 100  # a phrase must be in one text of so many
_KNOWN = Role.MENTION | Role.MODIFIER
_JOINS = Role.AND | Role.OR | Role.COMMA
_LEADS = Role.BE | Role.COLON


class NounPhrase(NamedTuple):
    """A noun with its adjectives, or other nouns before it, all in their normal form."""

    noun: str
    adjectives: tuple[str, ...] = ()

    def kinds(self) -> list[str]:
        """The noun with each adjective by itself, or alone if it has none."""
        return [f"{adjective} {self.noun}" for adjective in self.adjectives] or [self.noun]


def noun_phrases(pieces: Sequence[Piece], text: str) -> Iterator[NounPhrase]:
    """The noun phrases of a text in which the lexicon, whose pieces these are, has no word.

    >>> from parsecaps.text.lexicon import Lexicon
    >>> from parsecaps.text.tokens import PieceReader
    >>> text = "Scaly plaque with pearly border and arborizing vessels; its surface is shiny, red and rough."
    >>> [" ".join(each.kinds()) for each in noun_phrases(PieceReader(Lexicon(())).read(text), text)]
    ['scaly plaque', 'pearly border', 'arborizing vessel', 'shiny surface red surface rough surface']
    """
    phrase: NounPhrase | None = None
    waiting: list[str] = []  # adjectives whose noun follows: red and blue dots
    predicate = False
    for words, before, after in _runs(pieces, text):
        joined = bool(before & _JOINS) and not before & ~(_JOINS | Role.DETERMINER)
        predicate = phrase is not None and (bool(before & _LEADS) or (predicate and joined))
        adjectives = [word for word in words if not word.endswith(_ADVERBS)]
        only_adjectives = all(map(_is_adjective, adjectives))
        alone = len(adjectives) == 1 and not before & Role.DETERMINER and not after & _LEADS
        if phrase and predicate and (only_adjectives or alone):
            phrase = NounPhrase(phrase.noun, (*phrase.adjectives, *adjectives))
            continue
        if phrase:
            yield phrase
        phrase, kept = None, waiting if joined else []
        if only_adjectives:
            waiting = [*kept, *adjectives] if after & _JOINS else []
        else:
            phrase, waiting = _phrase([*kept, *adjectives[-_MOST_WORDS:]]), []
    if phrase:
        yield phrase


def count_phrases(texts: Iterable[Iterable[NounPhrase]]) -> Counter[str]:
    """In how many texts each noun stands with each adjective, or alone."""
    return Counter(
        kind for phrases in texts for kind in dict.fromkeys(kind for each in phrases for kind in each.kinds())
    )


def lexicon_of(counts: Counter[str], texts: int, source: str) -> str:
    """A lexicon to edit, as YAML, of the most frequent phrases; nouns that stand alone as well are left to their kinds.

    >>> print(lexicon_of(Counter({"scaly plaque": 3, "plaque": 2, "ulcer": 1}), 4, "reports.csv"))
    # Proposed from 4 texts of reports.csv: the most frequent phrases, with the number of texts.
    # Remove what is no concept, rename, and put words that mean the same into one concept.
    concepts:
      scaly plaque: {noun: plaque, words: [scaly]}  # 3
      ulcer: {phrases: [ulcer]}  # 1
    nouns:
      plaque: [plaque]
    <BLANKLINE>
    """
    least = -(-texts // _RAREST)
    frequent = [kind for kind, count in counts.most_common() if count >= least][:_MOST_CONCEPTS]
    nouns = {kind.split()[1]: [kind.split()[1]] for kind in frequent if " " in kind}
    lines = [
        f"# Proposed from {texts:,} texts of {source}: the most frequent phrases, with the number of texts.",
        "# Remove what is no concept, rename, and put words that mean the same into one concept.",
        "concepts:",
    ]
    for kind in frequent:
        adjective, _, noun = kind.rpartition(" ")
        if adjective or noun not in nouns:
            content = {"noun": noun, "words": [adjective]} if adjective else {"phrases": [noun]}
            lines.append(f"  {_yaml(kind)}: {_yaml(content)}  # {counts[kind]:,}")
    lines += ["nouns:", *(f"  {_yaml(noun)}: {_yaml(names)}" for noun, names in nouns.items())] if nouns else []
    return "\n".join([*lines, ""])


def _runs(pieces: Sequence[Piece], text: str) -> Iterator[tuple[list[str], int, int]]:
    """Runs of words that are neither cues nor of the lexicon, with the roles of the cues before and after each.

    A word beside one of the lexicon belongs to that one and is left out.
    """
    words: list[str] = []
    before, after = Role.STOP, Role.NONE
    end = 0
    known = beside = False  # whether the run touches a word of the lexicon, and whether the last piece is one
    for piece in pieces:
        word = normal(text[piece.start : piece.end])
        if piece.role == Role.NONE and piece.meaning is None and word.isalpha() and word not in _OTHERS:
            if after:
                if words and not known:
                    yield words, before, after
                words, before, after, known = [], after, Role.NONE, beside
            if words and text[end : piece.start] in DASHES:
                words[-1] += f"-{word}"
            else:
                words.append(word)
            end, beside = piece.end, False
        else:
            beside = bool(piece.role & _KNOWN)
            known |= beside and not after
            after |= piece.role or Role.STOP
    if words and not known:
        yield words, before, after | Role.STOP


def _phrase(words: Sequence[str]) -> NounPhrase:
    """Take the last word as the noun, unless the adjective comes last ("border irregular")."""
    *others, last = words
    if others and _is_adjective(last) and not _is_adjective(others[-1]):
        *others, last = [last, *others]
    return NounPhrase(last, tuple(others))


def _is_adjective(word: str) -> bool:
    """By its shape; a run that is not all of these has a noun."""
    return word.split("-")[-1] in _COLOURS or (len(word) > _SHORT and word.endswith(_ADJECTIVES))


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False).removesuffix("...\n").strip()
