"""PNG, JPEG, BMP and TIFF: the right values in the right place, whatever the depth, colours and orientation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from parsecaps.data.reading import image_size, look_into, read_image, read_mask
from tests.data.image_files import colour, grey
from tests.messages import refused


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.tif"])
@pytest.mark.parametrize("pixels", [grey(), colour()], ids=["grey", "colour"])
def test_eight_bits(tmp_path: Path, name: str, pixels: Any) -> None:
    Image.fromarray(pixels).save(tmp_path / name)
    raw = read_image(tmp_path / name)
    assert np.array_equal(raw.pixels, pixels)
    assert raw.pixels.dtype == np.uint8
    assert raw.full_range == (0, 255)
    assert image_size(tmp_path / name) == (12, 20)
    assert look_into(tmp_path / name).frames == 1


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_sixteen_bits_of_grey_are_kept(tmp_path: Path, name: str) -> None:
    pixels = grey(levels=65536)
    Image.fromarray(pixels).save(tmp_path / name)
    raw = read_image(tmp_path / name)
    assert np.array_equal(raw.pixels, pixels)
    assert raw.pixels.dtype == np.uint16
    assert raw.full_range == (0, 65535)


def test_big_endian_tiff(tmp_path: Path) -> None:
    pixels = grey(levels=65536)
    Image.frombytes("I;16B", (20, 12), pixels.astype(">u2").tobytes()).save(tmp_path / "a.tif")
    assert np.array_equal(read_image(tmp_path / "a.tif").pixels, pixels)


def test_floating_point_tiff_is_scaled_by_content(tmp_path: Path) -> None:
    pixels = grey().astype(np.float32) / 7 - 3
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    raw = read_image(tmp_path / "a.tif")
    assert np.array_equal(raw.pixels, pixels)
    assert raw.full_range is None
    pixels[3, 4] = np.nan
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    with refused(ValueError):
        read_image(tmp_path / "a.tif")


def test_black_and_white(tmp_path: Path) -> None:
    Image.fromarray(grey() > 100).save(tmp_path / "a.png")
    assert np.array_equal(read_image(tmp_path / "a.png").pixels, 255 * (grey() > 100))


def test_palette_gives_its_colours(tmp_path: Path) -> None:
    image = Image.fromarray(grey() % 3, "P")
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    for name in ("a.png", "a.bmp", "a.tif"):
        image.save(tmp_path / name)
        expected = np.array([[10, 20, 30], [40, 50, 60], [70, 80, 90]])[grey() % 3]
        assert np.array_equal(read_image(tmp_path / name).pixels, expected)


def test_transparency_lies_over_black(tmp_path: Path) -> None:
    alpha = grey()[:, ::-1]
    expected = np.rint(colour() * (alpha[:, :, None] / 255))
    Image.fromarray(np.dstack([colour(), alpha])).save(tmp_path / "a.png")
    assert np.array_equal(read_image(tmp_path / "a.png").pixels, expected)
    Image.fromarray(np.dstack([grey(), alpha])).save(tmp_path / "b.png")
    assert np.array_equal(read_image(tmp_path / "b.png").pixels, np.rint(grey() * (alpha / 255)))
    Image.fromarray(grey() // 16).save(tmp_path / "c.png", transparency=15)
    seen = grey() // 16
    assert np.array_equal(read_image(tmp_path / "c.png").pixels, np.where(seen == 15, 0, seen))


def test_cmyk_jpeg_becomes_rgb(tmp_path: Path) -> None:
    red = np.zeros((16, 16, 4), np.uint8)
    red[:, :, 1:3] = 255  # no cyan, all magenta and yellow, no black
    Image.fromarray(red, "CMYK").save(tmp_path / "a.jpg", quality=100)
    assert np.abs(read_image(tmp_path / "a.jpg").pixels.astype(int) - [255, 0, 0]).max() <= 2


UPRIGHT = {  # the EXIF standard: where the first row and the first column of the file are to be seen
    1: lambda pixels: pixels,
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda pixels: np.rot90(pixels, -1),
    7: lambda pixels: np.rot90(pixels, 2).T,
    8: np.rot90,
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.tif"])
def test_camera_orientation_is_applied(tmp_path: Path, name: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, Any] = {"tiffinfo": {0x0112: orientation}} if name == "a.tif" else {"exif": exif}
    Image.fromarray(grey()).save(tmp_path / name, quality=100, **options)
    upright = UPRIGHT[orientation](grey())
    assert np.abs(read_image(tmp_path / name).pixels.astype(int) - upright).max() <= 2 * name.endswith("jpg")
    assert image_size(tmp_path / name) == upright.shape


def test_pages_of_a_tiff(tmp_path: Path) -> None:
    pages = [Image.fromarray(grey() // n) for n in (1, 2, 3)]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    assert look_into(tmp_path / "a.tif").frames == 3
    assert np.array_equal(read_image(tmp_path / "a.tif", 2).pixels, grey() // 3)
    with refused(ValueError):
        read_image(tmp_path / "a.tif")
    with refused(ValueError):
        read_image(tmp_path / "a.tif", 3)


def test_the_preview_in_a_phones_jpeg_is_no_frame(tmp_path: Path) -> None:
    first, second = Image.fromarray(colour(64, 64)), Image.fromarray(colour(8, 8))
    first.save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[second])
    assert look_into(tmp_path / "a.jpg").frames == 1
    assert read_image(tmp_path / "a.jpg").pixels.shape == (64, 64, 3)


def test_masks(tmp_path: Path) -> None:
    truth = grey() > 100
    Image.fromarray(truth).save(tmp_path / "bits.png")
    Image.fromarray(truth.astype(np.uint8)).save(tmp_path / "ones.png")
    Image.fromarray(truth.astype(np.uint8) * 255).save(tmp_path / "lossy.jpg", quality=75)
    Image.fromarray(np.dstack([truth * 255, truth * 0, truth * 0]).astype(np.uint8)).save(tmp_path / "red.bmp")
    for name in ("bits.png", "ones.png", "lossy.jpg", "red.bmp"):
        mask = read_mask(tmp_path / name)
        assert mask.dtype == np.bool_
        assert np.array_equal(mask, truth), name
