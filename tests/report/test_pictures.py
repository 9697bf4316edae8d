import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from parsecaps.explain.traversal import TraversalStrip
from parsecaps.report.pictures import (
    data_uri,
    map_levels,
    overlay_jpeg,
    overlay_picture,
    picture_file,
    picture_jpeg,
    traversal_picture,
)


def opened(file: bytes, mode: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file)).convert(mode)).astype(int)


def test_a_map_over_a_file_is_clear_where_nothing_is_and_strongest_where_it_is_highest() -> None:
    found = np.zeros((224, 224))
    found[:112] = 1
    found[112:, 112:] = 4
    grey = picture_file(Image.new("RGB", (320, 320), (128, 128, 128)), quality=95)
    shown = opened(overlay_jpeg(grey, found), "RGB")
    assert shown.shape == (320, 320, 3)
    assert np.abs(shown[240, 80] - 128).max() <= 3
    assert np.abs(shown[240, 240] - [round(0.2 * 128 + 0.8 * c) for c in (255, 240, 40)]).max() <= 6
    colour, alpha = np.array([64.0, 217.5, 201.25]), 0.8 * np.sqrt(0.25)
    assert np.abs(shown[80, 80] - ((1 - alpha) * 128 + alpha * colour)).max() <= 6


def test_the_levels_of_a_map_keep_its_proportions() -> None:
    values = 7 * np.random.default_rng(0).random((40, 40))
    levels, highest = map_levels(values)
    assert (levels.shape, levels.dtype, highest) == ((40, 40), np.uint8, pytest.approx(values.max()))
    assert np.abs(levels - 255 * values / values.max()).max() <= 0.51
    large = np.zeros((200, 200))
    large[:100] = 2
    large[0, 0] = 90
    levels, highest = map_levels(large)
    assert levels.shape == (64, 64)
    assert highest < 20  # the mean of about ten pixels, of which one is 90
    assert levels[20, 20] / 255 * highest == pytest.approx(2, abs=highest / 255)
    assert map_levels(large, 32)[0].shape == (32, 32)


def test_what_spoke_against_is_not_shown_and_an_empty_map_shows_nothing() -> None:
    grey = torch.full((1, 8, 8), 0.5)
    assert overlay_picture(grey, np.full((8, 8), -3.0)) == overlay_picture(grey, None)
    for nothing in (np.zeros((8, 8)), np.full((8, 8), -3.0), np.full((8, 8), np.nan)):
        levels, highest = map_levels(nothing)
        assert (levels.max(), highest) == (0, 0)


def test_an_overlay_changes_the_image_only_where_the_map_is() -> None:
    image = torch.full((1, 64, 64), 0.5)
    found = np.zeros((64, 64))
    found[:32, :32] = 1
    plain, over = (opened(picture_file(overlay_picture(image, each)), "RGB") for each in (None, found))
    assert plain.shape == (448, 448, 3)
    assert (plain == 128).all()
    assert (over[300:, 300:] == plain[300:, 300:]).all()
    assert over[50, 50].tolist() == [round(0.2 * 128 + 0.8 * c) for c in (255, 240, 40)]


def test_pictures_and_addresses() -> None:
    image = torch.zeros(3, 400, 400)
    image[0] = 1
    picture = opened(picture_jpeg(image), "RGB")
    assert picture.shape == (320, 320, 3)
    assert np.abs(picture[100, 100] - [255, 0, 0]).max() < 8


def test_an_address_holds_the_file_and_names_its_kind() -> None:
    image = torch.zeros(1, 8, 8)
    for file, kind in ((picture_file(overlay_picture(image, None)), "png"), (picture_jpeg(image), "jpeg")):
        start, text = data_uri(file).split(",")
        assert start == f"data:image/{kind};base64"
        assert base64.b64decode(text) == file


def test_a_traversal_has_its_pictures_in_order_and_a_jpeg_of_it_is_smaller() -> None:
    noise = torch.rand(3, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    smooth = torch.nn.functional.avg_pool2d(noise, 15, 1, 7, count_include_pad=False)
    strip = traversal_picture(TraversalStrip("a", 0.5, (0.0, 1.0), smooth))
    assert strip.size == (3 * 100, 96)
    drawn = np.asarray(strip).astype(float) / 255
    for i, picture in enumerate(smooth):
        shown = drawn[:, 100 * i + 2 : 100 * i + 98]
        assert np.abs(shown - picture.permute(1, 2, 0).numpy()).max() < 0.003
    png, jpeg = picture_file(strip), picture_file(strip, quality=80)
    assert len(jpeg) < len(png) / 4
    assert np.abs(opened(png, "RGB") - opened(jpeg, "RGB")).mean() < 2
