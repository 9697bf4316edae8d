"""The lexicon: which phrases, nouns and modifiers stand for which concept, read from a YAML file."""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

SHIPPED = ("dermoscopy",)
_CONCEPT_KEYS = ("phrases", "noun", "words")


@dataclass(frozen=True, slots=True)
class Noun:
    """A thing that several concepts are kinds of: its names, and the names of its parts.

    A part asserts the thing like any name. A part that is denied denies the thing only while nothing else of it is
    asserted: with "irregular dots, no globules" there are dots and globules.
    """

    key: str
    names: tuple[str, ...]
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Concept:
    """A concept: phrases that state it on their own, or a noun together with one of the modifiers, or both."""

    name: str
    phrases: tuple[str, ...] = ()
    noun: str | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lexicon:
    """Concepts in the order of the file; of the concepts of an exclusive group, one asserted makes the others absent.

    >>> Lexicon.shipped("dermoscopy").names[:3]
    ('typical pigment network', 'atypical pigment network', 'blue-whitish veil')
    """

    concepts: tuple[Concept, ...]
    nouns: tuple[Noun, ...] = ()
    exclusive: tuple[tuple[str, ...], ...] = ()
    ignore: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the concepts."""
        return tuple(concept.name for concept in self.concepts)

    @classmethod
    def load(cls, path: str | Path) -> "Lexicon":
        """Read and check a file; the first mistake is a `ValueError` of one line with the file, the key and the fix."""
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; give a YAML lexicon, or one that ships: {', '.join(SHIPPED)}")
        try:
            return cls.parse(path.read_text(encoding="utf-8-sig"), str(path))
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8; save it as UTF-8") from None

    @classmethod
    def shipped(cls, name: str) -> "Lexicon":
        """A lexicon of the package by its name."""
        if name not in SHIPPED:
            raise ValueError(f"no lexicon {name!r} ships with parsecaps; choose one of {', '.join(SHIPPED)}")
        file = resources.files("parsecaps.text") / "lexicons" / f"{name}.yaml"
        return cls.parse(file.read_text(encoding="utf-8"), f"{name}.yaml")

    @classmethod
    def parse(cls, text: str, file: str) -> "Lexicon":
        """A lexicon from the text of its file; `file` is named in errors."""
        try:
            content = yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
            raise ValueError(f"{file}{line}: not YAML ({error.problem}); see docs/concepts.md for the format") from None
        except yaml.YAMLError:
            raise ValueError(f"{file}: not YAML; see docs/concepts.md for the format") from None
        top = _mapping(content, file, "the file", ("concepts", "nouns", "exclusive", "ignore"))
        if not top.get("concepts"):
            raise ValueError(f"{file}: `concepts` is missing or empty; list at least one concept")
        nouns = tuple(_noun(key, value, file) for key, value in _named(top.get("nouns") or {}, file, "nouns"))
        concepts = tuple(_concept(key, value, file, nouns) for key, value in _named(top["concepts"], file, "concepts"))
        exclusive = _exclusive(top.get("exclusive"), file, [concept.name for concept in concepts])
        lexicon = cls(concepts, nouns, exclusive, _texts(top.get("ignore"), file, "ignore"))
        _check_unique(lexicon, file)
        return lexicon


def _noun(key: str, value: Any, file: str) -> Noun:
    place = f"nouns: {key}"
    fields = _mapping({"names": value} if isinstance(value, list) else value, file, place, ("names", "parts"))
    noun = Noun(key, _texts(fields.get("names"), file, f"{place}: names"), _texts(fields.get("parts"), file, place))
    if not noun.names + noun.parts:
        raise ValueError(f"{file}: `{place}` has no names; list the ways to write it")
    return noun


def _concept(name: str, value: Any, file: str, nouns: tuple[Noun, ...]) -> Concept:
    place = f"concepts: {name}"
    fields = _mapping({"phrases": value} if isinstance(value, list) else value, file, place, _CONCEPT_KEYS)
    noun = fields.get("noun")
    keys = [known.key for known in nouns]
    if noun is not None and noun not in keys:
        raise ValueError(f"{file}: `{place}` names the noun {noun!r}, which is not in `nouns`{nearest(noun, keys)}")
    phrases = _texts(fields.get("phrases"), file, f"{place}: phrases")
    words = _texts(fields.get("words"), file, f"{place}: words")
    if (noun is None) != (not words):
        missing = "noun" if noun is None else "words"
        raise ValueError(f"{file}: `{place}` lacks `{missing}`; `noun` and `words` go together")
    if not phrases and noun is None:
        raise ValueError(f"{file}: `{place}` can never be found; give `phrases`, or `noun` and `words`")
    return Concept(name, phrases, noun, words)


def _exclusive(value: Any, file: str, names: list[str]) -> tuple[tuple[str, ...], ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
        raise ValueError(f"{file}: `exclusive` is not a list of lists; write - [one concept, another concept]")
    groups = tuple(_texts(group, file, "exclusive") for group in value)
    for group in groups:
        for name in group:
            if name not in names:
                raise ValueError(f"{file}: `exclusive` has {name!r}, which is no concept{nearest(name, names)}")
        if len(set(group)) < 2:
            raise ValueError(f"{file}: `exclusive` has a group of one concept, {group}; give at least two")
    return groups


def _check_unique(lexicon: Lexicon, file: str) -> None:
    """No phrase may stand for two concepts, and no word may decide for two kinds of the same noun."""
    owners: dict[str, str] = {}
    entries = [(f"noun {noun.key!r}", noun.names + noun.parts) for noun in lexicon.nouns]
    entries += [(f"concept {concept.name!r}", concept.phrases) for concept in lexicon.concepts]
    for owner, texts in entries:
        for text in texts:
            other = owners.setdefault(text.lower(), owner)
            if other != owner:
                raise ValueError(f"{file}: {text!r} stands for both {other} and {owner}; remove one")
    owner_of: dict[tuple[str | None, str], str] = {}
    for concept in lexicon.concepts:
        for word in concept.words:
            name = owner_of.setdefault((concept.noun, word.lower()), concept.name)
            if name != concept.name:
                raise ValueError(
                    f"{file}: the word {word!r} decides for both {name!r} and {concept.name!r}; remove one"
                )


def _named(value: Any, file: str, place: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise ValueError(f"{file}: `{place}` is not a mapping; write one `name:` per line below it")
    for key in value:
        if not isinstance(key, str) or not key.strip():
            raise ValueError(f"{file}: `{place}` has the name {key!r}, which is not text; put it in quotes")
    return list(value.items())


def _mapping(value: Any, file: str, place: str, allowed: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{file}: `{place}` is not a mapping; it may have the keys {', '.join(allowed)}")
    for key in value:
        if key not in allowed:
            raise ValueError(f"{file}: `{place}` has the unknown key {key!r}{nearest(key, allowed)}")
    return value


def _texts(value: Any, file: str, place: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError(f"{file}: `{place}` is not a list; write [one, another]")
    for text in value:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{file}: `{place}` has {text!r}, which is not text; put it in quotes")
    return tuple(value)


def nearest(value: object, known: tuple[str, ...] | list[str]) -> str:
    """The end of an error message: the known name most like `value`, or all of them."""
    close = get_close_matches(str(value), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
