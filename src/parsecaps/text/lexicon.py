"""The lexicon: which phrases, nouns and modifiers stand for which concept, read from a YAML file."""

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

SHIPPED = ("dermoscopy",)


@dataclass(frozen=True, slots=True)
class Noun:
    """A thing that several concepts are kinds of, with its parts.

    A denied part denies the thing only if nothing else of it is asserted, unlike in "irregular dots, no globules".
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
            return cls._from(yaml.safe_load(text))
        except yaml.YAMLError as error:
            mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
            line, why = f", line {mark.line + 1}" if mark else "", f" ({problem})" if problem else ""
            raise ValueError(f"{file}{line}: not YAML{why}; see docs/concepts.md for the format") from None
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None

    @classmethod
    def _from(cls, content: Any) -> "Lexicon":
        top = _mapping(content, "the file", ("concepts", "nouns", "exclusive", "ignore"))
        if not top.get("concepts"):
            raise ValueError("`concepts` is missing or empty; list at least one concept")
        nouns = tuple(_noun(key, value) for key, value in _mapping(top.get("nouns") or {}, "nouns").items())
        keys = [noun.key for noun in nouns]
        concepts = tuple(_concept(key, value, keys) for key, value in _mapping(top["concepts"], "concepts").items())
        exclusive = _exclusive(top.get("exclusive"), [concept.name for concept in concepts])
        lexicon = cls(concepts, nouns, exclusive, _texts(top.get("ignore"), "ignore"))
        _check_unique(lexicon)
        return lexicon


def _noun(key: str, value: Any) -> Noun:
    place = f"nouns: {key}"
    fields = _mapping({"names": value} if isinstance(value, list) else value, place, ("names", "parts"))
    noun = Noun(key, _texts(fields.get("names"), f"{place}: names"), _texts(fields.get("parts"), place))
    if not noun.names + noun.parts:
        raise ValueError(f"`{place}` has no names; list the ways to write it")
    return noun


def _concept(name: str, value: Any, nouns: list[str]) -> Concept:
    place = f"concepts: {name}"
    fields = _mapping({"phrases": value} if isinstance(value, list) else value, place, ("phrases", "noun", "words"))
    noun = fields.get("noun")
    if noun is not None and noun not in nouns:
        raise ValueError(f"`{place}` names the noun {noun!r}, which is not in `nouns`{nearest(noun, nouns)}")
    phrases, words = (_texts(fields.get(key), f"{place}: {key}") for key in ("phrases", "words"))
    if (noun is None) != (not words):
        missing = "noun" if noun is None else "words"
        raise ValueError(f"`{place}` lacks `{missing}`; `noun` and `words` go together")
    if not phrases and noun is None:
        raise ValueError(f"`{place}` can never be found; give `phrases`, or `noun` and `words`")
    return Concept(name, phrases, noun, words)


def _exclusive(value: Any, names: list[str]) -> tuple[tuple[str, ...], ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
        raise ValueError("`exclusive` is not a list of lists; write - [one concept, another concept]")
    groups = tuple(_texts(group, "exclusive") for group in value)
    for group in groups:
        if unknown := [name for name in group if name not in names]:
            raise ValueError(f"`exclusive` has {unknown[0]!r}, which is no concept{nearest(unknown[0], names)}")
        if len(set(group)) < 2:
            raise ValueError(f"`exclusive` has a group of one concept, {group}; give at least two")
    return groups


def _check_unique(lexicon: Lexicon) -> None:
    """No phrase may stand for two concepts, and no word may decide for two kinds of the same noun."""
    owners: dict[str, str] = {}
    entries = [(f"noun {noun.key!r}", noun.names + noun.parts) for noun in lexicon.nouns]
    entries += [(f"concept {concept.name!r}", concept.phrases) for concept in lexicon.concepts]
    for owner, text in ((owner, text) for owner, texts in entries for text in texts):
        if (other := owners.setdefault(text.lower(), owner)) != owner:
            raise ValueError(f"{text!r} stands for both {other} and {owner}; remove one")
    decided: dict[tuple[str | None, str], str] = {}
    for concept, word in ((each, word) for each in lexicon.concepts for word in each.words):
        if (name := decided.setdefault((concept.noun, word.lower()), concept.name)) != concept.name:
            raise ValueError(f"the word {word!r} decides for both {name!r} and {concept.name!r}; remove one")


def _mapping(value: Any, place: str, allowed: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(value, dict):
        how = f"it may have the keys {', '.join(allowed)}" if allowed else "write one `name:` per line below it"
        raise ValueError(f"`{place}` is not a mapping; {how}")
    for key in value:
        if allowed and key not in allowed:
            raise ValueError(f"`{place}` has the unknown key {key!r}{nearest(key, allowed)}")
        if not isinstance(key, str) or not key.strip():
            raise ValueError(f"`{place}` has the name {key!r}, which is not text; put it in quotes")
    return value


def _texts(value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, list | None):
        raise ValueError(f"`{place}` is not a list; write [one, another]")
    for text in value or ():
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"`{place}` has {text!r}, which is not text; put it in quotes")
    return tuple(value or ())


def nearest(value: object, known: tuple[str, ...] | list[str]) -> str:
    """The end of an error message: the known name most like `value`, or all of them."""
    close = get_close_matches(str(value), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
