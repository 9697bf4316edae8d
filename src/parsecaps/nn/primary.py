"""Primary capsules: the leaves of the parse tree (Sec. 3.1)."""

from einops import rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm, check_form


class PrimaryCaps(nn.Module):
    """One capsule per position of the feature map, by a pointwise convolution, normalisation and squash.

    Shapes:
        - input: (B, in_channels, w, w)
        - output: U_1 (B, w * w, dim), row by row
    """

    def __init__(self, *, in_channels: int, dim: int, squash_form: SquashForm) -> None:
        super().__init__()
        self.project = nn.Conv2d(in_channels, dim, 1, bias=False)
        self.norm = nn.BatchNorm2d(dim)
        self.squash_form = check_form(squash_form)
        nn.init.constant_(self.norm.weight, 0.5)  # capsules start neither vanishing nor saturated

    def forward(self, features: Tensor) -> Tensor:
        u = rearrange(self.norm(self.project(features)), "b d h w -> b (h w) d")
        return squash(u, self.squash_form)
