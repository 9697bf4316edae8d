import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from parsecaps.data.cache import prepare_all
from parsecaps.data.cases import Case, DataSet, Division
from parsecaps.data.leaks import (
    MOST_BITS,
    Fingerprints,
    find_leaks,
    fingerprint,
    learned_before,
    move_to_one_side,
    read_fingerprints,
    unsafe,
    write_fingerprints,
)
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from tests.data.make import picture, table
from tests.messages import message


def pictures(count: int, side: int = 96) -> torch.Tensor:
    return torch.stack([torch.from_numpy(picture(i, side)).permute(2, 0, 1) for i in range(count)]).float() / 255


def one_each(count: int) -> DataSet:
    return table([(f"p{i}", i % 2, 1) for i in range(count)])


def names(count: int) -> list[str]:
    return [f"digest {i}" for i in range(count)]


def kinds(data: DataSet, division: Division, prints: Fingerprints, digests: list[str]) -> list[tuple[str, int, int]]:
    return sorted(tuple(leak) for leak in find_leaks(data, division, digests, prints))


def test_a_patient_on_both_sides_is_found() -> None:
    data = table([("p", 0, 3), ("q", 1, 2)])
    prints = fingerprint(pictures(5))
    assert kinds(data, ["train", "train", "test", "train", "train"], prints, names(5)) == [("patient", 0, 2)]
    assert kinds(data, ["train", "train", None, "train", "train"], prints, names(5)) == []
    assert kinds(data, ["train", "val", "test", "test", "test"], prints, names(5)) == [
        ("patient", 0, 1),
        ("patient", 0, 2),
    ]


def test_the_same_file_twice_is_found_and_unsafe_only_across() -> None:
    data, prints = one_each(4), fingerprint(pictures(4))
    division: Division = ["train", "train", "test", "test"]
    digests = ["x", "x", "y", "x"]
    leaks = find_leaks(data, division, digests, prints)
    assert [tuple(leak) for leak in leaks] == [("file", 0, 1), ("file", 0, 3)]
    assert [tuple(leak) for leak in unsafe(leaks, division)] == [("file", 0, 3)]
    message(leaks[1].describe(data, division))


def test_pictures_that_look_the_same_are_found_whatever_was_done_to_them() -> None:
    original = pictures(40)
    smaller = F.interpolate(original, (50, 50), mode="bilinear", antialias=True)
    changed = {
        "smaller": F.interpolate(smaller, (96, 96), mode="bilinear"),
        "darker": original * 0.7,
        "contrast": (original - 0.5) * 0.8 + 0.5,
        "noise": (original + 0.02 * torch.randn_like(original)).clamp(0, 1),
        "posterised": (original * 15).round() / 15,
    }
    data = one_each(80)
    division: Division = ["train"] * 40 + ["test"] * 40
    for name, copy in changed.items():
        prints = fingerprint(torch.cat([original, copy]))
        found = {(leak.first, leak.second) for leak in find_leaks(data, division, names(80), prints)}
        assert found == {(i, i + 40) for i in range(40)}, name


def test_where_different_cases_look_the_same_only_files_and_patients_tell() -> None:
    data, twice = one_each(2), pictures(1).repeat(2, 1, 1, 1)
    division: Division = ["train", "test"]
    assert kinds(data, division, fingerprint(twice), names(2)) == [("picture", 0, 1)]
    digits = replace(data, look_alikes=True)
    assert kinds(digits, division, fingerprint(twice), names(2)) == []
    assert kinds(digits, division, fingerprint(twice), ["x", "x"]) == [("file", 0, 1)]


def test_different_pictures_are_not_alike() -> None:
    data = one_each(400)
    division: Division = ["train", "test"] * 200
    assert find_leaks(data, division, names(400), fingerprint(pictures(400, 64))) == []


def test_moving_to_one_side_mends_every_leak() -> None:
    data = table([("p", 0, 3), ("q", 1, 2), ("r", 0, 4), ("s", 1, 1)])
    division: Division = ["train", "train", "test", "test", "test", "train", "train", "train", "val", "val"]
    images = pictures(10)
    images[3] = images[9]  # q and s look the same
    prints = fingerprint(images)
    leaks = unsafe(find_leaks(data, division, names(10), prints), division)
    assert {leak.kind for leak in leaks} == {"patient", "picture"}
    moved = move_to_one_side(data, division, leaks)
    assert moved == ["train"] * 3 + ["test"] * 2 + ["train"] * 4 + ["test"]
    assert unsafe(find_leaks(data, moved, names(10), prints), moved) == []


def test_moving_leaves_the_rest_where_it_was() -> None:
    data = table([("p", 0, 2), ("q", 1, 2), ("r", 0, 1)])
    division: Division = ["train", "test", "val", "val", None]
    prints = fingerprint(pictures(5))
    moved = move_to_one_side(data, division, find_leaks(data, division, names(5), prints))
    assert moved[2:] == ["val", "val", None]
    assert moved[0] == moved[1]


def test_ten_thousand_pictures_take_seconds() -> None:
    random = np.random.default_rng(0)
    prints = Fingerprints(
        random.integers(0, 256, (10_000, 32), dtype=np.uint8), random.integers(0, 256, (10_000, 256), dtype=np.uint8)
    )
    cases = [Case(Path(f"/data/{i}.png"), 0, str(i)) for i in range(10_000)]
    data = DataSet("folder", Path("/data"), ("a",), (), cases)
    start = time.process_time()
    assert find_leaks(data, ["train", "test"] * 5_000, names(10_000), prints) == []
    assert time.process_time() - start < 30


def test_what_was_learned_before_is_found_in_another_size_and_in_grey() -> None:
    data, others = open_data("phantom:n=30,size=96"), open_data("phantom:n=30,size=96,seed=4")
    learned = prepare_all(data, Preparation(64, 3)).fingerprints.bits[:20]
    rows = range(30)
    for size, channels in ((64, 3), (64, 1), (48, 3), (96, 1)):
        now = prepare_all(data, Preparation(size, channels)).fingerprints
        assert learned_before(now, rows, learned) == list(range(20)), (size, channels)
        assert learned_before(now, [25, 3, 21, 8], learned) == [3, 8]
        assert learned_before(prepare_all(others, Preparation(size, channels)).fingerprints, rows, learned) == []


def test_nothing_is_among_nothing() -> None:
    prints = fingerprint(pictures(3))
    assert learned_before(prints, [0, 1, 2], np.zeros((0, 32), np.uint8)) == []
    assert learned_before(prints, [], prints.bits) == []


def test_so_many_bits_may_differ_and_no_more() -> None:
    prints = fingerprint(pictures(2))
    for bits, found in ((0, [0]), (MOST_BITS, [0]), (MOST_BITS + 1, [])):
        flipped = np.unpackbits(prints.bits[:1], axis=1)
        flipped[:, :bits] ^= 1
        assert learned_before(prints, [0, 1], np.packbits(flipped, axis=1)) == found, bits


def test_fingerprints_are_kept_once_and_in_an_order_of_their_own(tmp_path: Path) -> None:
    bits = fingerprint(pictures(6)).bits
    path = tmp_path / "fingerprints.safetensors"
    write_fingerprints(path, bits[[3, 1, 3, 5, 0, 1]])
    kept, whole = read_fingerprints(path)
    assert whole
    assert np.array_equal(kept, np.unique(bits[[0, 1, 3, 5]], axis=0))
    first = path.read_bytes()
    write_fingerprints(path, bits[[0, 1, 3, 5]])
    assert path.read_bytes() == first
    write_fingerprints(path, bits[:0])
    assert read_fingerprints(path)[0].shape == (0, 32)
