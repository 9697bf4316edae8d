"""Tables: every column kept, the evidence beside it, nothing half written, and clear errors."""

import csv
import sys
from pathlib import Path

import pytest

from parsecaps.report.draw import highlight
from parsecaps.text.finding import Counts, TableSummary, annotate_table, find_concepts
from parsecaps.text.lexicon import Lexicon
from tests.messages import refused

LEXICON = Lexicon.shipped("dermoscopy")
REPORTS = [
    ("a.png", 'Irregular streaks, "blue" veil; no network.', "melanoma"),
    ("b.png", "Typical network.\nNo veil. Grüße", "nevus"),
    ("c.png", "", "nevus"),
]


def write(path: Path, rows: list[tuple[str, ...]], encoding: str = "utf-8") -> Path:
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    return write(tmp_path / "reports.csv", [("image", "text", "label"), *REPORTS])


def annotate(reports: Path, column: str = "text") -> TableSummary:
    return annotate_table(reports, column, LEXICON, reports.parent / "cases.csv", reports.parent / "evidence.csv")


def test_columns_and_values(reports: Path, tmp_path: Path) -> None:
    before = reports.read_bytes()
    summary = annotate(reports)
    assert reports.read_bytes() == before
    rows = read(tmp_path / "cases.csv")
    assert list(rows[0]) == ["image", "note:text", "label", *(f"concept:{name}" for name in LEXICON.names)]
    assert [(row["image"], row["note:text"], row["label"]) for row in rows] == REPORTS
    concepts = [[row[f"concept:{name}"] for name in LEXICON.names] for row in rows]
    assert concepts == [  # typical, atypical network, veil, regular, irregular streaks, regular, irregular globules
        ["0", "0", "1", "0", "1", "", ""],
        ["1", "0", "0", "", "", "", ""],
        ["", "", "", "", "", "", ""],
    ]
    assert summary.rows == 3
    assert summary.counts["typical pigment network"] == Counts(present=1, absent=1, unknown=1)
    assert [text for text, _ in summary.first] == [text for _, text, _ in REPORTS]


def test_evidence_is_written_as_safe_cells(tmp_path: Path) -> None:
    reports = write(tmp_path / "reports.csv", [("image", "text", "label"), ("a.png", "No\tveil.", "nevus")])
    annotate(reports)
    assert "No\\x09veil" in [line["text"] for line in read(tmp_path / "evidence.csv")]


def test_evidence_points_into_the_text(reports: Path, tmp_path: Path) -> None:
    annotate(reports)
    evidence = read(tmp_path / "evidence.csv")
    assert evidence[0] == {
        "row": "2",
        "concept": "typical pigment network",
        "value": "0",
        "start": "32",
        "end": "42",
        "text": "no network",
        "reason": "negated",
    }
    assert {line["row"] for line in evidence} == {"2", "3"}
    for line in evidence:
        text = REPORTS[int(line["row"]) - 2][1]
        assert text[int(line["start"]) : int(line["end"])] == line["text"]


def test_byte_order_mark_short_rows_and_progress(tmp_path: Path) -> None:
    rows = [("text", "label"), ("No veil.", "nevus"), ("Veil.",)]
    reports = write(tmp_path / "reports.csv", rows, "utf-8-sig")
    done: list[int] = []
    summary = annotate_table(reports, "text", LEXICON, tmp_path / "c.csv", tmp_path / "e.csv", progress=done.append)
    assert done == [1, 2]
    assert len(summary.first) == 2
    assert [row["label"] for row in read(tmp_path / "c.csv")] == ["nevus", ""]
    assert [row["concept:blue-whitish veil"] for row in read(tmp_path / "c.csv")] == ["0", "1"]


def test_a_long_report_fits(tmp_path: Path) -> None:
    reports = write(tmp_path / "reports.csv", [("text",), ("Lesion. " * 20_000 + "No veil.",)])
    limit = csv.field_size_limit()
    assert annotate(reports).counts["blue-whitish veil"] == Counts(absent=1)
    assert csv.field_size_limit() == limit


@pytest.mark.parametrize(
    "content",
    [
        b"image,report\na,b\n",
        b"image,texts\na,b\n",
        b"image;text\na;b\n",
        b"text,text\na,b\n",
        b"text,concept:regular streaks\na,\n",
        b"",
        b"text\nNo veil.\nGr\xfc\xdfe\n",
        b"text,label\nNo veil, no streaks,nevus\n",
        b'text\n"never closed\n',
    ],
)
def test_a_bad_table_is_one_line_and_leaves_nothing(content: bytes, tmp_path: Path) -> None:
    reports = tmp_path / "reports.csv"
    reports.write_bytes(content)
    with refused(ValueError):
        annotate(reports)
    assert list(tmp_path.iterdir()) == [reports]


def test_an_old_result_stays_when_a_new_one_fails(tmp_path: Path) -> None:
    reports = write(tmp_path / "reports.csv", [("text",), ("No veil.",)])
    annotate(reports)
    before = (tmp_path / "cases.csv").read_bytes()
    reports.write_bytes(b"text\nVeil.\nGr\xfc\xdfe\n")
    with refused(ValueError):
        annotate(reports)
    assert (tmp_path / "cases.csv").read_bytes() == before


def test_paths(reports: Path, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(reports)
    for bad in (reports, tmp_path / "link.csv", tmp_path / "." / "reports.csv"):
        with refused(ValueError):
            annotate_table(reports, "text", LEXICON, bad, tmp_path / "e.csv")
        with refused(ValueError):
            annotate_table(reports, "text", LEXICON, tmp_path / "c.csv", bad)
    with refused(ValueError):
        annotate_table(reports, "text", LEXICON, tmp_path / "c.csv", tmp_path / "c.csv")
    with refused(FileNotFoundError):
        annotate_table(reports, "text", LEXICON, tmp_path / "nowhere" / "c.csv", tmp_path / "e.csv")
    with refused(ValueError):
        annotate_table(reports, "text", LEXICON, tmp_path, tmp_path / "e.csv")
    with refused(FileNotFoundError):
        annotate(tmp_path / "missing.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.csv", "reports.csv"]


def test_without_spacy_there_is_one_line(reports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    new = Lexicon.parse("concepts: {oedema: [oedema]}", "new.yaml")  # one for which nothing has been prepared yet
    with refused(ModuleNotFoundError):
        annotate_table(reports, "text", new, tmp_path / "cases.csv", tmp_path / "evidence.csv")
    assert list(tmp_path.iterdir()) == [reports]


def test_highlight_marks_the_evidence() -> None:
    text = "Irregular streaks, no veil, possible globules."
    findings = next(find_concepts([text], LEXICON))
    shown = highlight(text, findings.spans(), findings.named())
    styles = {text[span.start : span.end]: str(span.style) for span in shown.spans if span.end <= len(text)}
    assert styles == {"Irregular streaks": "bold green", "no veil": "bold red", "possible globules": "bold yellow"}
    assert shown.plain.splitlines() == [
        text,
        "  present: irregular streaks",
        "  absent: blue-whitish veil, regular streaks",
        "  unknown: regular dots and globules, irregular dots and globules",
    ]
