"""entmax beside its peers, throughput, the CNN of equal FLOPs, and memory: on the smallest preset."""

import pytest
import torch

from benchmarks.speed import (
    OURS,
    cnn_of_equal_flops,
    entmax_peers,
    measure_memory,
    time_entmax,
    time_presets,
)
from benchmarks.timing import Effort, MatmulPeak
from parsecaps.models import ParseCaps
from parsecaps.models.summary import count_flops

ONE_ROUND = Effort(rounds=1, seconds=0.0, turn=0.0)


@pytest.mark.parametrize("preset", ["medical", "digits", "tiny"])
def test_the_cnn_costs_the_same(preset: str) -> None:
    model = ParseCaps.from_preset(preset, num_classes=10)
    assert count_flops(cnn_of_equal_flops(model)) == pytest.approx(count_flops(model), rel=0.05)


def test_every_model_phase_and_batch_is_measured() -> None:
    peak = MatmulPeak(width=64)
    rows = list(time_presets(["tiny"], effort=ONE_ROUND, peak=peak, compiled=False, batch_sizes=(1, 2)))
    measured = {(row.model, row.phase, row.batch_size) for row in rows}
    assert len(rows) == len(measured) == 8
    for row in rows:
        assert row.mode == "eager"
        work = 3 if row.phase == "training" else 1
        assert row.flops_per_second == pytest.approx(work * row.flops * row.images_per_second)
    assert peak.flops_per_second > 0


def test_memory_of_a_step() -> None:
    memory = measure_memory("tiny", batch_size=128)
    activations = 4 * 128 * 16 * 16 * (8 + 8 + 16 + 16)  # the outputs of the initial block's convolutions alone
    assert activations < memory.growth < 1e9


def test_peers_agree_with_ours() -> None:
    pytest.importorskip("entmax")
    x = torch.randn(4, 9)
    peers = entmax_peers()
    torch.testing.assert_close(peers["entmax package, entmax15"](x), peers[OURS](x))
    torch.testing.assert_close(peers["entmax package, entmax_bisect 1.5"](x), peers[OURS](x))
    torch.testing.assert_close(peers["entmax package, sparsemax"](x), peers["parsecaps entmax, alpha 2"](x))


def test_ratios_are_against_ours() -> None:
    rows = time_entmax(ONE_ROUND, shapes=[(2, 3, 5), (4, 8)])
    assert [row.shape for row in rows if row.name == OURS] == [(2, 3, 5), (4, 8)]
    for row in rows:
        ours = next(other for other in rows if other.name == OURS and other.shape == row.shape)
        assert row.ratio == pytest.approx(row.seconds / ours.seconds)
