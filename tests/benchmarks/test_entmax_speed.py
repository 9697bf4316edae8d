"""The peers of entmax that are timed compute what their names say."""

import pytest
import torch

from benchmarks import entmax_speed
from benchmarks.entmax_speed import OURS, entmax_peers, time_entmax
from benchmarks.timing import Effort

ONE_ROUND = Effort(rounds=1, seconds=0.0, turn=0.0)


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


def test_without_the_package_torch_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entmax_speed, "entmax_package", lambda: None)
    assert "torch softmax" in entmax_peers()
    assert not any("package" in name for name in entmax_peers())
