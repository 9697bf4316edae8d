"""The loader beside the model, and the memory of many images."""

from benchmarks.data import measure_loading_memory, time_loading
from benchmarks.timing import Effort


def test_the_loader_is_faster_than_the_model() -> None:
    speed = time_loading("tiny", Effort(rounds=2, seconds=0.05), images=64)
    assert speed.loader > 0
    assert speed.training > 0
    assert speed.ratio == speed.loader / speed.training


def test_memory_of_a_phantom() -> None:
    memory = measure_loading_memory("phantom:n=300,size=32", 32)
    assert memory.images == 300
    assert 50e6 < memory.peak < 2e9
    assert memory.prepare_seconds > 0
