"""Lexicons: the one that ships, and one line for every mistake in another."""

from pathlib import Path

import pytest

from parsecaps.text.lexicon import Lexicon
from tests.messages import refused

PAPER = [
    "atypical pigment network",
    "blue-whitish veil",
    "irregular dots and globules",
    "irregular streaks",
    "regular dots and globules",
    "regular streaks",
    "typical pigment network",
]


def test_dermoscopy_has_the_concepts_of_the_paper() -> None:
    lexicon = Lexicon.shipped("dermoscopy")
    assert sorted(lexicon.names) == PAPER
    assert {frozenset(group) for group in lexicon.exclusive} == {
        frozenset({"typical pigment network", "atypical pigment network"}),
        frozenset({"regular streaks", "irregular streaks"}),
        frozenset({"regular dots and globules", "irregular dots and globules"}),
    }


def test_loads_a_file_with_and_without_a_byte_order_mark(tmp_path: Path) -> None:
    text = "concepts:\n  oedema: [oedema, edema]\n"
    (tmp_path / "plain.yaml").write_bytes(text.encode())
    (tmp_path / "marked.yaml").write_bytes(b"\xef\xbb\xbf" + text.encode())
    plain = Lexicon.load(tmp_path / "plain.yaml")
    assert plain == Lexicon.load(str(tmp_path / "marked.yaml"))
    assert plain.concepts[0].phrases == ("oedema", "edema")


KIND = "concepts: {a: {noun: n, words: [x]}}\nnouns: {n: [n]}\n"
MISTAKES = [
    "",
    "nouns: {n: [n]}",
    "concept: {a: [b]}",
    "concepts: [a, b]",
    "concepts: {a: {phrase: [b]}}",
    "concepts: {a: [no]}",
    "concepts: {1: [b]}",
    "concepts: {a: {phrases: b}}",
    "concepts: {a: {}}",
    "concepts: {a: {noun: streak, words: [x]}}\nnouns: {streaks: [s]}",
    "concepts: {a: {noun: n}}\nnouns: {n: [n]}",
    "concepts: {a: {words: [n]}}",
    KIND + "exclusive: [a, b]",
    KIND + "exclusive: [[a, aa]]",
    KIND + "exclusive: [[a]]",
    KIND + "nouns: {n: []}",
    "concepts: {a: [Veil], b: [veil]}",
    "concepts: {a: {noun: n, words: [x]}, b: {noun: n, words: [X]}}\nnouns: {n: [n]}",
    "concepts: {a: [b",
]


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_line_with_the_file_and_the_fix(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text + "\n", encoding="utf-8")
    with refused(ValueError):
        Lexicon.load(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with refused(FileNotFoundError):
        Lexicon.load(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes("concepts: {a: [naïve]}".encode("latin-1"))
    with refused(ValueError):
        Lexicon.load(tmp_path / "latin.yaml")
    with refused(ValueError):
        Lexicon.shipped("radiology")
