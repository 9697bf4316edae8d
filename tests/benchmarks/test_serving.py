"""The load script: what it counts is what the server answered."""

import asyncio

import pytest

from benchmarks.serving import BareModel, Load, Serving, _load
from benchmarks.tables import serving_table
from tests.serve.running import running


def load(**changes: float) -> Load:
    return Load(
        **{"clients": 32, "seconds": 10.0, "answers": 900, "errors": 0, "p50": 0.3, "p95": 0.4, "p99": 0.5} | changes
    )  # type: ignore[arg-type]


def test_clients_and_server_count_alike() -> None:
    with running(requests=2, workers=1) as server:
        port = int(server.address.rpartition(":")[2])
        one = asyncio.run(_load(port, 1, 0.5))
        many = asyncio.run(_load(port, 6, 0.5))
        text = server.client.get("/metrics").text
    assert one.answers > 0
    assert one.errors == 0
    assert 0 < one.p50 <= one.p95 <= one.p99 < 1
    assert many.errors > 0  # more than two at a time are refused
    counts = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[0] != "#"}
    answered = counts['parsecaps_requests_total{method="POST",route="/api/predict",status="200"}']
    refused = counts['parsecaps_requests_total{method="POST",route="/api/predict",status="503"}']
    assert (answered, refused) == (one.answers + many.answers, many.errors)


def test_bars() -> None:
    bare = BareModel(100.0, 32, 2, 1, 0.02)
    good = Serving(bare, bare, 0.1, "PyTorch", load(clients=1, p50=0.06), load(), 10**9, 10**9)
    assert good.share == pytest.approx(0.9)
    assert [met for *_, met in good.bars()] == [True] * 4
    exported = BareModel(200.0, 32, 2, 1, 0.01)
    by_onnx = Serving(bare, exported, 0.1, "ONNX Runtime 1", load(clients=1, p50=0.06), load(), 10**9, 10**9)
    assert (by_onnx.share, by_onnx.torch_share) == pytest.approx((0.45, 0.9))
    assert "served: 90% of the bare model in PyTorch" in by_onnx.lines()
    bad = Serving(bare, None, 0.1, "PyTorch", load(clients=1, p50=0.04), load(answers=700, errors=1), 10**9, 11 * 10**8)
    assert [met for *_, met in bad.bars()] == [False] * 4
    assert bad.as_dict()["growth"] == pytest.approx(0.1)
    assert serving_table([good.one, good.many]).row_count == 2
