import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from parsecaps.data.batches import Augmentation, Batches, mix, prefetch
from parsecaps.data.cache import PreparedImages
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.data.leaks import Fingerprints
from parsecaps.types import Batch
from tests.data.make import table
from tests.messages import refused


def prepared(count: int = 20) -> tuple[DataSet, PreparedImages]:
    """Image i has the value i everywhere but for a bright corner, so that a flip shows."""
    images = np.tile(np.arange(count, dtype=np.uint8)[:, None, None, None], (1, 1, 8, 8))
    images[:, :, :2, :2] = 255
    data = table([(f"p{i}", i % 3, 1) for i in range(count)], "xyz")
    data = replace(data, concepts=("c", "d"), cases=[replace(c, concepts=(1.0, float("nan"))) for c in data.cases])
    none = Fingerprints(np.zeros((count, 32), np.uint8), np.zeros((count, 256), np.uint8))
    return data, PreparedImages(images, none, [(8, 8)] * count, [""] * count, [])


def seen(batches: Iterator) -> list[int]:
    return [round(float(value)) for batch in batches for value in batch.image[:, 0, 4, 4] * 255]


def test_in_order_everything_comes_once_with_its_labels() -> None:
    data, images = prepared()
    batches = Batches(CaseSet(data, images, [3, 7, 1, 19, 4]), batch_size=2)
    parts = list(batches.epoch(0))
    assert [len(batch.image) for batch in parts] == [2, 2, 1]
    assert len(batches) == 3
    assert seen(iter(parts)) == [3, 7, 1, 19, 4]
    assert torch.cat([batch.label for batch in parts]).tolist() == [0, 1, 1, 1, 1]
    assert parts[0].image.dtype == torch.float32
    assert float(parts[0].image.max()) == 1.0
    concepts = torch.cat([batch.concepts for batch in parts])
    assert concepts[:, 0].tolist() == [1.0] * 5
    assert concepts[:, 1].isnan().all()


def test_shuffled_epochs_differ_and_repeat() -> None:
    data, images = prepared()
    batches = Batches(CaseSet(data, images, range(20)), batch_size=6, shuffle=True, seed=3)
    first, second = seen(batches.epoch(0)), seen(batches.epoch(1))
    assert len(first) == 18
    assert len(set(first)) == 18
    assert first != second
    assert first == seen(Batches(CaseSet(data, images, range(20)), batch_size=6, shuffle=True, seed=3).epoch(0))
    assert first != seen(Batches(CaseSet(data, images, range(20)), batch_size=6, shuffle=True, seed=4).epoch(0))


def test_an_epoch_can_be_taken_up_in_its_middle() -> None:
    data, images = prepared()
    batches = Batches(CaseSet(data, images, range(20)), batch_size=4, shuffle=True, augmentation=Augmentation())
    whole = list(batches.epoch(5))
    rest = list(batches.epoch(5, start=3))
    assert len(whole) == 5
    for one, other in zip(whole[3:], rest, strict=True):
        assert torch.equal(one.image, other.image)
        assert torch.equal(one.label, other.label)
    assert not torch.equal(whole[0].image, next(iter(batches.epoch(6))).image)


def test_processes_share_each_batch() -> None:
    data, images = prepared()
    whole = Batches(CaseSet(data, images, range(20)), batch_size=4, shuffle=True)
    shares = [
        Batches(CaseSet(data, images, range(20)), batch_size=4, shuffle=True, process=i, processes=2) for i in (0, 1)
    ]
    for one, *parts in zip(whole.epoch(0), *(share.epoch(0) for share in shares), strict=True):
        assert sorted(torch.cat([part.image for part in parts])[:, 0, 4, 4].tolist()) == sorted(
            one.image[:, 0, 4, 4].tolist()
        )
    with refused(ValueError):
        Batches(CaseSet(data, images, range(20)), batch_size=5, processes=2)


def test_fewer_rows_than_a_batch_still_train() -> None:
    data, images = prepared()
    assert len(seen(Batches(CaseSet(data, images, range(3)), batch_size=8, shuffle=True).epoch(0))) == 3


