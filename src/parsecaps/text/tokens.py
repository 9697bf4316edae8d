"""From text to pieces: English cue words, and spaCy's tokenizer and matcher with lexicon and cues in one pass.

A cue says how a statement is meant: denied, in doubt, past or conditional, joined or ended. Words are normalised: lower
case, singular, American spelling, no hyphen inside a word, so that "Blue-white Veils" matches "blue white veil".
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from parsecaps.system.extras import require
from parsecaps.text.lexicon import Lexicon

if TYPE_CHECKING:
    from spacy.language import Language

_SPELLING = {
    "grey": "gray", "greyish": "grayish", "colour": "color", "coloured": "colored", "calibre": "caliber",
    "centre": "center", "tumour": "tumor", "naevus": "nevus", "n't": "not",
}  # fmt: skip
_KEPT = {"is", "was", "has", "does", "this", "as", "'s", "its", "yes", "us"}
DASHES = {"-", "\N{HYPHEN}", "\N{NON-BREAKING HYPHEN}"}
_SIGN = re.compile(r"(?<=[A-Za-z])[+-]$")


class Role:
    """What a word or phrase does in a sentence, as bits; not an `enum.Flag`, which made reading twice as slow."""

    NONE = 0
    MENTION = 1 << 0  # a noun or phrase of the lexicon
    MODIFIER = 1 << 1  # a modifier of the lexicon
    NO = 1 << 2  # denies what follows it, but not past a comma unless the list goes on
    NEG = 1 << 3  # denies all that follows it in the clause
    NOT = 1 << 4  # denies what follows, or the predicate it stands in
    NEG_AFTER = 1 << 5  # denies what stands before it, or, as an adjective, the noun it precedes
    GONE = 1 << 6  # denies what stands before it, even where the past is spoken of
    DOUBT = 1 << 7  # an adjective or predicate of doubt
    DOUBT_BEFORE = 1 << 8  # all that follows in the clause is in doubt
    DOUBT_AFTER = 1 << 9  # what stands before it is in doubt
    MODAL = 1 << 10  # the clause is in doubt
    WOULD = 1 << 11  # the clause is conditional
    ELSEWHERE = 1 << 12  # what follows is past, future, conditional or someone else's
    PAST = 1 << 13  # what follows, or else what stands before it, is past
    NOW = 1 << 14  # ends the reach of ELSEWHERE and PAST
    SURE = 1 << 15  # ends the reach of doubt
    CONTRAST = 1 << 16  # a new clause begins
    STOP = 1 << 17  # the sentence ends
    AND = 1 << 18
    OR = 1 << 19
    COMMA = 1 << 20
    COLON = 1 << 21
    OPEN = 1 << 22
    CLOSE = 1 << 23
    BE = 1 << 24
    SINGULAR = 1 << 25
    VERB = 1 << 26
    STATE = 1 << 27  # a predicate that asserts
    PREPOSITION = 1 << 28
    WITH = 1 << 29  # what follows is a statement of its own
    PLACE = 1 << 30  # a preposition that ends the reach of "no"
    DETERMINER = 1 << 31
    RELATIVE = 1 << 32
    ASPECT = 1 << 33  # what a modifier may describe without leaving the noun: size, shape ...


_SEEN = """seen, identified, detected, found, observed, noted, visualized, visualised, discerned, appreciated,
    demonstrated, recognized, recognised, made out, visible, present, evident, apparent"""
_JUDGED = "excluded, ruled, judged, assessed, evaluated, determined, confirmed, verified"

CUES: dict[int, str] = {
    Role.NONE: """no change in, no changes in, no increase in, no decrease in, not only, no doubt, without doubt,
        without a doubt, without any doubt, no question, may indicate, may suggest, can indicate, might indicate,
        might suggest, could indicate, could suggest, compared with the previous, compared to the previous, compared
        with the prior, compared to the prior, compared with previous, compared to previous, compared with prior,
        compared to prior, since the last, since the previous, should be excised, as before, must be excluded,
        should be excluded, has to be excluded, have to be excluded, to be excluded, as well, no further, not
        limited to""",
    Role.NO: """no, without, w/o, zero, absence of, absent of, in the absence of, lack, lacks, lacked, lack of,
        lacking, free of, devoid of, void of, no evidence of, no sign of, no signs of, no trace of, no traces of,
        loss of, never, never any""",
    Role.NEG: """neither, nor, none of, none of the following, negative for, fail to show, fails to show, failed to
        show, fail to reveal, fails to reveal, failed to reveal, fail to demonstrate, fails to demonstrate, failed
        to demonstrate, denies, nothing like, rules out, ruled out, excludes""",
    Role.NOT: "not, n't, dont, doesnt, isnt, arent, wasnt, werent",
    Role.NEG_AFTER: """absent, missing, lacking, negative, none, nil, nowhere, not present, non-existent, excluded,
        spared""",
    Role.GONE: """no longer, disappeared, resolved, vanished, gone, not any more, not anymore, has faded completely,
        have faded completely""",
    Role.DOUBT: """possible, possibly, probable, probably, questionable, questionably, equivocal, doubtful,
        uncertain, suspected, presumed, presumable, presumably, perhaps, maybe, likely, unlikely, conceivable,
        conceivably, arguable, arguably, debatable, tentative, indeterminate, ambiguous, unclear, putative, apparent
        but unconfirmed, hard to judge, difficult to judge, difficult to assess, hard to assess, +/-, suspicion,
        thought to be, believed to be, felt to be""",
    Role.DOUBT_BEFORE: """suspect, suspects, suspicious for, suspicious of, suspicion of, suspicion for, suggestive
        of, suggesting, suggestion of, suggests, hint of, hints of, hint at, concern for, concerning for, worrisome
        for, unclear whether, unclear if, uncertain whether, uncertain if, not certain whether, not certain if, not
        sure whether, not sure if, not clear whether, not clear if, questions whether, question of, unable to
        assess, unable to judge, unable to evaluate, unable to exclude, unable to rule out, can not exclude, could
        not exclude, can not rule out, could not rule out, can not be sure, does not exclude, do not exclude, did
        not exclude, not exclude, rule out, r/o, to exclude, to rule out, query, reminiscent of, resembling,
        resembles, mimicking, mimics, versus, vs, differential includes, differential diagnosis includes, difficult
        to tell whether, hard to tell whether, impression of, consistent with possible, can not tell whether, can
        not tell if, difficult to say whether, hard to say whether, whether""",
    Role.DOUBT_AFTER: """not assessable, not evaluable, not interpretable, not evaluated, not assessed, not
        examined, not determined, not excluded, not ruled out, not entirely excluded, not be excluded, not be ruled
        out, not be entirely excluded, not be completely excluded, not be safely excluded, not be reliably assessed,
        not certain, not convincing, not sure, not entirely clear, not clear, obscured, in question, n/a, not
        applicable, remains to be seen, versus, vs, unassessable, not recorded, not documented, unconfirmed""",
    Role.MODAL: "may, might, could",
    Role.WOULD: "would",
    Role.ELSEWHERE: """if, unless, should, in case, in case of, in the event of, when, whenever, monitor for,
        monitoring for, watch for, watch out for, look for, look out for, look out, check for, screen for, evaluate
        for, alert for, follow up for, follow up, followed up for, surveillance for, return if, history of, h/o,
        family history, used to have, used to show, had had, previously had, previously showed, personal history of,
        re-examine for, review for, beware of, danger of, risk of, may develop, might develop, could develop,
        contralateral, another lesion, other lesion""",
    Role.PAST: """previously, formerly, in the past, earlier, prior, previous, once, at baseline, baseline, last
        year, last visit, last time, years ago, months ago, weeks ago, year ago, month ago, week ago, initially,
        originally, historically, in former years, on the last image, before treatment, used to be, used to""",
    Role.NOW: """now, today, currently, current, at present, presently, at this visit, this time, on this visit,
        nowadays""",
    Role.SURE: """definite, definitely, certain, certainly, clear, clearly, clear cut, obvious, obviously,
        unequivocal, unequivocally, unmistakable, unmistakably, undoubted, undoubtedly, for sure, confirmed, marked,
        pronounced""",
    Role.CONTRAST: """but, however, whereas, while, although, though, yet, except, except for, except that, with the
        exception of, apart from, aside from, other than, nevertheless, nonetheless, despite, in spite of, because,
        because of, due to, owing to, given, given the, based on, in view of, on account of, hence, therefore, thus,
        so that, as in, as one, as expected, otherwise, on the other hand, in contrast, instead""",
    Role.STOP: "., !, ;, •, ·, *, |",
    Role.AND: """and, &, as well as, plus, together with, along with, accompanied by, in addition to, also,
        associated with""",
    Role.OR: "or, nor, /, and/or",
    Role.OPEN: "(, [",
    Role.CLOSE: "), ]",
    Role.BE: """is, are, was, were, be, been, being, remain, remains, remained, look, looks, looked, appear,
        appears, appeared, seem, seems, seemed, 's, 're""",
    Role.SINGULAR: "is, was, has, does, remains, looks, appears, seems, 's",
    Role.VERB: """has, have, had, having, do, does, did, can, show, shows, showed, showing, shown, reveal, reveals,
        revealed, revealing, display, displays, displayed, displaying, exhibit, exhibits, exhibited, contain,
        contains, contained, containing, include, includes, including, see, sees, saw, find, finds, note, notes,
        demonstrate, demonstrates, demonstrated, featuring, there, possess, presents, presented, consist, consists,
        cover, covers, covered, occur, occurs, dominate, dominates, forming, surround, surrounds, fades, thins,
        needs, needed, advised, recommended, become, became, persist, persists, extend, extends, observe, identify,
        detect, overlies, overlying, radiate, radiates, develop, developed, emerge, emerged, bears""",
    Role.STATE: """present, seen, visible, noted, evident, yes, +, ++, +++, positive, observed, found, identified,
        detected, recognizable, recognisable, discernible, appreciable, new, detectable, there, pos, noticed,
        apparent""",
    Role.WITH: "with",
    Role.PREPOSITION: """with, of, by, from, as, to, into, under, below, beneath, behind, above, toward, towards,
        along, between, across, through, throughout""",
    Role.PLACE: "in, on, within, at, over, near, around, for, inside, among, during, after, since, against, upon",
    Role.DETERMINER: """a, an, the, this, these, those, some, few, several, many, multiple, numerous, any, each,
        its, their, every, single, one, two, three""",
    Role.RELATIVE: "which, that, they, whose, where, who, it",
    Role.ASPECT: """size, shape, distribution, arrangement, spacing, pattern, color, caliber, width, thickness,
        form, mesh, hole, line, distributed, arranged, spaced, sized, shaped, spread, scattered, located, placed,
        appearance, character, contour, configuration, morphology, grid, density, diameter, length, dispersed, type,
        kind, organized, organised, oriented, positioned, colored, manner, fashion, way""",
    Role.COLON: ":, =, ->, \N{EN DASH}, \N{EM DASH}",
}


def cue_phrases() -> list[tuple[int, str]]:
    """Every cue with its role; a phrase may come several times with different roles."""
    cues: list[tuple[int, str]] = [(Role.COMMA, ",")]
    cues += [(role, phrase) for role, text in CUES.items() for phrase in phrases_of(text)]
    for verb in ("can", "could"):
        cues += [(Role.STATE, f"{verb} be {word}") for word in phrases_of(_SEEN)]
        cues += [(Role.NEG_AFTER, f"{verb} not be {word}") for word in phrases_of(_SEEN)]
        cues += [(Role.DOUBT_AFTER, f"{verb} not be {word}") for word in phrases_of(_JUDGED)]
    return cues


def phrases_of(text: str) -> list[str]:
    """Phrases between commas, a line break inside one being a space."""
    return [" ".join(phrase.split()) for phrase in text.split(",")]


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
    language: Language = require("spacy").blank("en")
    return language


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
                self._add(word, Role.MODIFIER, Meaning(decides=((concept.noun or "", concept.name),)))

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
            words, starts, stops = zip(*tokens[position : ends.get(position, position + 1)], strict=True)
            role, meaning = self._entries.get(" ".join(words), (Role.NONE, None))
            pieces.append(Piece(starts[0], stops[-1], role, meaning))
            position += len(words)
        return pieces

    def _add(self, phrase: str, role: int, meaning: Meaning | None) -> None:
        words = self._words(phrase)
        key = " ".join(words)
        known, other = self._entries.get(key, (Role.NONE, None))
        if other and meaning and role & known & Role.MODIFIER:
            meaning = other._replace(decides=tuple(dict.fromkeys(other.decides + meaning.decides)))
        if role == Role.MENTION:
            known = Role.NONE  # the lexicon knows better
        self._entries[key] = (known | role, meaning or other)
        self._matcher.add(key, [self._doc(self._nlp.vocab, words=words)])

    def _words(self, phrase: str) -> list[str]:
        return [word for word, _, _ in self._tokens(phrase)]

    def _tokens(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Normalised words with their positions; a minus sign after a noun is a word, a hyphen inside a word is not."""
        for token in self._nlp.make_doc(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")):
            word, start, end = token.text, token.idx, token.idx + len(token)
            if word.isspace():
                if "\n" in word:
                    yield ".", start, end
            elif word in DASHES:
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
