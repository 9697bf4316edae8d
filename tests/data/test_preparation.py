"""The preparation: geometry there and back, scaling, colours, and the same bits for training and prediction."""

import json
from pathlib import Path
from typing import Any, get_args

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from torch.nn import functional as F

from parsecaps.data.preparation import Preparation, Square, _percentile, dequantise, quantise
from parsecaps.data.raw_image import RawImage
from parsecaps.data.reading import read_image, read_mask
from tests.data.image_files import colour, grey
from tests.messages import refused

EIGHT_BIT = (0.0, 255.0)


def smooth(height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    """A picture with large, soft shapes."""
    rng = np.random.default_rng(3)
    coarse = torch.from_numpy(rng.uniform(0, 255, (1, channels, 5, 5)))
    fine = F.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 255)
    return fine[0].permute(1, 2, 0).numpy().astype(np.uint8)


def test_the_dictionary_goes_through_json() -> None:
    preparation = Preparation(size=112, channels=3, square="crop", scaling="percentile", centre=0.5)
    stored = {"size": 112, "channels": 3, "square": "crop", "scaling": "percentile", "centre": 0.5}
    text = json.dumps(preparation.to_dict())
    assert json.loads(text) == stored
    assert Preparation.from_dict(json.loads(text)) == preparation
    del stored["centre"]  # as models were saved before it was a choice
    assert Preparation.from_dict(stored).centre == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"sise": 3},
        {"size": 0},
        {"size": 1.5},
        {"channels": 2},
        {"channels": True},
        {"square": "fit"},
        {"scaling": None},
        {"centre": 0.0},
        {"centre": 1.01},
        {"centre": float("nan")},
        {"centre": "half"},
    ],
)
def test_wrong_settings_are_named(change: dict[str, Any]) -> None:
    with refused(ValueError):
        Preparation.from_dict({**Preparation(size=8).to_dict(), **change})
    with refused(ValueError):
        Preparation.from_dict({"size": 8, "channels": 1, "scaling": "range"})


def test_padding_cropping_and_stretching() -> None:
    pixels = np.full((4, 8), 255, np.uint8)
    pixels[:, :2] = 51  # a band on the left
    raw = RawImage(pixels, EIGHT_BIT)
    padded = Preparation(size=8, square="pad").prepare(raw)[0]
    assert padded.equal(dequantise(torch.from_numpy(np.pad(pixels, ((2, 2), (0, 0))))))
    cropped = Preparation(size=4, square="crop").prepare(raw)[0]
    assert cropped.equal(torch.ones(4, 4))
    stretched = Preparation(size=4, square="stretch").prepare(raw)[0]
    assert stretched[:, 0].max() < 0.5
    assert stretched[:, 2:].min() == 1


def test_the_centre_is_the_image_cut_out_by_hand() -> None:
    pixels = colour(40, 64)
    cut = RawImage(np.ascontiguousarray(pixels[10:30, 16:48]), EIGHT_BIT)
    for square in get_args(Square):
        whole, half = Preparation(24, 3, square), Preparation(24, 3, square, centre=0.5)
        assert half.prepare(RawImage(pixels, EIGHT_BIT)).equal(whole.prepare(cut))
    assert Preparation(24, 3, centre=0.001).prepare(RawImage(pixels, EIGHT_BIT)).unique().numel() <= 4  # a pixel


def test_bytes_are_resized_as_in_floating_point() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (57, 83, 3), dtype=np.uint8)
    plane = torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255
    for size in (31, 100):
        expected = F.interpolate(plane, (size, size), mode="bilinear", antialias=True)[0]
        prepared = Preparation(size=size, channels=3, square="stretch").prepare(RawImage(pixels, EIGHT_BIT))
        assert (prepared - expected).abs().max() < 1.5 / 255


def test_ranges() -> None:
    values = np.linspace(-100, 300, 64, dtype=np.float32).reshape(8, 8)
    window = Preparation(size=8).prepare(RawImage(values, (0.0, 200.0)))[0]
    assert np.abs(window.numpy() - np.clip(values / 200, 0, 1)).max() <= 0.5 / 255 + 1e-6
    deep = grey(8, 8, levels=65536)
    prepared = Preparation(size=8).prepare(RawImage(deep, (0.0, 65535.0)))[0]
    assert np.array_equal(quantise(prepared).numpy(), np.rint(deep / 257))
    step = Preparation(size=8).prepare(RawImage(values, (0.0, 0.0)))[0]
    assert np.array_equal(step.numpy(), values > 0)


