"""Files are found as they are on disk."""

from pathlib import Path

import pytest

from parsecaps.files.writing import Listing


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("Images/NEL/a.JPG", "Images/NEL/a.JPG"),
        ("images/nel/A.jpg", "Images/NEL/a.JPG"),
        ("Images/NEL/../NEL/./a.JPG", "Images/NEL/a.JPG"),
        ("Images/two/X.png", "Images/two/X.png"),
        ("Images/two/x.png", "Images/two/x.png"),
        ("Images/two/x.PNG", None),  # two would do
        ("Images/NEL", None),  # a folder
        ("Images/none/a.JPG", None),
        (".", None),
        ("a" * 300 + "/b", None),
    ],
)
def test_find(asked: str, found: str | None, tmp_path: Path) -> None:
    for name in ("Images/NEL/a.JPG", "Images/two/x.png", "Images/two/X.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    listing = Listing()
    for _ in range(2):  # from disk, and from what is known by then
        assert listing.find(tmp_path / asked) == (None if found is None else tmp_path / found)


def test_find_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").touch()
    monkeypatch.chdir(tmp_path)
    assert Listing().find(Path("A.png")) == Path("a.png")
