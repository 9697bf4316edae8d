"""A short attack on every change (the whole one is `python -m tests.attack`), and the attack's own verdicts."""

import json
import signal
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attack.commands import Kill, Memory, Outcome, Place, changes, one_line, snapshot
from tests.attack.crafted import SECRET_START, Crafted, crafted_files, zlib_bomb
from tests.attack.crafted_dicom import crafted_dicom
from tests.attack.crafted_double import crafted_double
from tests.attack.kills import killed_badly
from tests.attack.model_folders import attack_models
from tests.attack.mutated import OPERATORS, good_files, mutate
from tests.attack.odd_names import write_no_files, write_no_images, write_odd_names
from tests.attack.rows import judge
from tests.attack.runner import FileAttack, Report, quoted
from tests.attack.served import ServedAttack

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the attack watches through /proc")

# Those that are decoded, or would be for ever, take seconds each; the whole attack has them.
SLOW = ("below the limit", "jp2", "10950", "j2k", "bomb", "100000")


def is_quick(each: Crafted) -> bool:
    return not any(word in f"{each.kind} {each.name}" for word in SLOW)


def outcome(code: int = 0, stdout: str = "", stderr: str = "", **more: Any) -> Outcome:
    return Outcome("parsecaps predict", code, stdout, stderr, 1.0, Memory(), **more)


def row(image: str, frame: int | None = None, error: str = "", **more: Any) -> dict[str, Any]:
    answer = {} if error else {"class": "a", "probabilities": {"a": 0.25, "b": 0.75}}
    return {"image": image, "frame": frame, "patient": "", "error": error, **answer, **more}


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    def write(*rows: dict[str, Any]) -> Path:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(each) + "\n" for each in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "place")


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return Report(tmp_path / "kept")


def test_quick_attack_with_files(place: Place, report: Report) -> None:
    chosen = [each for each in (*crafted_files(), *crafted_dicom(), *crafted_double()) if is_quick(each)]
    FileAttack(place, report).together(chosen, mutated=50)
    assert report.clean, "\n".join(report.lines())


def test_quick_attack_on_a_server(place: Place, report: Report) -> None:
    chosen = [each for each in (*crafted_files(), *crafted_dicom(), *crafted_double()) if is_quick(each)]
    with ServedAttack(place, report) as served:
        served.together(chosen[::4], mutated=20)
    assert report.clean, "\n".join(report.lines())
    assert report.tallies["together, served"].tried > 40


def test_quick_attack_with_a_model(place: Place, report: Report) -> None:
    attack_models(place, report, ["nested config"])
    assert report.clean, "\n".join(report.lines())


def test_quick_attack_with_a_kill(place: Place) -> None:
    good_files(place.files)
    table = place.out / "rows.csv"
    kill = Kill(signal.SIGTERM, 0.0, table, wait=True)
    killed = place.run("predict", "--out", table, place.model, place.files, seconds=60, kill=kill)
    assert not killed_badly(killed, signal.SIGTERM)
    again = place.run("predict", "--out", table, place.model, place.files, seconds=60)
    asked = [str(path) for path in place.files.iterdir()]
    assert judge(again, asked, table).clean, again


def test_a_mutated_file_is_the_same_for_its_number(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
    good, again = good_files(first), good_files(second)
    assert good == again
    files = [mutate(good, 0, number) for number in range(100)]
    assert files == [mutate(again, 0, number) for number in range(100)]
    assert files != [mutate(good, 1, number) for number in range(100)]
    assert files[37][0].startswith("000037-")
    changed = [data not in good.values() for _, data in files]
    assert sum(changed) > 90
    assert len({operator.__name__ for operator in OPERATORS}) == 8


def test_crafted_files_are_written_and_small(tmp_path: Path) -> None:
    every = [*crafted_files(), *crafted_dicom(), *crafted_double()]
    assert len({each.name for each in every}) == len(every) > 130
    for each in every:
        each.write(tmp_path / each.name)
        assert (tmp_path / each.name).stat().st_size < 6_000_000


def test_a_bomb_unpacks_with_its_checksum() -> None:
    start, zeros = b"anything", 3 * 2**24 + 12345
    assert zlib.decompress(zlib_bomb(start, zeros)) == start + bytes(zeros)


def test_odd_names_and_no_files(tmp_path: Path) -> None:
    assert len(write_odd_names(tmp_path)) > 15
    assert all(path.exists() for path in write_no_images(tmp_path))
    odd = {path.name: path for path in write_no_files(tmp_path)}
    assert odd["pipe.png"].is_fifo()
    assert odd["socket.png"].is_socket()
    assert not odd["itself.png"].is_file()
    assert quoted("a b") == "'a b'"
    assert quoted("\udce9\n") == "$'\\xe9\\x0a'"


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([row("x")], ""),
        ([row("x", error="x is damaged; replace it")], ""),
        ([row("x", 0), row("x", 1), row("x", 2)], ""),
        ([], "has no row"),
        ([row("x"), row("x")], "has rows for the frames"),
        ([row("x", 0), row("x", 2)], "has rows for the frames"),
        ([row("x", 1), row("x", 1)], "has rows for the frames"),
        ([row("x", error="two\nlines")], "not one line"),
        ([row("x", error="\x1b[31m")], "not one line"),
        ([row("x", probabilities={})], "neither an answer nor an error"),
        ([row("x", probabilities={"a": float("nan")})], "neither an answer nor an error"),
        ([row("x", probabilities={"a": 0.2})], "has probabilities of 0.2"),
        ([row("x", error="no", **{"class": "a"})], "an answer and an error"),
        ([row("x", patient=f"{SECRET_START}0:0")], "shows a file of the machine"),
    ],
)
def test_verdict_on_a_file(table: Callable[..., Path], rows: list[dict[str, Any]], problem: str) -> None:
    verdict = judge(outcome(), ["x"], table(*rows))
    assert not verdict.general
    assert problem in verdict.by_file.get("x", "")
    assert bool(verdict.by_file) == bool(problem)


