"""An archive that several processes share out: nothing is lost, nothing is done twice, whoever is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parsecaps.data.preparation import Preparation
from parsecaps.model import Model
from parsecaps.models import ParseCaps
from parsecaps.prediction.archive import lock_file, part_file, write_part, write_rows
from parsecaps.prediction.files import LeftOut, Shard, find_files
from tests.data.make import folder_of_pictures, picture
from tests.messages import refused

TWO = (Shard(0, 2), Shard(1, 2))


@pytest.fixture
def model() -> Model:
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=2, in_channels=3)
    return Model(model, Preparation(size=32, channels=3), ("nevus", "melanoma"), ("veil", "streaks"))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    from PIL import Image

    folder = tmp_path / "archive"
    folder_of_pictures(folder, per_class=5)
    (folder / "a" / "broken.png").write_bytes(b"no image")
    (folder / "a" / "notes.txt").write_text("no image")
    frames = [Image.fromarray(picture(i)) for i in range(3)]
    frames[0].save(folder / "stack.tiff", save_all=True, append_images=frames[1:])
    return folder


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_the_merged_table_is_that_of_one_process(model: Model, archive: Path, tmp_path: Path, suffix: str) -> None:
    one, many = tmp_path / f"one{suffix}", tmp_path / f"many{suffix}"
    left_out = LeftOut()
    done, failed = write_rows(one, model, find_files([archive], left_out), batch_size=1)
    shards = [Shard(rank, 3) for rank in (2, 0, 1)]
    merged = [write_part(many, model, [archive], shard, batch_size=1) for shard in shards]
    assert merged[:2] == [None, None]
    assert merged[2] is not None
    rows, errors, beside = merged[2]
    assert (rows, errors) == (done, failed) == (14, 1)
    assert (beside.count, beside.names) == (left_out.count, left_out.names) == (1, ["a/notes.txt"])
    assert many.read_bytes() == one.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", many.name, one.name]


def test_a_part_goes_on_where_it_was_cut(model: Model, archive: Path, tmp_path: Path) -> None:
    one, many = tmp_path / "one.csv", tmp_path / "many.csv"
    write_rows(one, model, find_files([archive]), batch_size=1)
    assert write_part(many, model, [archive], TWO[0], batch_size=1) is None
    content = part_file(many, TWO[0]).read_bytes()
    for end in (0, len(content) // 3, len(content) - 2, len(content)):
        part_file(many, TWO[0]).write_bytes(content[:end])
        assert write_part(many, model, [archive], TWO[0], batch_size=1) is None
        assert part_file(many, TWO[0]).read_bytes() == content
    assert write_part(many, model, [archive], TWO[1], batch_size=1) is not None
    assert many.read_bytes() == one.read_bytes()


def test_a_finished_part_is_not_done_again(
    model: Model, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.csv"
    write_part(out, model, [archive], TWO[0])

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError

    monkeypatch.setattr("parsecaps.prediction.archive.predict_files", fail)
    assert write_part(out, model, [archive], TWO[0]) is None


def test_what_lies_in_the_way_is_refused_and_kept(model: Model, archive: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine\n")
    with refused(ValueError):
        write_part(out, model, [archive], TWO[0])
    assert out.read_text() == "mine\n"
    out.unlink()
    write_part(out, model, [archive], TWO[0])
    with refused(ValueError):
        write_part(out, model, [archive], Shard(0, 3))
    part = part_file(out, TWO[0])
    lines = part.read_text().splitlines(keepends=True)
    part.write_text("".join(lines[1:-1]))
    with refused(ValueError):
        write_part(out, model, [archive], TWO[0])
    part.write_text("[1]\n")
    with refused(ValueError):
        write_part(out, model, [archive], TWO[0])
    with refused(ValueError):
        write_part(tmp_path / "out.txt", model, [archive], TWO[0])


def test_an_empty_folder_is_one_error_whoever_finds_it(model: Model, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("x")
    results = [write_part(tmp_path / "out.csv", model, [tmp_path / "empty"], shard) for shard in TWO]
    assert results[1] is not None
    assert results[1][:2] == (1, 1)
    assert "has no image in it" in (tmp_path / "out.csv").read_text()


def start(model: Path, archive: Path, out: Path) -> subprocess.Popen[str]:
    """Two processes by torchrun, as a user starts them."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "parsecaps", "predict"]
    command = [sys.executable, *torchrun, str(model), str(archive), "--out", str(out), "--set", "batch_size=1"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "LOCAL_RANK", "WORLD"))}
    environment = {**clean, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def test_one_of_two_processes_is_killed_and_the_same_command_goes_on(model: Model, tmp_path: Path) -> None:
    folder_of_pictures(tmp_path / "archive", per_class=200)
    model.save(tmp_path / "model")
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    write_rows(one, model, find_files([tmp_path / "archive"]), batch_size=1)
    parts = [part_file(two, shard) for shard in TWO]
    running = start(tmp_path / "model", tmp_path / "archive", two)
    lock, deadline = lock_file(parts[1]), time.monotonic() + 90
    while not (parts[1].exists() and parts[1].read_bytes().count(b"\n") > 5):
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert lock.exists()
    victim = next(pid for pid, rank in children(running.pid) if rank == "1")
    os.kill(victim, signal.SIGKILL)
    running.communicate(timeout=90)
    assert running.returncode != 0
    assert not two.exists()
    kept = parts[1].read_bytes().count(b"\n")
    assert 5 < kept < 200
    again = start(tmp_path / "model", tmp_path / "archive", two)
    said = again.communicate(timeout=120)[0]
    assert again.returncode == 0, said
    assert "400 new rows, 0 with an error" in said
    assert two.read_bytes() == one.read_bytes()
    assert not any(part.exists() for part in parts)
    assert json.dumps(said).count("new rows") == 1


def children(parent: int) -> list[tuple[int, str]]:
    """The processes below one, with their ranks."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environment = (place / "environ").read_bytes().split(b"\0")
            above = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        ranks = [each.removeprefix(b"RANK=").decode() for each in environment if each.startswith(b"RANK=")]
        if above == parent and ranks:
            found.append((int(place.name), ranks[0]))
    return found
