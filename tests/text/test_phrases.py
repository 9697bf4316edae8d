"""Noun phrases as doctors write them, what of them a lexicon lacks, and a lexicon proposed from a table."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from parsecaps.cli import app
from parsecaps.text import Lexicon, annotate_table, find_concepts, propose_lexicon
from parsecaps.text.phrases import noun_phrases
from parsecaps.text.tokens import PieceReader
from tests.messages import refused

EMPTY = Lexicon(())
SENTENCES = {
    "Scaly plaque with pearly border and arborizing vessels.": ["scaly plaque", "pearly border", "arborizing vessel"],
    "Its surface is shiny, red and rough.": ["shiny surface", "red surface", "rough surface"],
    "Red and blue dots": ["red dot", "blue dot"],
    "Border irregular, colour brown. No ulceration.": ["irregular border", "ulceration"],
    "Margins: ill-defined; calcification: none": ["ill-defined margin", "calcification"],
    "The pigment network is atypical and the globules are irregular": [
        "pigment network",
        "atypical network",
        "irregular globule",
    ],
    "Slightly erythematous scaly plaque on the left arm of a 62 year old woman": [
        "erythematous plaque",
        "scaly plaque",
        "arm",
    ],
    "": [],
    "is, and: (": [],
}


def kinds(text: str, lexicon: Lexicon = EMPTY) -> list[str]:
    return [kind for each in noun_phrases(PieceReader(lexicon).read(text), text) for kind in each.kinds()]


@pytest.mark.parametrize("text", SENTENCES)
def test_phrases_are_nouns_with_their_adjectives(text: str) -> None:
    assert kinds(text) == SENTENCES[text]


def test_what_the_lexicon_has_is_not_unlisted() -> None:
    text = "Atypical pigment network, brown irregular streaks, dotted vessels, and a central crust."
    (found,) = find_concepts([text], Lexicon.shipped("dermoscopy"))
    assert [kind for each in found.unlisted for kind in each.kinds()] == ["dotted vessel", "central crust"]


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    path = tmp_path / "reports.csv"
    rows = ["Scaly plaque with pearly border", "Scaly plaque, plaque ulcerated. No crust.", "No: crust"]
    path.write_text("\n".join(["text,other", *(f'"{row}",1' for row in rows)]) + "\n", encoding="utf-8")
    return path


def test_a_proposed_lexicon_reads_the_table_that_it_comes_from(reports: Path, tmp_path: Path) -> None:
    lexicon = tmp_path / "lexicon.yaml"
    counts = propose_lexicon(reports, "text", lexicon)
    assert counts == {"scaly plaque": 2, "crust": 2, "pearly border": 1, "ulcerated plaque": 1}
    assert Lexicon.load(lexicon).names[:2] == ("scaly plaque", "crust")
    assert "# 2\n" in lexicon.read_text(encoding="utf-8")
    summary = annotate_table(reports, "text", Lexicon.load(lexicon), tmp_path / "out.csv", tmp_path / "evidence.csv")
    assert (summary.counts["scaly plaque"].present, summary.counts["crust"].absent) == (2, 2)
    assert not summary.unlisted
    assert summary.lines() == []


def test_rare_phrases_are_left_out_of_a_long_table(tmp_path: Path) -> None:
    table, lexicon = tmp_path / "reports.csv", tmp_path / "lexicon.yaml"
    table.write_text("text\n" + "scaly plaque\n" * 200 + "waxy nodule\n", encoding="utf-8")
    propose_lexicon(table, "text", lexicon)
    assert Lexicon.load(lexicon).names == ("scaly plaque",)


def test_the_command_says_what_the_lexicon_lacks_and_proposes_one(reports: Path, tmp_path: Path) -> None:
    words = ["concepts", str(reports), "--column", "text", "--out"]
    said = CliRunner().invoke(app, [*words, str(tmp_path / "out.csv")]).stdout
    assert "not in the lexicon: scaly plaque (2), crust (2), pearly border (1)" in said
    done = CliRunner().invoke(app, [*words, str(tmp_path / "lexicon.yaml"), "--propose"])
    assert done.exit_code == 0, done.stderr
    assert "4 phrases found" in done.stdout
    refusal = CliRunner().invoke(
        app, [*words, str(tmp_path / "x.yaml"), "--propose", "--evidence", str(tmp_path / "e")]
    )
    assert refusal.exit_code != 0
    assert "--evidence" in refusal.stderr


def test_a_lexicon_that_may_have_been_edited_is_not_written_over(reports: Path, tmp_path: Path) -> None:
    lexicon = tmp_path / "lexicon.yaml"
    lexicon.write_text("mine", encoding="utf-8")
    with refused(FileExistsError):
        propose_lexicon(reports, "text", lexicon)
    assert lexicon.read_text(encoding="utf-8") == "mine"
    with refused(ValueError):
        propose_lexicon(reports, "other", tmp_path / "no.yaml")
    assert not (tmp_path / "no.yaml").exists()
