"""Images in one folder, without any label."""

from pathlib import Path

from parsecaps.data.sources import open_data
from tests.data.make import folder_of_pictures
from tests.data.sources.layouts import write_image, write_text
from tests.messages import refused


def test_a_folder_of_images_is_recognised(tmp_path: Path) -> None:
    for name in ("b.png", "a.jpg", ".hidden.png", "Thumbs.db"):
        write_image(tmp_path / name) if name.endswith("g") else write_text(tmp_path / name, "junk")
    data = open_data(tmp_path)
    assert (data.source, data.classes, data.concepts, data.problems) == ("unlabelled", (), (), ())
    assert [(case.image.name, case.label, case.patient) for case in data.cases] == [
        ("a.jpg", -1, "a.jpg"),
        ("b.png", -1, "b.png"),
    ]


def test_a_folder_per_class_is_no_such_folder(tmp_path: Path) -> None:
    folder_of_pictures(tmp_path, per_class=2, side=32)
    assert open_data(tmp_path).source == "folder"
    write_image(tmp_path / "stray.png")
    data = open_data(tmp_path)
    assert (data.source, len(data)) == ("folder", 4)
    assert [problem.file for problem in data.problems] == [str(tmp_path / "stray.png")]
    listed = open_data(f"unlabelled:{tmp_path}")  # who asks for it gets it
    assert [case.image.name for case in listed.cases] == ["stray.png"]


def test_a_file_that_is_no_image_is_passed_over(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    write_text(tmp_path / "LICENSE.txt", "text")
    data = open_data(tmp_path)
    assert (data.source, [case.image.name for case in data.cases]) == ("unlabelled", ["a.png"])


def test_a_manifest_speaks_for_its_folder(tmp_path: Path) -> None:
    write_image(tmp_path / "a.png")
    write_text(tmp_path / "manifest.csv", "image,label\na.png,nevus\n")
    assert open_data(tmp_path).source == "manifest"


def test_where_there_are_none(tmp_path: Path) -> None:
    with refused(ValueError):
        open_data(f"unlabelled:{tmp_path}")
    with refused(FileNotFoundError):
        open_data(f"unlabelled:{tmp_path / 'gone'}")
    with refused(ValueError):
        open_data(tmp_path)
