"""The contract of the routes on a small model: they carry the decision, and a few of them are enough."""

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from parsecaps.models import ParseCaps
from parsecaps.training.optimizer import Schedule
from studies.route_tasks import RouteTask, parts_task, read_task
from studies.routes import CONTENT_COSTS, RouteResult, measure_routes


@pytest.fixture
def short_task() -> RouteTask:
    """One epoch on a few images: enough to run, not to learn."""
    task = parts_task(num_train=64, num_test=32)
    return replace(task, schedule=Schedule(epochs=1, batch_size=32))


def result(accuracy: float, prior_only: float | None, uniform: float, strongest: float) -> RouteResult:
    kept = {1: 0.0, 2: 0.0, 4: strongest}
    return RouteResult("task", 0, 1, 10, 10, accuracy, prior_only, uniform, kept)


def test_criteria_are_judged_by_points_lost() -> None:
    assert [c.holds for c in result(95, 93, 75, 90).criteria] == [True, True, True]
    assert [c.holds for c in result(95, 93.1, 75.1, 89.9).criteria] == [False, False, False]
    assert [c.points for c in result(95, 93, 75, 90).criteria] == [20, CONTENT_COSTS, 5]


def test_a_twin_that_was_not_trained_is_not_judged() -> None:
    content = result(95, None, 20, 95).criteria[1]
    assert (content.points, content.holds) == (None, None)


def test_both_twins_are_trained_and_reported(short_task: RouteTask) -> None:
    lines: list[str] = []
    measured, model = measure_routes(short_task, seed=1, log=lines.append)
    assert measured.prior_only is not None
    assert (measured.num_train, measured.num_test, measured.epochs) == (64, 32, 1)
    assert set(measured.strongest) == {1, 2, 4}
    assert isinstance(model, ParseCaps)
    assert [line.split(",")[0] for line in lines] == ["with content", "testing with other couplings", "prior only"]


def test_a_seed_repeats(short_task: RouteTask) -> None:
    first, second = (measure_routes(short_task, seed=2, prior_only=False)[0] for _ in range(2))
    assert first == second


def test_the_schedule_of_a_task_can_be_shortened() -> None:
    assert read_task(None, epochs=3).schedule.epochs == 3
    with pytest.raises(ValueError, match="at least 1"):
        read_task(None, epochs=0)


def test_a_folder_is_known_by_its_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="neither CE-MRI"):
        read_task(tmp_path)
    with pytest.raises(FileNotFoundError, match="not a folder"):
        read_task(tmp_path / "nothing")


def test_mnist_folder(tmp_path: Path) -> None:
    for part, count in (("train", 5), ("t10k", 3)):
        pixels, labels = bytes(28 * 28 * count), bytes(range(count))
        header = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (count, 28, 28))
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + pixels))
        header = b"\0\0\x08\x01" + count.to_bytes(4, "big")
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + labels))
    task = read_task(tmp_path)
    assert (task.preset, len(task.classes)) == ("digits", 10)
    assert (task.split.train.tolist(), task.split.test.tolist()) == ([0, 1, 2, 3, 4], [5, 6, 7])
    assert task.split.label.tolist() == [0, 1, 2, 3, 4, 0, 1, 2]


@pytest.mark.parametrize(("folds", "train", "test"), [([1, 2, 3, 4], [0, 1], [2]), ([2, 4, 4, 5], [0, 1, 2], [3])])
def test_cemri_folder(folds: list[int], train: list[int], test: list[int], tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    for number in range(1, len(folds) + 1):
        with h5py.File(tmp_path / f"{number}.mat", "w") as file:
            data = file.create_group("cjdata")
            data["image"] = np.eye(32, dtype=np.int16) * number
            data["label"] = np.array([[1.0]])
            data["PID"] = np.array([[48 + number]], np.uint16)
    with h5py.File(tmp_path / "cvind.mat", "w") as file:
        file["cvind"] = np.array([folds], float)
    task = read_task(tmp_path)
    assert (task.preset, task.schedule.epochs, task.split.image.shape[-1]) == ("medical", 40, 112)
    assert (task.split.train.tolist(), task.split.test.tolist()) == (train, test)


def test_routes_carry_the_decision() -> None:
    task = parts_task()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measured, _ = measure_routes(task, seed=0)
    finally:
        torch.set_num_threads(threads)
    assert measured.accuracy > 90
    assert [criterion.holds for criterion in measured.criteria] == [True, True, True], measured
