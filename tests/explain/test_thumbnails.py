import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from parsecaps.explain.case_memory import jpeg, read_thumbnails, write_thumbnails


def shades(channels: int, side: int) -> np.ndarray:
    return np.stack([np.full((channels, side, side), 40 * i, np.uint8) for i in range(5)])


@pytest.mark.parametrize(("channels", "side", "shown"), [(1, 224, 96), (3, 128, 96), (1, 28, 28)])
def test_pictures_come_back_in_the_order_of_the_rows(channels: int, side: int, shown: int, tmp_path: Path) -> None:
    path = tmp_path / "thumbnails.zip"
    write_thumbnails(path, shades(channels, side), [3, 0, 4])
    for file, level in zip(read_thumbnails(path, [2, 0, 1]), (160, 120, 0), strict=True):
        with Image.open(io.BytesIO(file)) as picture:
            assert picture.format == "JPEG"
            assert picture.size == (shown, shown)
            assert np.abs(np.asarray(picture, dtype=int) - level).max() <= 2
    assert [each.name for each in tmp_path.iterdir()] == ["thumbnails.zip"]


def test_the_same_pictures_make_the_same_file(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        write_thumbnails(tmp_path / name, shades(1, 64), [1, 2])
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"t\.zip is missing; make the memory"):
        read_thumbnails(tmp_path / "t.zip", [0])
    write_thumbnails(tmp_path / "t.zip", shades(1, 8), [0])
    with pytest.raises(ValueError, match="does not hold the pictures"):
        read_thumbnails(tmp_path / "t.zip", [1])
    (tmp_path / "t.zip").write_bytes(b"no zip")
    with pytest.raises(ValueError, match="does not hold the pictures"):
        read_thumbnails(tmp_path / "t.zip", [0])


def test_a_thumbnail_is_small() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 224, 224), dtype=np.uint8)
    assert len(jpeg(noise)) < 9000
    assert len(jpeg(shades(1, 224)[2:3, 0])) < 1000
