"""Orthogonal steps for linear maps, AdamW for the rest."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from parsecaps.config import OptimizerName
from parsecaps.models import ParseCaps, all_models
from parsecaps.training.optimizer import Muon, Schedule, linear_maps, orthogonal


def with_gradients(module: nn.Module, seed: int) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    for weight in module.parameters():
        weight.grad = torch.randn(weight.shape, generator=generator)
    return module


@pytest.mark.parametrize("shape", [(3, 8, 8), (2, 64, 36), (1, 8, 128), (4, 32, 288)])
def test_orthogonal_keeps_the_directions_and_evens_their_lengths(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(matrices, full_matrices=False)
    inside = u.mT @ orthogonal(matrices) @ v.mT  # diagonal, if the singular vectors are those of the matrix
    lengths = inside.diagonal(dim1=-2, dim2=-1)
    assert (inside - torch.diag_embed(lengths)).abs().max() < 1e-4
    assert 0.3 < lengths.min() <= lengths.max() < 1.25


def test_nothing_moves_where_the_gradient_is_zero() -> None:
    assert orthogonal(torch.zeros(2, 8, 16)).abs().max() == 0


def test_a_linear_map_learns_as_with_the_muon_of_torch() -> None:
    """Which works in bfloat16, so to the size of a step only."""
    ours, theirs = nn.Linear(16, 32, bias=False), nn.Linear(16, 32, bias=False)
    theirs.load_state_dict(ours.state_dict())
    start = ours.weight.detach().clone()
    optimizer = Schedule(epochs=1, optimizer="muon", learning_rate=0.01, weight_decay=0.1).build_optimizer(ours)
    reference = torch.optim.Muon(theirs.parameters(), lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for seed in range(3):
        with_gradients(ours, seed)
        with_gradients(theirs, seed)
        optimizer.step()
        reference.step()
    torch.testing.assert_close(ours.weight - start, theirs.weight - start, atol=5e-4, rtol=0.02)


def test_all_but_linear_maps_learn_by_adamw() -> None:
    model = ParseCaps.from_preset("tiny", num_classes=3, num_concepts=2)
    other = ParseCaps.from_preset("tiny", num_classes=3, num_concepts=2)
    other.load_state_dict(model.state_dict())
    maps = {id(weight) for weight in linear_maps(model)}
    for seed in range(2):
        for network, name in ((model, "muon"), (other, "adamw")):
            with_gradients(network, seed)
            Schedule(epochs=1, optimizer=name).build_optimizer(network).step()  # type: ignore[arg-type]
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two) == (id(one) not in maps), name


def test_depthwise_filters_priors_and_small_heads_are_no_linear_maps() -> None:
    model = ParseCaps.from_preset("medical", num_classes=3, num_concepts=2, image_size=64)
    maps = {id(weight) for weight in linear_maps(model)}
    names = [name for name, weight in model.named_parameters() if id(weight) in maps]
    assert not [name for name in names if "depthwise" in name or "prior" in name or "readout" in name]
    assert "initial.layers.0.weight" in names
    assert sum("routing.sparse.value" in name for name in names) == 8


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_biases_scales_and_priors_are_not_decayed_whatever_their_shape(optimizer: OptimizerName) -> None:
    model = ParseCaps.from_preset("medical", num_classes=3, num_concepts=2, image_size=64)
    names = {id(weight): name.rpartition(".")[2] for name, weight in model.named_parameters()}
    decayed: dict[bool, set[str]] = {True: set(), False: set()}
    for group in Schedule(epochs=1, optimizer=optimizer).build_optimizer(model).param_groups:
        for weight in group["params"]:
            name, flat = names[id(weight)], weight.dim() < 2
            decayed[group["weight_decay"] > 0].add(f"{name} (one number each)" if flat and name == "weight" else name)
    assert decayed[True] == {"weight", "to_global", "over_dim", "over_capsules"}
    assert decayed[False] == {
        "bias",
        "weight (one number each)",  # of normalisations
        "prior",
        "spot",
        "log_sharpness",
        "temperature",
        "scale",
    }


def test_what_is_not_decayed_of_each_network() -> None:
    """Of tensors with two dimensions or more, by the class of their layer."""
    found: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for cls in all_models().values():
        heads = ("parallel", "bottleneck") if "head" in cls.settings() else ("",)
        for head in heads:
            changes: dict[str, Any] = {"num_concepts": 3 if cls.names_concepts else 0} | (
                {"head": head} if head else {}
            )
            model = cls.from_preset("tiny", num_classes=2, **changes)
            names = {id(weight): name for name, weight in model.named_parameters()}
            for group in Schedule(epochs=1).build_optimizer(model).param_groups:
                for weight in group["params"]:
                    if weight.dim() > 1:
                        layer, _, last = names[id(weight)].rpartition(".")
                        named = type(model.get_submodule(layer)).__name__, last
                        found[group["weight_decay"] > 0].add(named)
    assert {each for each in found[False] if each[1] != "bias"} == {
        ("AxialAttention", "prior"),
        ("LocalityPrior", "spot"),
        ("OrthogonalAttention", "scale"),
        ("Prototypes", "weight"),
        ("SAAClassCaps", "axial_prior"),
    }
    assert not found[True] & found[False]
    assert not [each for each in found[True] if each[1] == "bias"]
    assert {("Votes", "weight"), ("Bottleneck", "weight"), ("OrthogonalAttention", "turn")} <= found[True]


def test_the_momentum_is_a_part_of_the_state() -> None:
    """A resumed run reads it from the checkpoint: `test_resume.py` compares the last bit of such runs."""
    whole, first, second = (nn.Linear(8, 8) for _ in range(3))
    first.load_state_dict(whole.state_dict())
    schedule = Schedule(epochs=1, optimizer="muon")
    optimizer, before = schedule.build_optimizer(whole), schedule.build_optimizer(first)
    assert isinstance(optimizer, Muon)
    for seed in range(4):
        with_gradients(whole, seed)
        optimizer.step()
    for seed in range(2):
        with_gradients(first, seed)
        before.step()
    second.load_state_dict(first.state_dict())
    after = schedule.build_optimizer(second)
    after.load_state_dict(before.state_dict())
    for seed in range(2, 4):
        with_gradients(second, seed)
        after.step()
    assert torch.equal(whole.weight, second.weight)
    assert torch.equal(whole.bias, second.bias)


@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_what_was_taken_from_other_weights_has_groups_of_its_own(name: OptimizerName) -> None:
    model = ParseCaps.from_preset("tiny", num_classes=3, num_concepts=2)
    taken = {each for each, _ in model.named_parameters() if not each.startswith(("classes.", "concepts."))}
    names = {id(weight): each for each, weight in model.named_parameters()}
    whole = Schedule(epochs=1, optimizer=name).build_optimizer(model, taken)
    assert not any("factor" in group for group in whole.param_groups)
    split = Schedule(epochs=1, optimizer=name, start_rate=0.1).build_optimizer(model, taken)
    slow, listed = set(), []
    for group in split.param_groups:
        here = [names[id(weight)] for weight in group["params"]]
        listed += here
        if group.get("factor", 1.0) != 1:
            assert group["factor"] == 0.1
            slow |= set(here)
    assert slow == taken
    assert sorted(listed) == sorted(names.values())  # each once
    kept = ("weight_decay", "orthogonal")
    before, after = (
        {
            names[id(weight)]: [group.get(key) for key in kept]
            for group in each.param_groups
            for weight in group["params"]
        }
        for each in (whole, split)
    )
    assert before == after
    nothing = Schedule(epochs=1, optimizer=name, start_rate=0.1).build_optimizer(model)
    assert len(nothing.param_groups) == len(whole.param_groups)


@pytest.mark.parametrize("rate", [0.0, 0.25])
@pytest.mark.parametrize("name", ["muon", "adamw"])
def test_a_step_of_what_was_taken_is_as_much_smaller(name: OptimizerName, rate: float) -> None:
    """The loop gives each group its rate; of both kinds of steps, and of the decay, a share is taken."""
    moved = []
    for start_rate in (1.0, rate):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
        before = [weight.detach().clone() for weight in module.parameters()]
        schedule = Schedule(epochs=1, optimizer=name, learning_rate=0.01, weight_decay=0.1, start_rate=start_rate)
        optimizer = schedule.build_optimizer(module, {"0.weight", "0.bias"})
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * group.get("factor", 1.0)
        with_gradients(module, 1)
        optimizer.step()
        moved.append([after.detach() - then for after, then in zip(module.parameters(), before, strict=True)])
    for one, other in zip(moved[0][:2], moved[1][:2], strict=True):
        torch.testing.assert_close(other, rate * one, rtol=1e-3, atol=1e-7)
    for one, other in zip(moved[0][2:], moved[1][2:], strict=True):
        torch.testing.assert_close(other, one)


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("adam", lambda weights: torch.optim.Adam(weights, lr=0.01)),
        ("sgd", lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9)),
        ("rmsprop", lambda weights: torch.optim.RMSprop(weights, lr=0.01, alpha=0.9)),
    ],
)
def test_the_optimizers_of_older_networks(name: OptimizerName, reference: Callable[..., torch.optim.Optimizer]) -> None:
    ours, theirs = nn.Linear(16, 32), nn.Linear(16, 32)
    theirs.load_state_dict(ours.state_dict())
    optimizer = Schedule(epochs=1, optimizer=name, learning_rate=0.01, weight_decay=0.0).build_optimizer(ours)
    other = reference(theirs.parameters())
    for seed in range(3):
        with_gradients(ours, seed)
        with_gradients(theirs, seed)
        optimizer.step()
        other.step()
    torch.testing.assert_close(ours.weight, theirs.weight)
    torch.testing.assert_close(ours.bias, theirs.bias)


def test_the_decay_of_older_optimizers_is_of_weights_alone() -> None:
    module = nn.Linear(4, 4)
    before = [weight.detach().clone() for weight in module.parameters()]
    for weight in module.parameters():
        weight.grad = torch.zeros_like(weight)
    Schedule(epochs=1, optimizer="sgd", learning_rate=0.1, weight_decay=0.5).build_optimizer(module).step()
    torch.testing.assert_close(module.weight.detach(), 0.95 * before[0])
    assert torch.equal(module.bias.detach(), before[1])


def test_steps_of_the_learning_rate() -> None:
    schedule = Schedule(
        epochs=8, learning_rate=1.0, warm_up_epochs=0, schedule="steps", decay=0.5, decay_epochs=1.5, lowest_rate=0.2
    )
    rates = [schedule.rate(step, steps_per_epoch=2) for step in range(16)]
    assert rates == [1.0] * 3 + [0.5] * 3 + [0.25] * 3 + [0.2] * 7


def test_steps_come_on_time_whatever_the_rounding() -> None:
    schedule = Schedule(epochs=100, learning_rate=1.0, warm_up_epochs=0, schedule="steps", decay=0.1, decay_epochs=0.1)
    assert schedule.rate(3, steps_per_epoch=10) == pytest.approx(1e-3)


def test_the_warm_up_comes_before_steps_too() -> None:
    schedule = Schedule(epochs=8, learning_rate=1.0, warm_up_epochs=1, schedule="steps", decay=0.5, decay_epochs=4)
    assert [schedule.rate(step, 4) for step in (0, 1, 3, 4, 15, 16)] == [0.25, 0.5, 1.0, 1.0, 1.0, 0.5]


def test_a_cosine_ends_at_the_lowest_rate() -> None:
    schedule = Schedule(epochs=10, learning_rate=1.0, warm_up_epochs=0, lowest_rate=0.1)
    rates = [schedule.rate(step, 5) for step in range(50)]
    assert rates[-1] == 0.1
    assert rates == sorted(rates, reverse=True)
