"""What a routing costs is counted right, and times become the ratios that are asked for."""

import json

import pytest
import torch

from benchmarks.routing import cost_table, lines, time_table
from parsecaps.paper.routing_speed import (
    RoutingSpeed,
    RoutingTime,
    build_networks,
    children,
    count_cost,
    count_multiply_adds,
    measure_memory,
    measure_routings,
)
from parsecaps.paper.timing import Effort
from tests.messages import message

N, C, K, D, T, P = 1152, 8, 10, 16, 32, 36
VOTES = N * C * K * D
# by hand: every product of two matrices, none written as products of elements
EXPECTED = {
    "dynamic": VOTES + 4 * K * N * D,  # two agreements and two sums; the first sum has no couplings
    "attention": VOTES + K * T * D * T + K * T * D + K * D * D,
    "self-attention": VOTES + 2 * K * N * D,  # how far each vote agrees with the sum of all, and the sum
    "saa": (
        K * P * T * C  # what the kernels collect
        + K * T * C * D  # the prediction
        + (K * D * C + K * C * N)  # the query brought to the children, and the logits
        + (K * N * C + K * C * D)  # what is chosen, and its values
        + (K * T * C * D + D * K * D)  # axial keys, and the logits
        + (K * T * C * D + K * D * D)  # axial values, and their mixture
    ),
}


def test_multiply_adds_are_those_counted_by_hand() -> None:
    convolutions = 14 * 14 * 9 * 256 + P * 81 * 256 * 256
    for name, network in build_networks().items():
        cost = count_cost(name, network)
        assert cost.multiply_adds == EXPECTED[name], name
        assert cost.network_multiply_adds == convolutions + EXPECTED[name], name
    assert EXPECTED["dynamic"] > 5 * EXPECTED["saa"]
    assert EXPECTED["attention"] > 4 * EXPECTED["saa"]


def test_counting_changes_nothing_and_is_for_one_image() -> None:
    network = build_networks("tiny")["saa"].train()
    one, two = (count_multiply_adds(network.classes, children(network, size)) for size in (1, 2))
    assert two == 2 * one
    assert network.classes.training


def test_couplings_of_the_children_that_are_timed_are_uneven() -> None:
    network = build_networks("tiny")["saa"].eval()
    found = []
    network.classes.coupling.register_forward_hook(lambda module, given, c: found.append(c))
    network.classes(children(network, 4))
    assert (found[0] == 0).float().mean() > 0.1


def test_all_is_measured_in_one_run() -> None:
    effort = Effort(rounds=1, seconds=0.0, turn=0.0)
    speed = measure_routings(effort, batch_sizes=(1, 2), memory=False, preset="tiny")
    whole = [time for time in speed.times if not time.part]
    assert len(whole) == 4 * 2 * 3 * 2  # routings, scopes, phases, batch sizes
    assert {time.part for time in speed.times} == {"", "without votes"}
    assert all(time.best > 0 for time in speed.times)
    document = json.loads(json.dumps(speed.as_dict()))
    assert len(document["ratios"]) == 3 * 2 * 3 * 2
    assert speed.threads == torch.get_num_threads()
    assert cost_table(speed).row_count == 4
    assert time_table(speed, "routing").row_count == 6
    assert time_table(speed, "network").row_count == 4


def test_ratios_and_bars() -> None:
    seconds = {"saa": 0.1, "dynamic": 0.31, "attention": 0.13}
    times = tuple(
        RoutingTime(name, "", "routing", phase, 1, each, 2 * each if name == "saa" else each)
        for name, each in seconds.items()
        for phase in ("forward", "training")
    )
    times += tuple(RoutingTime(name, "", "network", "forward", 1, 1.0, 1.0) for name in seconds)
    speed = RoutingSpeed(1, (), times)
    assert speed.ratio("dynamic", "routing", "forward", 1) == pytest.approx(3.1)
    assert speed.ratio("dynamic", "routing", "forward", 1, medians=True) == pytest.approx(1.55)
    message(*lines(speed))


def test_memory_of_a_step_is_of_a_process_of_its_own() -> None:
    assert measure_memory("dynamic", 512, "tiny") > measure_memory("saa", 512, "tiny")
