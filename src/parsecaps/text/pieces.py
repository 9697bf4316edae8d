"""From text to pieces: spaCy's tokenizer and phrase matcher, with lexicon and cues in one pass.

Words are normalised before matching: lower case, plurals to singular, American spelling, and a hyphen inside a word is
dropped, so that "Blue-white Veils" and "blue white veil" are the same. Phrases go through the same hands.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from parsecaps.text.cues import Role, cue_phrases
from parsecaps.text.extra import missing
from parsecaps.text.lexicon import Lexicon

if TYPE_CHECKING:
    from spacy.language import Language

_SPELLING = {
    "grey": "gray", "greyish": "grayish", "colour": "color", "coloured": "colored", "calibre": "caliber",
    "centre": "center", "tumour": "tumor", "naevus": "nevus", "n't": "not",
}  # fmt: skip
_KEPT = {"is", "was", "has", "does", "this", "as", "'s", "its", "yes", "us"}
_DASHES = {"-", "\N{HYPHEN}", "\N{NON-BREAKING HYPHEN}"}
_SIGN = re.compile(r"(?<=[A-Za-z])[+-]$")


class Meaning(NamedTuple):
    """What the lexicon says of a matched phrase: a noun (and the part of it), a concept, or a word that decides."""

    noun: str | None = None
    part: str | None = None
    concept: str | None = None
    decides: tuple[tuple[str, str], ...] = ()  # (noun, concept)


class Piece(NamedTuple):
    """A matched phrase or a single word of a text, with its place in characters."""

    start: int
    end: int
    role: int
    meaning: Meaning | None = None


def blank_english() -> "Language":
    """The English tokenizer of spaCy, without any statistical model."""
    try:
        import spacy
    except ModuleNotFoundError:
        raise missing("spacy") from None
    return spacy.blank("en")


@lru_cache(maxsize=65536)
def normal(word: str) -> str:
    """The form under which a word is compared.

    >>> [normal(word) for word in ("Globules", "meshes", "grey", "irregular", "loss")]
    ['globule', 'mesh', 'gray', 'irregular', 'loss']
    """
    word = _SPELLING.get(word.lower(), word.lower())
    if word in _KEPT or len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is", "ous")):
        return word
    word = word[:-2] if word.endswith(("shes", "ches", "xes")) else word[:-1]
    return _SPELLING.get(word, word)


class PieceReader:
    """Cuts texts into pieces with the phrases of one lexicon."""

    def __init__(self, lexicon: Lexicon) -> None:
        self._nlp = blank_english()
        from spacy.matcher import PhraseMatcher
        from spacy.tokens import Doc

        self._doc = Doc
        self._matcher = PhraseMatcher(self._nlp.vocab, attr="ORTH")
        self._entries: dict[str, tuple[int, Meaning | None]] = {}
        for role, phrase in cue_phrases():
            self._add(phrase, role, None)
        for phrase in lexicon.ignore:
            self._add(phrase, Role.NONE, None)
        for noun in lexicon.nouns:
            for name in noun.names:
                self._add(name, Role.MENTION, Meaning(noun=noun.key))
            for name in noun.parts:
                self._add(name, Role.MENTION, Meaning(noun=noun.key, part=" ".join(self._words(name))))
        for concept in lexicon.concepts:
            for phrase in concept.phrases:
                self._add(phrase, Role.MENTION, Meaning(concept=concept.name))
            for word in concept.words:
                self._add(word, Role.WORD, Meaning(decides=((concept.noun or "", concept.name),)))

    def read(self, text: str) -> list[Piece]:
        """The pieces of a text in order, without white space; a line break is a stop."""
        tokens = list(self._tokens(text))
        if not tokens:
            return []
        doc = self._doc(self._nlp.vocab, words=[word for word, _, _ in tokens])
        found = sorted(self._matcher(doc), key=lambda match: (match[1] - match[2], match[1]))  # the longest first
        ends: dict[int, int] = {}
        taken: set[int] = set()
        for _, first, last in found:
            if taken.isdisjoint(range(first, last)):
                taken.update(range(first, last))
                ends[first] = last
        pieces = []
        position = 0
        while position < len(tokens):
            after = ends.get(position, position + 1)
            words = [word for word, _, _ in tokens[position:after]]
            role, meaning = self._entries.get(" ".join(words), (Role.NONE, None))
            pieces.append(Piece(tokens[position][1], tokens[after - 1][2], role, meaning))
            position = after
        return pieces

    def _add(self, phrase: str, role: int, meaning: Meaning | None) -> None:
        words = self._words(phrase)
        key = " ".join(words)
        known, other = self._entries.get(key, (Role.NONE, None))
        if other and meaning and role & known & Role.WORD:
            meaning = other._replace(decides=tuple(dict.fromkeys(other.decides + meaning.decides)))
        if role == Role.MENTION:
            known = Role.NONE  # the lexicon knows better
        self._entries[key] = (known | role, meaning or other)
        self._matcher.add(key, [self._doc(self._nlp.vocab, words=words)])

    def _words(self, phrase: str) -> list[str]:
        return [word for word, _, _ in self._tokens(phrase)]

    def _tokens(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Normalised words with their places; a minus sign after a noun is a word, a hyphen inside a word is not."""
        tokens = self._nlp.make_doc(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
        for token in tokens:
            start, end = token.idx, token.idx + len(token)
            word = token.text
            if word.isspace():
                if "\n" in word:
                    yield ".", start, end
            elif word in _DASHES:
                inside = start > 0 and end < len(text) and not text[start - 1].isspace() and text[end].isalnum()
                if not inside:
                    closed = start > 0 and (
                        end == len(text) or text[end:].lstrip(" ")[:1] in ("", ",", ";", ")", ".", "\n")
                    )
                    yield ("absent" if closed else ":"), start, end
            elif _SIGN.search(word) and len(word) > 1:
                yield normal(word[:-1]), start, end - 1
                yield ("+" if word[-1] == "+" else "absent"), end - 1, end
            else:
                yield normal(word), start, end
