"""Prototypes of the grades of attributes: places among the capsules of an attribute, each that of a training case."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from parsecaps.nn.heads import length

NO_CASE = -1


class Prototypes(nn.Module):
    """`per_grade` vectors for each grade of each attribute (Gallee, Beer and Goetz 2023).

    Attributes may differ in how many grades they have; where one has fewer than the most, there is nothing: a
    distance of 0, `valid` being False. `case` is the row of the data set that a vector was taken from.

    Shapes:
        - input: capsules (B, m, dim)
        - output: distances (B, m, most grades, per_grade)
        - weight: (all grades, per_grade, dim); place, valid: (m, most grades); case: (all grades, per_grade) int64
    """

    place: Tensor
    valid: Tensor
    case: Tensor

    def __init__(self, *, grades: Sequence[int], per_grade: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(sum(grades), per_grade, dim))
        first = torch.tensor([0, *accumulate(grades)][:-1]).unsqueeze(1)
        number = torch.arange(max(grades))
        valid = number < torch.tensor(grades).unsqueeze(1)
        self.register_buffer("place", torch.where(valid, first + number, 0), persistent=False)
        self.register_buffer("valid", valid, persistent=False)
        self.register_buffer("case", torch.full((sum(grades), per_grade), NO_CASE))

    def forward(self, capsules: Tensor) -> Tensor:
        difference = capsules[:, :, None, None] - self.weight[self.place]
        return torch.where(self.valid.unsqueeze(-1), length(difference), 0)

    def grade(self, share: Tensor) -> Tensor:
        """The grade (B, m), counted from 0, that an attribute between 0 and 1 (B, m) is nearest to."""
        return (share * (self.valid.sum(1) - 1)).round().long()

    @torch.no_grad()
    def replace(self, found: Tensor, capsules: Tensor, case: Tensor) -> None:
        """Put capsules in the place of vectors where some were found; any other vector is of no case from now on.

        Shapes:
            - found: (m, most grades, per_grade), False outside of `valid`; capsules: the same, and dim
            - case: as found, int64
        """
        found, capsules, case = found[self.valid], capsules[self.valid], case[self.valid]
        self.weight.copy_(torch.where(found.unsqueeze(-1), capsules, self.weight))
        self.case.copy_(torch.where(found, case, NO_CASE))