@pytest.mark.parametrize("scaling", ["range", "percentile"])
def test_without_a_range_the_content_decides(scaling: Any) -> None:
    values = (np.arange(400, dtype=np.int16) * 3 - 50).reshape(20, 20)
    values[0, 0] = 30_000
    low, high = values.min(), np.percentile(values, 99.5)
    prepared = Preparation(size=20, scaling=scaling).prepare(RawImage(values, None))[0]
    assert np.abs(prepared.numpy() - np.clip((values - low) / (high - low), 0, 1)).max() <= 0.5 / 255 + 1e-6


def test_constant_images_are_black() -> None:
    for dtype in (np.int16, np.float32):
        prepared = Preparation(size=4).prepare(RawImage(np.full((5, 5), 7, dtype), None))
        assert prepared.equal(torch.zeros(1, 4, 4))


def test_grey_and_colour() -> None:
    as_colour = Preparation(size=12, channels=3).prepare(RawImage(grey(12, 12), EIGHT_BIT))
    assert as_colour.equal(dequantise(torch.from_numpy(grey(12, 12))).expand(3, 12, 12))
    as_grey = quantise(Preparation(size=12).prepare(RawImage(colour(12, 12), EIGHT_BIT)))[0]
    luma = np.array(Image.fromarray(colour(12, 12)).convert("L"))  # Pillow uses the same weights
    assert np.abs(as_grey.numpy().astype(int) - luma).max() <= 1


@pytest.mark.parametrize("square", get_args(Square))
@pytest.mark.parametrize("shape", [(60, 90), (90, 61), (20, 30), (50, 50)])
@pytest.mark.parametrize("centre", [1.0, 0.7])
def test_there_and_back(square: Square, shape: tuple[int, int], centre: float) -> None:
    """A soft picture carried back lies where it was; what was cropped is 0."""
    pixels = smooth(*shape, channels=1)[:, :, 0]
    preparation = Preparation(size=48, square=square, centre=centre)
    back = preparation.to_original(preparation.prepare(RawImage(pixels, EIGHT_BIT))[0], shape).numpy()
    height, width = (round(side * centre) for side in shape)
    if square == "crop":
        height = width = min(height, width)
    top, left = (shape[0] - height) // 2, (shape[1] - width) // 2
    seen = np.zeros(shape, bool)
    seen[top : top + height, left : left + width] = True
    assert (back[~seen] == 0).all()
    assert np.abs(back - pixels / 255)[seen].max() < 0.08
    shifted = np.abs(back - np.roll(pixels, 3, axis=1) / 255)[seen].max()
    assert shifted > 0.1  # three pixels off would show


def test_masks_share_the_geometry() -> None:
    truth = np.zeros((40, 64), bool)
    truth[8:16, 32:48] = True
    for square in get_args(Square):
        preparation = Preparation(size=32, square=square)
        mask = preparation.prepare_mask(truth)
        image = preparation.prepare(RawImage(truth.astype(np.uint8) * 255, EIGHT_BIT))[0]
        assert (mask - image).abs().max() < 1.5 / 255
    assert Preparation(size=64).prepare_mask(truth).sum() == truth.sum()


@given(
    height=st.integers(1, 300),
    width=st.integers(1, 300),
    size=st.integers(1, 64),
    square=st.sampled_from(get_args(Square)),
)
def test_any_shape(height: int, width: int, size: int, square: Any) -> None:
    preparation = Preparation(size=size, square=square, scaling="percentile")
    image = preparation.prepare(RawImage(grey(height, width + 1), EIGHT_BIT))
    assert image.shape == (1, size, size)
    assert 0 <= float(image.min()) <= float(image.max()) <= 1
    assert preparation.to_original(image[0], (height, width + 1)).shape == (height, width + 1)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("scaling", "full_range"), [("range", EIGHT_BIT), ("range", None), ("percentile", EIGHT_BIT)])