def test_verdict_on_crafted_files(table: Callable[..., Path]) -> None:
    crafted = {
        "x": Crafted("k", "x", Path.touch, frames=3),
        "y": Crafted("k", "y", Path.touch, refused=True),
    }
    assert judge(outcome(), ["x", "y"], table(row("x"), row("y")), crafted).by_file == {
        "x": "has 1 rows for 3 frames",
        "y": "is answered, and should be refused",
    }


@pytest.mark.parametrize(
    ("ended", "problem"),
    [
        (outcome(1), "exit code 1"),
        (outcome(-11), "exit code -11"),
        (outcome(stderr="Traceback (most recent call last):\nKeyError: 1"), "a traceback: KeyError: 1"),
        (outcome(problems=["does not end within 60 s"]), "does not end within 60 s"),
    ],
)
def test_verdict_on_a_command(table: Callable[..., Path], ended: Outcome, problem: str) -> None:
    assert problem in judge(ended, ["x"], table(row("x"))).general


def test_left_out_files_count(table: Callable[..., Path]) -> None:
    rows = table(row("x"))
    assert judge(outcome(stdout="left out 2 files that are no images: y, z"), ["x", "y", "z"], rows).clean
    assert not judge(outcome(stdout="left out 1 file: y"), ["x", "y", "z"], rows).clean
    assert "1 more files" in judge(outcome(stdout="left out 1 file: y"), ["x"], rows).general


def test_an_odd_name_may_be_written_in_another_way(table: Callable[..., Path]) -> None:
    assert judge(outcome(), ["\udce9.png", "=cmd.png"], table(row("\\xe9.png"), row("'=cmd.png"))).clean
    assert not judge(outcome(), ["\udce9.png", "=cmd.png"], table(row("\\xe9.png"))).clean


def test_a_spreadsheet_calculates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("image,frame,patient,class,probability:a,error\nx,,=1+1,a,1,\n", encoding="utf-8")
    assert "calculates" in judge(outcome(), ["x"], path).by_file["x"]
    path.write_text("image,frame,patient,class,probability:a,error\nx,,1\n", encoding="utf-8")
    assert "cannot be read" in judge(outcome(), ["x"], path).general


def test_a_refusal_is_one_line() -> None:
    assert one_line(outcome(2, stderr="error: x is damaged\n")) == []
    assert one_line(outcome(2, stderr="warning\nerror: x\n")) == ["says why in 2 lines"]
    assert one_line(outcome(1, stderr="Traceback")) == ["prints a traceback", "ends with exit code 1"]


@pytest.mark.parametrize(
    ("number", "code", "started", "problem"),
    [
        (signal.SIGKILL, -9, True, ""),
        (signal.SIGTERM, 143, True, ""),
        (signal.SIGTERM, -15, True, "exit code -15, not 143"),
        (signal.SIGTERM, -15, False, ""),
        (signal.SIGINT, 130, True, ""),
        (signal.SIGINT, 1, True, "exit code 1, not 130"),
        (signal.SIGINT, 0, True, ""),
    ],
)
def test_verdict_on_a_kill(number: signal.Signals, code: int, started: bool, problem: str) -> None:
    assert problem in killed_badly(outcome(code, started=started), number)
    assert bool(killed_badly(outcome(code, started=started), number)) == bool(problem)


def test_a_command_is_watched(place: Place) -> None:
    done = place.run("--version", seconds=30)
    assert (done.code, done.problems, done.stderr) == (0, [], "")
    assert min(done.memory.main, done.memory.tree) > 5e6
    assert done.command.endswith("&& parsecaps --version")
    slow = place.run("--version", seconds=0)
    assert slow.problems == ["does not end within 0 s"]
    killed = place.run("--version", seconds=30, kill=Kill(signal.SIGKILL, 0.0, place.out / "rows.csv"))
    assert (killed.code, killed.started) == (-9, False)


class Fake(Place):
    """A command that crashes at one file, and answers all others."""

    def run(self, *arguments: str | Path, **more: Any) -> Outcome:
        asked = [Path(argument) for argument in arguments[5:]]
        files = [str(file) for path in asked for file in (path.iterdir() if path.is_dir() else [path])]
        Path(arguments[2]).write_text("".join(json.dumps(row(name)) + "\n" for name in files), encoding="utf-8")
        return outcome(-11 if any("000005-" in name for name in files) else 0)


def test_the_file_is_found_and_kept(tmp_path: Path, report: Report) -> None:
    FileAttack(Fake(tmp_path / "place"), report).mutated(9)
    assert not report.clean
    assert not report.tallies["good"].problems
    (problem,) = report.tallies["mutated"].problems
    assert problem.name.startswith("000005-")
    assert problem.what == "ends with exit code -11: "
    kept = report.folder / "1" / problem.name
    assert kept.is_file()
    assert problem.command.endswith(f"golden/parallel {kept}")
    assert report.lines()[2].split() == ["mutated", "9", "8", "1", "0", "0", "0"]


def test_what_a_command_changes_is_seen(place: Place) -> None:
    before = snapshot([place.victim])
    assert changes(before, snapshot([place.victim])) == []
    (place.victim / "precious.txt").write_text("precious\n", encoding="utf-8")
    (place.victim / "last.pt").unlink()
    found = changes(before, snapshot([place.victim]))
    assert [each.split()[0] for each in found] == ["deletes", "changes"]
