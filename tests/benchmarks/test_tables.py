"""What the benchmarks print of their results."""

import io

from rich.console import Console
from rich.table import Table

from benchmarks.house import Bar
from benchmarks.speed import EntmaxTime, Throughput
from benchmarks.tables import bars_table, criteria_lines, entmax_table, throughput_table
from studies.routes import KEPT, UNIFORM, RouteResult, strongest_of
from tests.audit.make_audit import make_comparison


def text(table: Table) -> str:
    out = Console(file=io.StringIO(), width=200)
    out.print(table)
    return out.file.getvalue()


def rows(table: Table) -> list[list[str]]:
    """The words of each row below the rule."""
    lines = [line.split() for line in text(table).splitlines()]
    rule = next(i for i, words in enumerate(lines) if words and set(words[0]) == {"─"})
    return [words for words in lines[rule + 1 :] if words]


def test_the_fastest_of_a_shape_comes_first() -> None:
    times = [EntmaxTime((2, 3), "slow", 0.004, 2.0), EntmaxTime((2, 3), "ours", 0.002, 1.0)]
    assert rows(entmax_table(times))[:2] == [["2", "x", "3", "ours", "2.00", "1.00"], ["slow", "4.00", "2.00"]]


def test_a_model_stands_beside_its_cnn() -> None:
    speeds = {"ParseCaps": 5, "PlainCNN": 20}
    measured = [Throughput("tiny", name, "forward", "eager", 1, 100, speed) for name, speed in speeds.items()]
    table = throughput_table(measured, peak=4000)
    assert rows(table) == [["tiny", "forward", "1", "eager", "5.0", "20.0", "0.25", "12.5%", "50.0%"]]


def test_verdicts_on_routes() -> None:
    compared = {UNIFORM: make_comparison(0.8, 0.95), strongest_of(max(KEPT)): make_comparison(0.955, 0.95)}
    verdicts = [line.split(":")[0] for line in criteria_lines(RouteResult("my-run", 0, 4, 10, 20, compared))]
    assert verdicts == ["DOES NOT HOLD", "not measured", "holds"]


def test_bars_say_whether_they_are_met() -> None:
    table = bars_table([Bar("a", 3, 2), Bar("b", 2, 2), Bar("c", 1000)])
    assert rows(table) == [["a", "3", "2", "MISSED"], ["b", "2", "2", "met"], ["c", "1,000"]]