def test_large_images_are_the_same_in_parts(
    monkeypatch: pytest.MonkeyPatch, kind: Any, channels: int, scaling: Any, full_range: Any
) -> None:
    pixels = smooth(301, 222, channels).squeeze().astype(kind)
    preparation = Preparation(size=56, channels=3, square="stretch", scaling=scaling)
    whole = preparation.levels(RawImage(pixels, full_range))
    for at_once in (1, 5_000, 222 * 100):
        monkeypatch.setattr("parsecaps.data.preparation._AT_ONCE", at_once)
        assert torch.equal(preparation.levels(RawImage(pixels, full_range)), whole)


@pytest.mark.parametrize("shape", [(9000, 2), (2, 9000)])
def test_a_long_strip_is_never_larger_in_between(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    raw = RawImage(smooth(*shape, 1)[:, :, 0], EIGHT_BIT)
    preparation = Preparation(size=32, square="stretch")
    whole = preparation.levels(raw)
    monkeypatch.setattr("parsecaps.data.preparation._AT_ONCE", 1000)
    sizes: list[int] = []
    inner = F.interpolate

    def interpolate(planes: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        found = inner(planes, *arguments, **options)
        sizes.extend([planes.numel(), found.numel()])
        return found

    monkeypatch.setattr("parsecaps.data.preparation.F.interpolate", interpolate)
    assert (preparation.levels(raw).int() - whole.int()).abs().max() <= 1
    assert max(sizes) <= 9000  # a row, or a column


def test_large_percentiles_are_those_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr("parsecaps.data.preparation._AT_ONCE", 100)
    for size in (101, 250, 1000, 4321):
        for values in (rng.normal(size=size), rng.integers(0, 9, size), rng.integers(0, 65536, size, np.uint16)):
            assert _percentile(values, 99.5) == pytest.approx(np.percentile(values, 99.5), rel=1e-12)


def test_a_map_of_another_size_is_refused() -> None:
    with refused(ValueError):
        Preparation(size=8).to_original(torch.zeros(3, 4), (10, 10))


def test_every_level_survives_the_cache() -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    assert quantise(dequantise(levels)).equal(levels)
    assert quantise(torch.tensor([-0.5, 0.0019, 0.0020, 1.7])).tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize("scaling", ["range", "percentile"])
@pytest.mark.parametrize("channels", [1, 3])
def test_cached_and_fresh_images_are_the_same_bits(tmp_path: Path, scaling: Any, channels: int) -> None:
    preparation = Preparation(size=48, channels=channels, scaling=scaling)
    Image.fromarray(smooth(70, 100)).save(tmp_path / "a.jpg")
    Image.fromarray(grey(70, 100, levels=65536)).save(tmp_path / "b.png")
    fresh = torch.stack([preparation.prepare(read_image(tmp_path / name)) for name in ("a.jpg", "b.png")])
    cached = np.stack([preparation.levels(read_image(tmp_path / name)).numpy() for name in ("a.jpg", "b.png")])
    assert cached.dtype == np.uint8
    assert dequantise(torch.from_numpy(cached)).equal(fresh)
    assert quantise(fresh).equal(torch.from_numpy(cached))


def by_hand(path: Path) -> torch.Tensor:
    """A slice (1, 112, 112) as h5py has it, stretched between its darkest pixel and its 99.5th percentile."""
    with h5py.File(path) as file:
        pixels = np.asarray(file["cjdata"]["image"]).T.astype(np.float32)
    low, high = float(pixels.min()), float(np.percentile(pixels, 99.5))
    scaled = torch.from_numpy((pixels - low) / max(high - low, 1.0)).clamp(0, 1)
    resized = F.interpolate(scaled[None, None], (112, 112), mode="bilinear", antialias=True, align_corners=False)
    return resized[0]


def test_cemri_as_before(data_root: Path, tmp_path: Path) -> None:
    found = sorted(
        (path for path in (data_root / "cemri").glob("*.mat") if path.stem.isdigit()), key=lambda p: int(p.stem)
    )
    paths = found[::60]
    for path in (*paths, data_root / "cemri" / "cvind.mat"):
        (tmp_path / path.name).symlink_to(path)
    before = torch.stack([by_hand(path) for path in paths])
    preparation = Preparation(size=112, channels=1, square="stretch", scaling="percentile")
    now = torch.stack([preparation.prepare(read_image(path)) for path in paths])
    assert len(now) == len(before) >= 20
    assert quantise(now).equal(quantise(before))
    assert all(0 < read_mask(path).mean() < 0.3 for path in paths)
