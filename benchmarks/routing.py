"""What `bench routing` prints: the routings of the three-layer network, side by side."""

from collections.abc import Iterator
from itertools import product

from rich.table import Table

from benchmarks.tables import plain_table
from parsecaps.paper.routing_speed import OURS, PHASES, PUBLISHED, WANTED, Phase, RoutingSpeed, Scope

_TITLES: dict[Scope, str] = {
    "routing": "images a second, the routing alone (and how many times as many SAA routing has)",
    "network": "images a second, the whole network (and how many times as many it has with SAA routing)",
}


def cost_table(speed: RoutingSpeed) -> Table:
    """What one image costs, and the memory of a training step."""
    columns = ("routing", "parameters", "multiply-adds", "of the network", "couplings", "votes", "memory, MB")
    table = plain_table("the routing alone, for one image; memory of a training step of the largest batch", *columns)
    for cost in speed.costs:
        numbers = (cost.parameters, cost.multiply_adds, cost.network_multiply_adds, cost.couplings, cost.votes)
        memory = "" if cost.memory is None else f"{cost.memory / 1e6:,.0f}"
        table.add_row(cost.routing, *(f"{number:,}" for number in numbers), memory)
    return table


def time_table(speed: RoutingSpeed, scope: Scope) -> Table:
    """A row for each routing and part of one, a column for each phase and batch size."""
    sizes = sorted({time.batch_size for time in speed.times})
    keys = [(phase, size) for phase in PHASES for size in sizes]
    table = plain_table(_TITLES[scope], "routing", *(f"{phase}, batch {size}" for phase, size in keys))
    found = {(t.routing, t.part, t.phase, t.batch_size): t for t in speed.times if t.scope == scope}
    for routing, part in dict.fromkeys(key[:2] for key in found):
        cells = []
        for phase, size in keys:
            ours, one = found[OURS, "", phase, size], found[routing, part, phase, size]
            cells.append(f"{one.images_per_second:,.0f} ({one.best / ours.best:.2f})")
        table.add_row(f"{routing} {part}".strip(), *cells)
    return table


def lines(speed: RoutingSpeed) -> Iterator[str]:
    """The ratios that are wanted, and those of the paper."""
    phases: tuple[Phase, ...] = ("forward", "training")
    sizes = sorted({time.batch_size for time in speed.times})
    for other, wanted in WANTED.items():
        for phase, size in product(phases, sizes):
            ratio = speed.ratio(other, "routing", phase, size)
            word = "met" if ratio >= wanted else "MISSED"
            yield f"{word}: SAA routing alone {ratio:.2f} x {other}, {phase}, batch {size} (at least {wanted})"
    for other, published in PUBLISHED.items():
        ours = ", ".join(f"{speed.ratio(other, 'network', 'forward', size):.2f} x at batch {size}" for size in sizes)
        yield f"the whole network, forward, beside {other}: {ours}; the paper's {published:.2f} x"
    yield f"{speed.threads} threads"
