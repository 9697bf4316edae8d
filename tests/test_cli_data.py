"""The data commands, as a user types them."""

import csv
import json
from pathlib import Path

import pytest
from PIL import Image

from parsecaps.data.sources import open_data
from tests.command import run
from tests.data.make import folder_of_pictures
from tests.messages import message


def rows_in(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Sixteen images of eight patients with two concepts."""
    data = folder_of_pictures(tmp_path / "pictures", per_class=8)
    path = tmp_path / "cases.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "patient", "concept:veil", "concept:streaks"])
        for i, case in enumerate(data.cases):
            place = case.image.relative_to(tmp_path).as_posix()
            writer.writerow([place, data.classes[case.label], case.patient, case.label, "" if i == 2 else i % 2])
    return path


def test_check_of_a_good_manifest(manifest: Path, tmp_path: Path) -> None:
    page, file = tmp_path / "page.html", tmp_path / "check.json"
    result = run("data", "check", manifest, "--val", "0.25", "--test", "0.25", "--page", page, "--json", file)
    assert result.exit_code == 0, result.output
    message(result.stdout, containing="images of")
    message(result.stdout, containing="safe")
    stored = json.loads(file.read_text(encoding="utf-8"))
    assert stored["safe"]
    assert stored["classes"] == ["a", "b"]
    assert stored["concepts"] == ["veil", "streaks"]
    assert stored["split_hash"] in result.stdout
    assert "Safe to train on" in page.read_text(encoding="utf-8")


def test_check_names_all_problems_and_fails(manifest: Path, tmp_path: Path) -> None:
    (tmp_path / "pictures/a/0.png").write_bytes(b"not an image")
    (tmp_path / "pictures/b/1.png").unlink()
    with open(manifest, "a", encoding="utf-8") as file:
        file.write("pictures/a/1.png,a,x,maybe,1\n")
    result = run("data", "check", manifest)
    assert result.exit_code == 1
    assert result.stdout.count("problem: ") == 3
    message(result.stdout, containing="problem")
    skipped = run("data", "check", manifest, "--skip-bad")
    assert skipped.exit_code == 0, skipped.output
    message(skipped.stdout, containing="problems")


def test_leaks_are_caught_listed_and_mended(manifest: Path, tmp_path: Path) -> None:
    split, mended = tmp_path / "split.csv", tmp_path / "mended.csv"
    assert run("data", "split", manifest, "--out", split, "--val", "0.25", "--test", "0.25").exit_code == 0
    rows = rows_in(split)
    train = next(row for row in rows if row["split"] == "train")
    train["split"] = "test"  # its patient is now on both sides
    other = next(row for row in rows if row["split"] == "val")
    tested = next(row for row in rows if row["split"] == "test" and row["patient"] != train["patient"])
    with Image.open(tmp_path / tested["image"]) as image:
        image.resize((40, 40)).save(tmp_path / other["image"])  # a copy in other clothes
    with split.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    result = run("data", "check", manifest, "--split", split, "--fix-split", mended)
    assert result.exit_code == 1
    message(result.stdout, containing="leak")
    assert run("data", "check", manifest, "--split", mended).exit_code == 0
    file = tmp_path / "allowed.json"
    allowed = run("data", "check", manifest, "--split", split, "--allow-leaks", "--json", file)
    assert allowed.exit_code == 0
    message(*json.loads(file.read_text(encoding="utf-8"))["notes"], containing="leaks")


def test_a_split_column_that_is_blank_in_some_rows(manifest: Path, tmp_path: Path) -> None:
    """What has no part is dealt, which is said; what is left out all the same is counted."""
    lines = manifest.read_text(encoding="utf-8").splitlines()
    parts = ["split", *["train", "train", "val", "val", "test", "test", "", ""] * 2]
    manifest.write_text("".join(f"{a},{b}\n" for a, b in zip(lines, parts, strict=True)), encoding="utf-8")
    split, file = tmp_path / "split.csv", tmp_path / "check.json"
    result = run("data", "split", manifest, "--out", split)
    assert "unused" not in result.stdout
    message(result.stdout, containing="note: ")
    assert all(row["split"] for row in rows_in(split))
    (tmp_path / "pictures/a/0.png").write_bytes(b"not an image")
    result = run("data", "check", manifest, "--test-part", "val", "--val", "0", "--skip-bad", "--json", file)
    assert result.exit_code == 0, result.output
    message(result.stdout, containing="split: ", hide="hash .*")
    stored = json.loads(file.read_text(encoding="utf-8"))
    assert stored["unused"] == {"the official test part": 4, "cannot be read": 1}
    message(*stored["notes"])


def test_folds_are_one_file_each(manifest: Path, tmp_path: Path) -> None:
    result = run("data", "split", manifest, "--folds", "3", "--val", "0", "--out", tmp_path / "fold.csv")
    assert result.exit_code == 0, result.output
    tested = []
    for i in (1, 2, 3):
        rows = rows_in(tmp_path / f"fold-{i}.csv")
        tested += [row["image"] for row in rows if row["split"] == "test"]
    assert len(tested) == len(set(tested)) == 16
    assert result.stdout.count("hash ") == 3


def test_the_phantom_needs_no_files(tmp_path: Path) -> None:
    result = run("data", "check", "phantom:n=120,size=32", "--size", "32", "--page", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "blue-whitish veil" in result.stdout
    message(result.stdout, containing="in at most")


def test_sources_are_listed() -> None:
    result = run("data", "sources")
    assert result.exit_code == 0
    for name in ("cemri", "ph2", "derm7pt", "ph2d7", "wbcatt", "mnist", "affnist", "folder", "manifest", "phantom"):
        assert name in result.stdout


def test_concepts_from_reports_become_a_manifest(tmp_path: Path) -> None:
    folder_of_pictures(tmp_path / "pictures", per_class=1)
    reports = tmp_path / "reports.csv"
    reports.write_text(
        "image,label,patient,text\n"
        'pictures/a/0.png,a,p,"Atypical pigment network, no blue-white veil. Possible streaks."\n'
        "pictures/b/0.png,b,q,Regular streaks all around.\n",
        encoding="utf-8",
    )
    out = tmp_path / "cases.csv"
    result = run("concepts", reports, "--column", "text", "--out", out)
    assert result.exit_code == 0, result.output
    first, second = rows_in(out)
    assert (first["concept:atypical pigment network"], first["concept:blue-whitish veil"]) == ("1", "0")
    assert (first["concept:regular streaks"], second["concept:regular streaks"]) == ("", "1")
    evidence = rows_in(tmp_path / "cases-evidence.csv")
    assert any(row["text"].lower().startswith("atypical pigment network") for row in evidence)
    assert "2 rows" in result.stdout
    opened = open_data(out)
    assert opened.problems == []
    assert opened.cases[0].concepts[:3] == (0.0, 1.0, 0.0)


def test_giants_and_bombs_are_problems_not_crashes(manifest: Path, tmp_path: Path) -> None:
    Image.new("1", (30_000, 30_000)).save(tmp_path / "pictures/a/0.png")
    result = run("data", "check", manifest)
    assert result.exit_code == 1
    message(result.stdout, containing="problem: ")
    assert result.stdout.count("problem: ") == 1
