"""Do maps of the diagnosis point at the lesion? Several networks and methods on the same outlined images.

    python -m studies.maps_on_masks DATA/ham --network trunk=runs/few/bottleneck-isic-0 \
        --network nothing=runs/few/auto-isic-0 --network linear=runs/few/linear-isic-0 --out maps.json

No network has seen a mask, and patients that any of the networks was trained or validated on are left out. Each map is
of what the network itself diagnoses. Measured are the pointing game, the share of the map inside the outline, that
share over the outline's share of the image, the best IoU, and deletion: as the squares of a grid are painted over from
their surroundings, most relevant first, how much sooner the probability falls than in random orders. A bell in the
middle of the image, which knows nothing, stands beside the maps: where it scores high, lesions are centred.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from parsecaps.audit.audit_cases import AuditCases, Values, find_masks, joined
from parsecaps.audit.faithfulness import GRID, area, region_order
from parsecaps.audit.inpainting import paint_over
from parsecaps.audit.maps import MapMeasures, dense_maps, localise, map_makers, measure_maps
from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.data.sources import open_data
from parsecaps.explain.attribution import Target
from parsecaps.metrics import Difference, Score, means
from parsecaps.metrics.bootstrap import SIGNED_SHARE
from parsecaps.metrics.predictions import group_numbers
from parsecaps.run import Run

METHODS = ("routes", "grad-cam", "integrated gradients")
CENTRE = "bell in the middle"
STEPS = 8  # of a deletion
RANDOM_ORDERS = 2
_BELL = 0.25  # standard deviation, as a share of the image's side


@dataclass(frozen=True)
class MapRow:
    """What was measured of one method on one network; `against` is the difference to the first row, paired by case."""

    network: str
    method: str
    pointing: Score
    mass: Score
    ratio: Score
    iou: Score
    deletion: Score | None
    pointing_against: Difference | None
    mass_against: Difference | None


def outlined(data: DataSet, runs: Sequence[Run], limit: int, seed: int) -> DataSet:
    """At most so many cases with a mask, drawn at random, of patients that none of the runs learned from."""
    known = {run.data.cases[row].patient for run in runs for part in ("train", "val") for row in run.rows(part)}
    rows = [i for i, case in enumerate(data.cases) if case.mask is not None and case.patient not in known]
    if not rows:
        raise ValueError(f"{data.root} has no outlined case of a patient that the networks do not know")
    return data.subset(sorted(np.random.default_rng(seed).permutation(rows)[:limit].tolist()))


def measure_networks(
    networks: dict[str, Path], source: str, *, limit: int = 200, deleted: int = 50, seed: int = 0
) -> list[MapRow]:
    """Measure the maps of each network; deletion on the first `deleted` cases alone, as it takes longest."""
    runs = {name: Run(folder) for name, folder in networks.items()}
    data = outlined(open_data(source), list(runs.values()), limit, seed)
    group = group_numbers([case.patient for case in data.cases])
    measured: dict[tuple[str, str], tuple[MapMeasures, np.ndarray]] = {}
    for name, run in runs.items():
        prepared = prepare_all(data, run.model.preparation)
        cases = AuditCases(run.model, CaseSet(data, prepared))
        found, gains = _measure(cases, deleted, seed)
        measured |= {(name, method): (found[method], gains[method]) for method in gains}
        measured[CENTRE, ""] = found[CENTRE], np.full((len(data), 1), np.nan)
    first = next(iter(measured.values()))[0]
    rows = []
    for (name, method), (each, gain) in measured.items():
        located = localise(each, lambda values, **how: means(values, group, seed=seed, **how), ["diagnosis"]).targets[0]
        gained = means(gain, group, bounds=SIGNED_SHARE, seed=seed).scores()[0]
        deletion = None if gained.value is None else gained
        pairs = [(first.pointing, each.pointing), (first.mass, each.mass)]
        against = [None if each is first else _difference(*pair, group, seed) for pair in pairs]
        rows.append(MapRow(name, method, *(getattr(located, key) for key in _KEYS), deletion, *against))
    return rows


_KEYS = ("pointing", "mass", "ratio", "iou")


def _measure(cases: AuditCases, deleted: int, seed: int) -> tuple[dict[str, MapMeasures], dict[str, np.ndarray]]:
    """The measures of each method's maps, and of the bell; and what each gains in deletion, NaN beyond `deleted`."""
    makers = {name: make for name, make in map_makers(cases.network).items() if name in METHODS}
    masks, size = find_masks(cases.cases.data, cases.model).lesion, cases.model.preparation.size
    assert masks is not None
    along = (np.arange(size) + 0.5) / size - 0.5
    bell = np.exp(-(along**2 + along[:, None] ** 2) / (2 * _BELL**2))
    parts: dict[str, list[MapMeasures]] = {name: [] for name in (*makers, CENTRE)}
    gains = {name: np.full((len(cases), 1), np.nan) for name in makers}
    random = np.random.default_rng(seed)
    for batch, image in cases.batches():
        mask = masks(cases.rows_of(batch))[:, None]
        columns = cases.values(image)[:, len(cases.model.concepts) :].argmax(1).tolist()
        targets = [[Target("classes", column)] for column in columns]
        # all columns but that of the diagnosis are 0
        maps = {name: dense_maps(cases, make, image, targets).amax(1) for name, make in makers.items()}
        for name, each in maps.items():
            parts[name].append(measure_maps(each[:, None].double().cpu().numpy(), mask))
        parts[CENTRE].append(measure_maps(np.broadcast_to(bell, mask.shape), mask))
        for i, case in enumerate(batch):
            if case >= deleted or not mask[i].any():
                continue
            orders = [random.permutation(GRID**2) for _ in range(RANDOM_ORDERS)]
            for each in maps.values():
                orders.append(region_order(each[i : i + 1], random.random((1, GRID**2)))[0].numpy())
            column = columns[i] + len(cases.model.concepts)
            areas = area(deletion_curves(cases.values, image[i], orders, column))
            for name, own in zip(maps, areas[RANDOM_ORDERS:], strict=True):
                gains[name][case] = areas[:RANDOM_ORDERS].mean() - own
    return {name: joined(each) for name, each in parts.items()}, gains


