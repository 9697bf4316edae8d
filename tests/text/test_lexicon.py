"""Lexicons: the one that ships, and one line for every mistake in another."""

from pathlib import Path

import pytest

from parsecaps.text.lexicon import Lexicon

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
MISTAKES = {
    "": "`the file` is not a mapping; it may have the keys concepts, nouns",
    "nouns: {n: [n]}": "`concepts` is missing or empty",
    "concept: {a: [b]}": "`the file` has the unknown key 'concept'; did you mean 'concepts'?",
    "concepts: [a, b]": "`concepts` is not a mapping",
    "concepts: {a: {phrase: [b]}}": "`concepts: a` has the unknown key 'phrase'; did you mean 'phrases'?",
    "concepts: {a: [no]}": "`concepts: a: phrases` has False, which is not text; put it in quotes",
    "concepts: {1: [b]}": "`concepts` has the name 1, which is not text",
    "concepts: {a: {phrases: b}}": "`concepts: a: phrases` is not a list; write",
    "concepts: {a: {}}": "`concepts: a` can never be found; give `phrases`, or `noun` and `words`",
    "concepts: {a: {noun: streak, words: [x]}}\nnouns: {streaks: [s]}": "names the noun 'streak', which is not in "
    "`nouns`; did you mean 'streaks'?",
    "concepts: {a: {noun: n}}\nnouns: {n: [n]}": "`concepts: a` lacks `words`; `noun` and `words` go together",
    "concepts: {a: {words: [n]}}": "`concepts: a` lacks `noun`",
    KIND + "exclusive: [a, b]": "`exclusive` is not a list of lists",
    KIND + "exclusive: [[a, aa]]": "`exclusive` has 'aa', which is no concept; did you mean 'a'?",
    KIND + "exclusive: [[a]]": "group of one concept",
    KIND + "nouns: {n: []}": "`nouns: n` has no names",
    "concepts: {a: [Veil], b: [veil]}": "'veil' stands for both concept 'a' and concept 'b'; remove one",
    "concepts: {a: {noun: n, words: [x]}, b: {noun: n, words: [X]}}\nnouns: {n: [n]}": "decides for both 'a' and 'b'",
    "concepts: {a: [b": "line 2: not YAML",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_line_with_the_file_and_the_fix(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r".") as caught:
        Lexicon.load(file)
    message = str(caught.value)
    assert message.startswith(str(file))
    assert MISTAKES[text] in message
    assert "\n" not in message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.yaml is missing"):
        Lexicon.load(tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes("concepts: {a: [naïve]}".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.yaml is not UTF-8"):
        Lexicon.load(tmp_path / "latin.yaml")
    with pytest.raises(ValueError, match="no lexicon 'radiology' ships with parsecaps"):
        Lexicon.shipped("radiology")
