"""What the benchmarks print: tables for a terminal, made of their typed results."""

from collections.abc import Sequence
from itertools import groupby

from rich import box
from rich.table import Table
from rich.text import Text

from benchmarks.house import Bar
from benchmarks.serving import Load
from benchmarks.speed import EntmaxTime, Memory, Throughput
from studies.routes import RouteResult


def plain_table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    table = Table(title=Text(title, "table.title"), title_justify="left", box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if i == 0 else "right", no_wrap=True)
    return table


def entmax_table(rows: Sequence[EntmaxTime]) -> Table:
    """Times of entmax and its peers, one section per shape."""
    table = plain_table("entmax, forward and backward, over the last axis", "shape", "function", "ms", "times ours")
    table.columns[1].justify = "left"
    for shape, group in groupby(rows, key=lambda row: row.shape):
        for i, row in enumerate(sorted(group, key=lambda row: row.seconds)):
            label = " x ".join(map(str, shape)) if i == 0 else ""
            table.add_row(label, row.name, f"{1000 * row.seconds:.2f}", f"{row.ratio:.2f}")
        table.add_section()
    return table


def throughput_table(rows: Sequence[Throughput], peak: float) -> Table:
    """Each preset beside its CNN: images per second, their ratio, and both as a share of the peak in FLOP/s."""
    columns = ("preset", "phase", "batch", "mode", "ParseCaps", "CNN", "ratio", "of peak", "CNN of peak")
    table = plain_table("images per second, beside a plain CNN of equal FLOPs", *columns)
    for column in (1, 3):
        table.columns[column].justify = "left"
    by_key = {(row.preset, row.phase, row.batch_size, row.mode, row.model): row for row in rows}
    last = ""
    for row in rows:
        if row.model != "ParseCaps":
            continue
        cnn = by_key[row.preset, row.phase, row.batch_size, row.mode, "PlainCNN"]
        if last and row.preset != last:
            table.add_section()
        table.add_row(
            "" if row.preset == last else row.preset,
            row.phase,
            str(row.batch_size),
            row.mode,
            f"{row.images_per_second:,.1f}",
            f"{cnn.images_per_second:,.1f}",
            f"{row.images_per_second / cnn.images_per_second:.2f}",
            f"{row.flops_per_second / peak:.1%}",
            f"{cnn.flops_per_second / peak:.1%}",
        )
        last = row.preset
    return table


def memory_table(rows: Sequence[Memory], title: str) -> Table:
    """Resident memory before and at the height of a training step."""
    table = plain_table(title, "model", "batch", "before, MB", "peak, MB", "growth, MB")
    for row in rows:
        sizes = (f"{size / 1e6:,.0f}" for size in (row.before, row.peak, row.growth))
        table.add_row(row.model, str(row.batch_size), *sizes)
    return table


def criteria_lines(result: RouteResult) -> list[str]:
    """A verdict for each criterion."""
    words = {True: "holds", False: "DOES NOT HOLD", None: "not measured"}
    lines = []
    for criterion in result.criteria:
        points = "" if criterion.points is None else f" ({criterion.points:.2f})"
        lines.append(f"{words[criterion.holds]}: {criterion.name}{points}")
    return lines


def serving_table(rows: Sequence[Load]) -> Table:
    """What clients of the server saw."""
    table = plain_table("the server", "clients", "images/s", "errors", "p50, ms", "p95, ms", "p99, ms")
    for row in rows:
        times = (f"{1000 * value:,.0f}" for value in (row.p50, row.p95, row.p99))
        table.add_row(str(row.clients), f"{row.images_per_second:,.1f}", f"{row.errors:,}", *times)
    return table


def bars_table(bars: Sequence[Bar]) -> Table:
    """Each measure of the code with its bar."""
    table = plain_table("the code", "measure", "value", "bar", "")
    for bar in bars:
        words = "" if bar.limit is None else "met" if bar.is_met else "MISSED"
        table.add_row(bar.name, f"{bar.value:,}", "" if bar.limit is None else f"{bar.limit:,}", words)
    return table