def deletion_curves(values: Values, image: torch.Tensor, orders: Sequence[np.ndarray], column: int) -> np.ndarray:
    """The value of one column as the regions of each order are painted over from what is left: (orders, STEPS + 1).

    With nothing left the image is of its mean colour.
    """
    picture = image.double().cpu().numpy()
    side = picture.shape[-1]
    region = (np.arange(side) * GRID // side)[:, None] * GRID + np.arange(side) * GRID // side
    empty = np.broadcast_to(picture.mean((1, 2), keepdims=True), picture.shape)
    painted = [picture, empty]
    for order in orders:
        rank = order.argsort()
        for step in range(1, STEPS):
            painted.append(paint_over(picture, rank[region] < step * GRID**2 // STEPS))
    batch = torch.from_numpy(np.stack(painted).astype(np.float32)).to(image.device)
    whole, nothing, *between = values(batch)[:, column].double().cpu().numpy()
    steps = np.reshape(between, (len(orders), STEPS - 1))
    return np.pad(np.pad(steps, ((0, 0), (1, 0)), constant_values=whole), ((0, 0), (0, 1)), constant_values=nothing)


def _difference(first: np.ndarray, second: np.ndarray, group: np.ndarray, seed: int) -> Difference:
    """The paired difference of the means of two measures (N, 1) over the same cases."""
    found = means(np.concatenate([first, second], 1), group, seed=seed)
    return Difference.of(*found.value, found.draws[1] - found.draws[0], found.all_patients)


def table(rows: Sequence[MapRow]) -> list[str]:
    """The rows in Markdown."""
    lines = [
        "| network | maps | pointing game | against the first | share inside | times the outline's | IoU | deletion |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = [
            row.network,
            row.method,
            _cell(row.pointing, ".2f"),
            _cell(row.pointing_against, "+.2f"),
            *(f"{score.value:.2f}" for score in (row.mass, row.ratio, row.iou)),
            _cell(row.deletion, "+.3f"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _cell(found: Score | Difference | None, form: str) -> str:
    """A value and its interval, where there is one."""
    value = found.difference if isinstance(found, Difference) else found and found.value
    if found is None or value is None:
        return ""
    ends = "" if found.low is None or found.high is None else f" ({found.low:{form}} to {found.high:{form}})"
    return f"{value:{form}}{ends}"


def main() -> None:
    """Measure, print the table, and write all numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--network", action="append", required=True, metavar="NAME=RUN")
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--deleted", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    networks = {name: Path(folder) for name, _, folder in (each.partition("=") for each in options.network)}
    rows = measure_networks(networks, options.data, limit=options.limit, deleted=options.deleted, seed=options.seed)
    options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    print(f"{rows[0].pointing.n} outlined images")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
