"""A share of the patients, for the learning curve: whole patients, of every class."""

import pytest
import torch

from studies.cell_study import PLAIN, VARIANTS, build, some_patients
from studies.cemri_slices import Slices


def slices() -> Slices:
    patients = [f"p{i // 4}" for i in range(96)]  # 24 patients of 4 slices, 8 of each class
    label = torch.tensor([i // 4 % 3 for i in range(96)])
    return Slices(torch.zeros(96, 1, 2, 2), label, torch.ones(96, dtype=torch.long), patients)


def test_a_share_has_whole_patients_of_every_class() -> None:
    data, rows = slices(), torch.arange(0, 80)  # 20 patients
    half = some_patients(data, rows, 0.5, seed=0)
    chosen = {data.patient[row] for row in half.tolist()}
    assert len(half) == 4 * len(chosen)
    assert [sum(int(name[1:]) % 3 == label for name in chosen) for label in range(3)] == [4, 4, 3]
    assert set(half.tolist()) < set(rows.tolist())
    assert not torch.equal(half, some_patients(data, rows, 0.5, seed=1))
    assert torch.equal(some_patients(data, rows, 1.0, seed=0), rows)


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5])
def test_a_share_is_between_nothing_and_all(share: float) -> None:
    with pytest.raises(ValueError, match=r"give a number above 0, up to 1"):
        some_patients(slices(), torch.arange(96), share, seed=0)


@pytest.mark.parametrize("variant", [*PLAIN, *VARIANTS])
def test_every_variant_builds(variant: str) -> None:
    assert build(variant, 112, {}).num_classes == 3
