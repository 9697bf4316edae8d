"""What is asked for is a row, or is counted."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parsecaps.prediction.files import LeftOut, find_files
from tests.data.image_files import grey, write_dicom, write_samples
from tests.data.make import folder_of_pictures
from tests.messages import message


def names(found: Iterator[Any], root: Path) -> list[str]:
    return [each.path.relative_to(root).as_posix() for each in found]


def test_images_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    folder_of_pictures(tmp_path / "a", per_class=3)
    picture = tmp_path / "a" / "a" / "0.png"
    for name in ("a.png", "a-b/x.png", "a/a/x.png", "B.png", "a.b/x.png", "\u00e4.png", ".h/x.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, tmp_path / name)
    wanted = [path.relative_to(tmp_path).as_posix() for path in sorted(tmp_path.rglob("*.png"))]
    assert names(find_files([tmp_path]), tmp_path) == wanted
    assert len(wanted) == 13


def test_a_deep_folder_is_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = ["d/" * depth for depth in range(1, 1501)]  # more than Python calls functions within each other
    for folder in folders:
        os.mkdir(folder)
    image = Path(folders[-1], "x.png")
    image.write_bytes(b"no image")
    found = list(find_files(["d"]))
    image.unlink()
    for folder in reversed(folders):  # pytest cannot remove it
        os.rmdir(folder)
    assert [each.path for each in found] == [image]


def test_a_file_of_another_ending_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    samples = write_samples(tmp_path)
    folder = tmp_path / "archive"
    folder.mkdir()
    known = [path for path in samples.values() if path.name.partition(".")[0] != "volume"]  # NIfTI needs its ending
    for i, path in enumerate(known):
        shutil.copy(path, folder / f"1.2.840.{i:02}")
    write_dicom(folder / "IM_0001", grey(), PatientID="ann")
    for name, content in {"notes.txt": b"x", "empty": b"", "z.gz": b"\x1f\x8b\0broken", ".DS_Store": b""}.items():
        (folder / name).write_bytes(content)
    left_out = LeftOut()
    found = list(find_files([folder], left_out))
    assert {each.path.name for each in found} == {*(f"1.2.840.{i:02}" for i in range(len(known))), "IM_0001"}
    assert not any(each.error for each in found)
    assert found[-1].patient == "ann"
    assert left_out.names == [".DS_Store", "empty", "notes.txt", "z.gz"]


def test_what_is_left_out_is_counted_by_name(tmp_path: Path) -> None:
    folder_of_pictures(tmp_path / "given", per_class=1)
    given = tmp_path / "given"
    (given / "linked").symlink_to(given / "a")
    (given / "a" / ".hidden.png").write_bytes(b"")
    (given / "a" / "two\nlines.txt").write_bytes(b"")
    (given / "answers.csv").write_bytes(b"")
    os.mkfifo(given / "pipe")
    left_out = LeftOut(own=[given / "a" / ".." / "answers.csv"])
    assert names(find_files([given], left_out), given) == ["a/0.png", "b/0.png"]
    assert left_out.names == ["a/.hidden.png", "a/two\nlines.txt", "linked", "pipe"]
    message(left_out.sentence())
    for i in range(2000):
        left_out.add(given / f"{i}.txt", given)
    message(left_out.sentence())
    assert (left_out.count, len(left_out.names)) == (2004, 1000)
    one = LeftOut()
    one.add(given / "x", given)
    message(one.sentence())


def test_what_cannot_be_read_is_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, below another or given by its name; a link to nowhere; a manifest that is not a table."""
    given = tmp_path / "given"
    folder_of_pictures(given, classes=("a", "closed", "z"), per_class=2)
    (given / "dead.png").symlink_to(tmp_path / "nowhere")
    manifest = tmp_path / "cases.csv"
    manifest.write_bytes(b"image,label\ncaf\xe9.png,a\n")
    scandir = os.scandir

    def closed(path: Any) -> Any:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    found = list(find_files([given, given / "closed", manifest, tmp_path / ("n" * 300)]))
    assert [each.path.name[:9] for each in found if each.error] == [
        "closed",
        "dead.png",
        "closed",
        "cases.csv",
        "nnnnnnnnn",
    ]
    assert [each.path.parent.name for each in found if not each.error] == ["a", "a", "z", "z"]
    message(found[2].error)


def test_a_file_that_may_not_be_opened_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "IM_0001").write_bytes(b"secret")

    def refuse(self: Path, *_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    (found,) = find_files([tmp_path])
    assert found.path.name == "IM_0001"
    assert found.error.startswith(str(found.path))
