"""Primary capsules are the positions of the feature map, row by row."""

import pytest
import torch

from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm
from parsecaps.nn import PrimaryCaps


@pytest.mark.parametrize("form", ["exponential", "quadratic"])
def test_one_capsule_per_position(form: SquashForm) -> None:
    primary = PrimaryCaps(in_channels=3, dim=4, squash_form=form).eval()
    features = torch.randn(2, 3, 5, 5)
    u = primary(features)
    assert u.shape == (2, 25, 4)
    assert u.norm(dim=-1).max() < 1
    s = primary.norm(primary.project(features))
    torch.testing.assert_close(u[:, 5 * 3 + 1], squash(s[:, :, 3, 1], form))


def test_a_position_changes_its_own_capsule_alone() -> None:
    primary = PrimaryCaps(in_channels=3, dim=4, squash_form="exponential").eval()
    features = torch.randn(1, 3, 4, 4)
    other = features.clone()
    other[0, :, 2, 3] += 1
    assert (primary(features) != primary(other)).any(-1)[0].nonzero().flatten().tolist() == [2 * 4 + 3]


def test_gradients_are_finite_for_features_of_zero() -> None:
    primary = PrimaryCaps(in_channels=2, dim=3, squash_form="quadratic")
    features = torch.zeros(2, 2, 3, 3, requires_grad=True)
    primary(features).sum().backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()
