"""A table that was measured again, in words: ours, theirs, the difference, and what is missing."""

from pathlib import Path

import pytest
from PIL import Image

from parsecaps.metrics import Difference, Score
from parsecaps.report.reproduced import Figure, Measure, Reproduced, TableRow, TableSection, markdown
from parsecaps.report.reproduced_pictures import draw_intervals

ACCURACY = Measure("accuracy", "accuracy")
ROWS = [
    TableRow("Ours", {"accuracy": Figure.of(Score(0.889, 0.8312, 0.934, 400), 99.38)}, by="the authors"),
    TableRow(
        "Ri|val",
        {"accuracy": Figure.of(Score(0.9, None, None, 400))},
        trained={"epochs": "2"},
        against=Difference(88.9, 90.0, 1.1, -2.0, 4.5, 0.43),
    ),
    TableRow("Late", {"accuracy": Figure(published=92.6)}, "missing"),
    TableRow("Unbuilt", {"accuracy": Figure(published=68.3)}, "published only: its layers are not known"),
]
TABLE = Reproduced("t", "Title", "Tab. 1", "quick", ["equal"], [TableSection("All", [ACCURACY], ROWS, "x", "Ours")])


def test_a_row_has_our_figure_the_published_one_and_the_difference() -> None:
    lines = markdown(TABLE).splitlines()
    assert "| Ours | 88.9 (83.1 to 93.4) / 99.38 / -10.5 | - |" in lines
    assert "| Ri\\|val | 90.0 / - / - | +1.1 (-2.0 to +4.5, p 0.430) |" in lines
    assert "| Late | missing / 92.60 / - | - |" in lines
    assert "| Unbuilt | published only: its layers are not known / 68.30 / - | - |" in lines
    assert "Published figures by: Ours: the authors." in lines
    assert "| Ri\\|val | 2 |" in lines


def test_json_has_the_difference_too() -> None:
    stored = TABLE.as_dict()["sections"][0]["rows"]
    assert stored[0]["figures"]["accuracy"]["difference"] == pytest.approx(-10.48)
    assert stored[1]["figures"]["accuracy"]["difference"] is None
    assert stored[1]["against"]["p_value"] == 0.43


def test_missing_cells_stand_at_the_top() -> None:
    from dataclasses import replace

    assert "**Not finished.** Missing: Late." in markdown(replace(TABLE, missing=["Late"]))


def test_a_terminal_has_no_column_without_content() -> None:
    [table] = TABLE.tables()
    assert list(table.columns) == [*("", "accuracy, %", "95 % interval", "published", "difference", "p, against Ours")]
    [short] = Reproduced("t", "", "", "", [], [TableSection("All", [ACCURACY], [TableRow("a", {})])]).tables()
    assert len(short.columns) == 2


def test_a_picture_has_a_row_for_each_model(tmp_path: Path) -> None:
    heights = []
    for count in (2, 4):
        path = tmp_path / f"{count}.png"
        draw_intervals(path, [TableSection("All", [ACCURACY], ROWS[:count])], [ACCURACY], reference="Ours")
        with Image.open(path) as picture:
            heights.append(picture.height)
            colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
        assert {(31, 95, 168), (194, 65, 12)} <= colours  # ours and theirs
    assert heights[1] > heights[0]
    assert path.stat().st_mode & 0o077 == 0