def test_an_error_in_the_thread_comes_out(tmp_path: Path) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("file.png is gone")

    got = prefetch(broken(), 2)
    assert next(got) == 1
    with refused(ValueError):
        next(got)


def test_leaving_early_stops_the_thread() -> None:
    import threading

    before = threading.active_count()
    batches = prefetch(iter(range(1000)), 2)
    assert next(batches) == 0
    batches.close()
    assert threading.active_count() == before


def test_the_thread_that_makes_batches_takes_no_more_than_its_own_core() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        numbers = prefetch((torch.get_num_threads() for _ in range(4)), 1)
        assert [next(numbers), *numbers] == [1, 1, 1, 1]
        assert torch.get_num_threads() == 2
        found: list[int] = []
        later = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        later.start()
        later.join()
        assert found == [2]
    finally:
        torch.set_num_threads(before)


def test_views_are_the_same_rows_changed_in_different_ways() -> None:
    data, images = prepared()
    rows = [3, 7, 1, 19]
    options = {"batch_size": 4, "shuffle": True, "seed": 2}
    (plain,) = Batches(CaseSet(data, images, rows), **options).epoch(0)
    (twice,) = Batches(CaseSet(data, images, rows), views=2, **options).epoch(0)
    assert (plain.views, twice.views) == (1, 2)
    assert twice.label.tolist() == plain.label.tolist() * 2
    assert torch.equal(twice.image, torch.cat([plain.image, plain.image]))
    (changed,) = Batches(CaseSet(data, images, rows), views=2, augmentation=Augmentation(), **options).epoch(0)
    first, second = changed.image.chunk(2)
    assert all(not torch.allclose(a, b) for a, b in zip(first, second, strict=True))
    shares = [
        next(Batches(CaseSet(data, images, rows), views=2, process=i, processes=2, **options).epoch(0)).label
        for i in range(2)
    ]
    assert [share.tolist() for share in shares] == [plain.label[i::2].tolist() * 2 for i in range(2)]


def numbered(views: int = 1) -> Batch:
    """Images that are their own number everywhere, the third without a label, concepts alike."""
    number = torch.arange(6.0)
    image = number.view(-1, 1, 1, 1).expand(6, 1, 4, 4)
    concepts = torch.stack([number, torch.where(number == 1, torch.nan, 0.0)], 1)
    label = torch.tensor([0, 1, -1, 2, 1, 0])
    whole = Batch(image, label, concepts)
    if views > 1:
        whole = Batch(image.repeat(views, 1, 1, 1), label.repeat(views), concepts.repeat(views, 1), views=views)
    return whole


@pytest.mark.parametrize("seed", range(5))
def test_image_concepts_and_label_are_mixed_alike(seed: int) -> None:
    whole = numbered()
    found = mix(whole, 0.4, np.random.default_rng(seed))
    assert found.mixed is not None
    share = found.mixed.share
    assert 0.5 <= share <= 1
    mixture = found.image[:, 0, 0, 0]
    other = ((mixture - share * torch.arange(6.0)) / (1 - share)).round().long()
    torch.testing.assert_close(mixture, share * torch.arange(6.0) + (1 - share) * other)
    assert found.mixed.label.tolist() == whole.label[other].tolist()
    assert found.concepts is not None
    torch.testing.assert_close(found.concepts[:, 0], mixture)
    assert found.concepts[:, 1].isnan().tolist() == [i == 1 or other[i].item() == 1 for i in range(6)]
    assert found.label.equal(whole.label)
    assert other[2] == 2  # no other is without a label
    assert ((found.mixed.label < 0) == (whole.label < 0)).all()


def test_all_views_of_an_image_are_mixed_with_the_same_one() -> None:
    found = mix(numbered(views=2), 0.4, np.random.default_rng(0))
    assert found.image[:6].equal(found.image[6:])
    assert found.image.std(0).max() > 0
    assert found.mixed is not None
    assert found.mixed.label[:6].equal(found.mixed.label[6:])
