"""The number of threads follows what is free, and slow steps are noticed."""

import os
from pathlib import Path

import pytest
import torch

from parsecaps.config import load_config
from parsecaps.system import threads
from parsecaps.system.threads import busy_cores, choose_threads, most_threads, using_threads
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.loop import Pace
from tests.messages import message
from tests.training.make import PHANTOM, train


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Eight cores, of which others use none, and a user who has set nothing."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "allowed_cores", lambda: 8)
    monkeypatch.setattr(threads, "busy_cores", lambda: 0.0)
    monkeypatch.setattr(threads, "_quotas", lambda root: [])
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    return monkeypatch


@pytest.mark.parametrize(
    ("busy", "quota", "processes", "number"),
    [
        (0.0, [], 1, 8),
        (0.2, [], 1, 8),
        (2.6, [], 1, 5),
        (8.0, [], 1, 1),
        (12.0, [], 1, 1),  # a load average may be above the cores
        (0.0, [2.0], 1, 2),
        (5.0, [4.0], 1, 3),
        (0.0, [], 2, 4),
        (6.0, [], 4, 1),
    ],
)
def test_threads_are_the_free_cores(
    busy: float, quota: list[float], processes: int, number: int, machine: pytest.MonkeyPatch
) -> None:
    machine.setattr(threads, "busy_cores", lambda: busy)
    machine.setattr(threads, "_quotas", lambda root: quota)
    assert choose_threads(processes).number == number


def test_what_a_user_has_set_wins(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(torch, "get_num_threads", lambda: 3)  # torch.set_num_threads(3)
    message(choose_threads())
    machine.setattr(threads, "busy_cores", lambda: 8.0)
    machine.setenv("OMP_NUM_THREADS", "3")
    message(choose_threads())


def test_other_work_is_seen_and_our_own_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores for two seconds: one idle for half of them; we computed for one second."""
    idle, clock, own = iter([[10.0, 20.0], [11.0, 20.0]]), iter([5.0, 7.0]), iter([1.0, 2.0])
    monkeypatch.setattr(threads, "_idle_seconds", lambda: next(idle))
    monkeypatch.setattr(threads.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(threads.time, "process_time", lambda: next(own))
    monkeypatch.setattr(threads.time, "sleep", lambda seconds: None)
    assert busy_cores() == pytest.approx(1.0)


@pytest.mark.skipif(not Path("/proc/stat").is_file(), reason="a system without /proc/stat")
def test_the_machine_can_be_asked() -> None:
    assert 0 <= busy_cores() <= len(os.sched_getaffinity(0))


def test_quotas_of_control_groups(tmp_path: Path) -> None:
    groups = tmp_path / "sys/fs/cgroup"
    (tmp_path / "proc/self").mkdir(parents=True)
    (groups / "jobs/mine").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/jobs/mine\n")
    assert threads._quotas(tmp_path) == []
    (groups / "jobs/mine/cpu.max").write_text("max 100000\n")
    (groups / "jobs/cpu.max").write_text("150000 100000\n")
    assert threads._quotas(tmp_path) == [1.5]
    (groups / "cpu/old").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("3:cpu,cpuacct:/old\n2:memory:/\n")
    (groups / "cpu/old/cpu.cfs_quota_us").write_text("50000\n")
    (groups / "cpu/old/cpu.cfs_period_us").write_text("100000\n")
    assert threads._quotas(tmp_path) == [0.5]


def test_the_number_is_put_back() -> None:
    before = torch.get_num_threads()
    with using_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


def test_slow_steps_are_told_once_and_single_ones_never() -> None:
    pace = Pace()
    quick = [9.0, 9.0, 9.0] + [0.1] * 60  # a warm-up
    assert [pace.add(seconds) for seconds in quick] == [None] * 63
    assert [pace.add(seconds) for seconds in [60.0, 0.1, 0.3] * 12] == [None] * 36
    told = [pace.add(1.5) for _ in range(60)]
    assert [each for each in told if each] == [(1.5, 0.1)]
    assert [pace.add(seconds) for seconds in [0.1] * 40 + [9.0] * 40] == [None] * 80


def test_a_run_says_that_its_steps_are_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = iter([None, (1.5, 0.1)])
    monkeypatch.setattr(Pace, "add", lambda pace, seconds: next(slow, None))
    lines: list[str] = []
    train(load_config(None, PHANTOM), run_folder=tmp_path / "run", callbacks=Callbacks(log=lines.append))
    message(*lines, containing="1.5 s", hide=r"this run has .*")


def test_a_server_takes_cores_that_are_busy_now(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(threads, "busy_cores", lambda: 8.0)
    assert most_threads() == 8
    machine.setattr(threads, "_quotas", lambda root: [2.0, 4.0])
    assert most_threads() == 2
    machine.setenv("OMP_NUM_THREADS", "8")
    assert most_threads() == 8
