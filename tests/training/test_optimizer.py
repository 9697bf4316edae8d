"""Orthogonal steps for linear maps, AdamW for the rest."""

import pytest
import torch
from torch import nn

from parsecaps.models import ParseCaps
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
