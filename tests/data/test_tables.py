"""Tables as people and spreadsheets write them."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsecaps.data.spreadsheets import Table, read_table, text_cell
from tests.messages import message, refused


def read(path: Path, content: str | bytes, others: bool = False) -> Table:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(path, required=("image", "label"), optional=("patient",), prefix="concept:", others=others)


GOOD = {
    "plain": b"image,label\na.png,nevus\n",
    "byte order mark": b"\xef\xbb\xbfimage,label\na.png,nevus\n",
    "semicolons": b"image;label\na.png;nevus\n",
    "tabs": b"image\tlabel\r\na.png\tnevus\r\n",
    "sep line": b"sep=;\r\nimage;label\r\na.png;nevus\r\n",
    "quoted sep line with a mark": b'\xef\xbb\xbf"sep=|"\nimage|label\na.png|nevus\n',
    "spaces, quotes and case": '" Image ",“LABEL”\na.png,nevus\n'.encode(),
    "old line ends": b"image,label\ra.png,nevus\r",
    "trailing separators": b"image,label,,\na.png,nevus,,\n,,,\n",
    "shorter than the blank columns": b"image,label,,\na.png,nevus\n",
    "blank lines at the end": b"image,label\na.png,nevus\n\n   \n",
    "no line end": b"image,label\na.png,nevus",
}


@pytest.mark.parametrize("name", GOOD)
def test_all_these_are_the_same_table(name: str, tmp_path: Path) -> None:
    table = read(tmp_path / "t.csv", GOOD[name])
    assert table.problems == []
    assert table.columns == ("image", "label")
    assert [(row.number, row.position, row.cells) for row in table.rows] == [
        (2, 0, {"image": "a.png", "label": "nevus"})
    ]


def test_rows_are_numbered_as_a_spreadsheet_does(tmp_path: Path) -> None:
    text = 'sep=,\nimage,label\n\na.png,"one\nclass"\nb.png\n,\nc.png,x,y\nd.png,nevus\n'
    table = read(tmp_path / "t.csv", text)
    assert [(row.number, row.position) for row in table.rows] == [(3, 0), (7, 3)]
    assert table.rows[0].cells["label"] == "one\nclass"
    assert [problem.row for problem in table.problems] == [4, 6]
    message(*table.problems)
    assert table.num_rows == 4


MANGLED = {
    "picture": "column C 'picture' is not known; known are image, label, patient, concept:<name>; rename or remove it",
    "pateint id": "column C 'pateint id' is not known; did you mean 'patient'?",
    "lable": "column C 'lable' is not known; did you mean 'label'?",
    "": "column C has no name; name it or remove it",
    "Unnamed: 3": "column C 'Unnamed: 3' had no name when a program wrote the table; name it or remove it",
    "43862": "column C '43862' is a number or a date where a name should be; name it or remove it",
    "0.5": "column C '0.5' is a number or a date where a name should be; name it or remove it",
    "2024-01-05": "column C '2024-01-05' is a number or a date where a name should be; name it or remove it",
    "1-Mar": "column C '1-Mar' is a number or a date where a name should be; name it or remove it",
    "concept.veil": "column C 'concept.veil' is not known; did you mean 'concept:veil'?",
    "Concept: veil": "column C 'Concept: veil' is not known; did you mean 'concept:veil'?",
    "concept_blue veil": "column C 'concept_blue veil' is not known; did you mean 'concept:blue veil'?",
    "concept:": "column C 'concept:' is not known; did you mean 'concept:<name>'?",
    "age": "column C 'age' is not known; known are image, label, patient, concept:<name>; rename or remove it",
    "Label": "column 'label' stands more than once (B and C); keep one",
}


@pytest.mark.parametrize("name", MANGLED)
def test_a_mangled_header_names_the_column_and_what_was_meant(name: str, tmp_path: Path) -> None:
    table = read(tmp_path / "t.csv", f"image,label,{name}\na.png,nevus,1\n")
    message(table.problems[0])
    assert len(table.rows) == (name != "Label")
    assert read(tmp_path / "t.csv", f"image,label,{name}\na.png,nevus,1\n", others=True).problems == (
        [] if name != "Label" else table.problems
    )


def test_concept_columns_are_kept_as_written(tmp_path: Path) -> None:
    table = read(tmp_path / "t.csv", "image,label, concept:Blue veil ,concept:b\na.png,nevus,1,\n")
    assert table.columns == ("image", "label", "concept:Blue veil", "concept:b")
    assert table.rows[0].cells["concept:Blue veil"] == "1"
    twice = read(tmp_path / "t.csv", "image,label,concept:B,concept:b\na.png,nevus,1,\n")
    message(*twice.problems)


def test_missing_columns_and_empty_tables(tmp_path: Path) -> None:
    table = read(tmp_path / "t.csv", "picture,patient\na.png,1\nb.png,2\n")
    assert table.rows == []
    message(*table.problems)
    message(*read(tmp_path / "t.csv", "\n \n").problems)
    message(*read(tmp_path / "t.csv", "image,label\n").problems)


@pytest.mark.parametrize(
    "content",
    [
        b"image,label\na.png,n\xe6vus\n",
        "image,label\na.png,nevus\n".encode("utf-16"),
        "image,label\n".encode("utf-16-le"),
        b'image,label\na.png,nevus\nb.png,"nevus\nc.png,nevus\n',
    ],
)
def test_a_file_that_cannot_be_read_at_all(content: bytes, tmp_path: Path) -> None:
    with refused(ValueError):
        read(tmp_path / "t.csv", content)


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    with refused(FileNotFoundError):
        read_table(tmp_path / "t.csv", required=("image",))


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=6), separator=st.sampled_from(",;\t"), bom=st.booleans())
def test_what_a_program_writes_is_read_back(
    rows: list[tuple[str, str, str]], separator: str, bom: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator).writerows([("image", "label", "patient"), *rows])
    table = read(tmp_path_factory.mktemp("t") / "t.csv", text.getvalue().encode("utf-8-sig" if bom else "utf-8"))
    expected = {number: row for number, row in enumerate(rows, 2) if any(cell.strip() for cell in row)}
    assert {row.number: tuple(row.cells.values()) for row in table.rows} == expected
    assert len(table.problems) == (not expected)


@given(content=st.one_of(st.binary(max_size=60), st.text('imagelb,;\t"\n\r 1', max_size=60).map(str.encode)))
def test_any_bytes_are_a_table_or_one_line_of_error(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        table = read(tmp_path_factory.mktemp("t") / "t.csv", content)
    except ValueError as error:
        lines = [str(error)]
    else:
        assert table.rows or table.problems
        lines = [str(problem) for problem in table.problems]
    assert all("\n" not in line for line in lines)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("archive/a b.png", "archive/a b.png"),
        ('=HYPERLINK("http://x.y","z")', '\'=HYPERLINK("http://x.y","z")'),
        ("+1", "'+1"),
        ("-5", "'-5"),
        ("@SUM(A1)", "'@SUM(A1)"),
        (" =1", "' =1"),
        ("\uff1d1", "'\uff1d1"),
        ("\t=1", "\\x09=1"),
        ("a;=1", "a;'=1"),  # two cells where spreadsheets separate by semicolons
        ("a=1;b-2", "a=1;b-2"),
        ("a\r\nb\x00\x1b[31m\u2028", "a\\x0d\\x0ab\\x00\\x1b[31m\\u2028"),
        ("caf\udce9 \ud800", "caf\\xe9 \\ud800"),  # a byte that is not UTF-8, and half a character
        ("café 😀", "café 😀"),
        ("x" * 20_000, "x" * 9_999 + "…"),
    ],
)
def test_a_text_is_one_cell_and_no_formula(text: str, cell: str) -> None:
    assert text_cell(text) == cell
    assert text_cell(cell) == cell


@given(st.text(st.characters() | st.sampled_from(" ;=+-@\t\r\n'\"")))
def test_any_text_comes_back_from_a_table(text: str) -> None:
    cell = text_cell(text)
    assert text_cell(cell) == cell
    assert not cell.lstrip().startswith(("=", "+", "-", "@"))
    assert len(cell.splitlines()) <= 1
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator="\n").writerow(["a", cell])
    assert written.getvalue().encode().count(b"\n") == 1
    assert next(csv.reader([written.getvalue()])) == ["a", cell]


def test_a_table_of_any_length_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with path.open("wb") as file:
        file.truncate(2**28 + 1)
    with refused(ValueError):
        read_table(path, required=("image",))
