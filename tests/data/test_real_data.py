"""All of CE-MRI and WBCAtt, from files to prepared images, where they are at hand."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import zoom
from torch.nn import functional as F

from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.cases import DataSet
from parsecaps.data.leaks import MOST_BITS, find_leaks, fingerprint, unsafe
from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import read_image, read_mask
from parsecaps.data.sources import open_data
from parsecaps.data.splits import by_fold, hold_out, official, rows_of
from studies.independent_splits import independent_draws, leaking_share, random_slices

Loaded = tuple[DataSet, PreparedImages]


@pytest.fixture(scope="module")
def cemri(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    data = open_data(data_root / "cemri")
    return data, prepare_all(data, Preparation(size=64), folder=tmp_path_factory.mktemp("cemri"))


@pytest.fixture(scope="module")
def wbcatt(data_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    data = open_data(data_root / "wbcatt")
    return data, prepare_all(data, Preparation(size=64, channels=3), folder=tmp_path_factory.mktemp("wbcatt"))


def test_every_slice_of_cemri_is_there(cemri: Loaded) -> None:
    data, prepared = cemri
    assert prepared.good == list(range(1787))
    assert set(prepared.sizes) == {(256, 256)}
    assert prepared.images.max(axis=(1, 2, 3)).min() > 150  # each slice is scaled by its own range
    tumours = [read_mask(case.mask) for case in data.cases[::200] if case.mask is not None]
    assert all(0.0005 < mask.mean() < 0.3 for mask in tumours)
    assert len(tumours) == 9


def test_a_slice_is_upright(cemri: Loaded) -> None:
    data, prepared = cemri
    import h5py

    with h5py.File(data.cases[0].image) as file:
        pixels = np.asarray(file["cjdata/image"]).T.astype(float)
    assert np.array_equal(read_image(data.cases[0].image).pixels, pixels)
    small = zoom(pixels, 0.25, order=1)
    assert np.corrcoef(small.ravel(), prepared.images[0, 0].astype(float).ravel())[0, 1] > 0.97


def test_cemri_by_the_authors_folds_leaks_nothing(cemri: Loaded) -> None:
    data, prepared = cemri
    division = by_fold(data, test={3}).division
    assert len(rows_of(division, "test")) == 562
    assert division.count(None) == 100
    assert unsafe(find_leaks(data, division, prepared.digests, prepared.fingerprints), division) == []


def test_copies_look_the_same_and_patients_do_not(cemri: Loaded) -> None:
    data, prepared = cemri
    image = torch.from_numpy(np.array(prepared.images[::9])).float() / 255
    small = F.interpolate(F.interpolate(image, (32, 32), mode="bilinear", antialias=True), (64, 64), mode="bilinear")
    noisy = (image + 0.03 * torch.randn_like(image)).clamp(0, 1)
    bits = np.unpackbits(prepared.fingerprints.bits, axis=1, count=255).astype(np.int32)
    for copy in (small, noisy, 0.7 * image):
        differing = (np.unpackbits(fingerprint(copy).bits, axis=1, count=255) != bits[::9]).sum(1)
        assert np.quantile(differing, 0.99) < MOST_BITS
    distance = bits @ (1 - bits.T) + (1 - bits) @ bits.T
    patient = np.unique([case.patient for case in data.cases], return_inverse=True)[1]
    assert distance[patient[:, None] != patient].min() > MOST_BITS


def test_independent_draws_are_caught(cemri: Loaded) -> None:
    data, prepared = cemri
    rows, division = independent_draws(len(data), 0.2, seed=0)
    found = leaking_share(data, prepared, rows, division)
    assert found["file"] > 250
    assert found["test images also trained on, %"] == pytest.approx(80, abs=4)
    everything = list(range(len(data)))
    slices = leaking_share(data, prepared, everything, random_slices(len(data), 0.2, seed=0))
    assert slices["patient"] > 90
    assert "file" not in slices
    by_patient = leaking_share(data, prepared, everything, hold_out(data, val=0, test=0.2))
    assert by_patient["test images of trained patients, %"] == 0
    assert not {"file", "patient", "picture"} & set(by_patient)


def test_every_cell_of_wbcatt_is_there(wbcatt: Loaded) -> None:
    data, prepared = wbcatt
    assert prepared.good == list(range(7199))
    assert len(data.concepts) == 31
    for case in data.cases[::500]:
        assert sum(case.concepts) == 11  # one value of each attribute
    division = official(data)
    assert (division.count("train"), division.count("val")) == (6169, 1030)
    leaks = find_leaks(data, division, prepared.digests, prepared.fingerprints)
    assert [leak.kind for leak in leaks] == ["file"] * 7
    assert unsafe(leaks, division) == []
    red, green, blue = prepared.images[::50, :, 24:40, 24:40].mean(axis=(0, 2, 3))
    assert min(red, blue) > green + 20  # stained nuclei are purple
