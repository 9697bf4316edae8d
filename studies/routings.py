"""Routings that only studies need, registered from outside; `PLACE` and `SPARSE_ALONE` choose them as settings.

`PLACE` lets couplings follow from place alone: what a choice by content is worth is what a network loses without it.
`SPARSE_ALONE` leaves out the axial branch. A run trained with one of them can be loaded where this module is imported.
`PAPER_CELL` is the routing as the paper prints it, in our cell.
"""

from typing import Any

from torch import Tensor

from parsecaps.nn import ROUTINGS, RoutingConfig, SAARouting


class PlaceRouting(SAARouting):
    """SAA routing whose parents ask for nothing: all queries are 0, so the priors alone are the logits.

    Its keys get no gradient and have no part in the answer.

    Shapes:
        - input: U_l (B, n, in_dim)
        - output: U_{l+1} (B, n', out_dim)
    """

    takes_context = False

    def __init__(self, *, width: int, in_dim: int, out_dim: int, stride: int, config: RoutingConfig) -> None:
        super().__init__(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, config=config)
        self.asked = ((-(-width // stride)) ** 2, out_dim)
        del self.predict, self.query_norm

    def forward(self, u: Tensor) -> Tensor:
        nothing = u.new_zeros(len(u), *self.asked)
        parents: Tensor = self.sparse(u, nothing) + self.axial(u, nothing)
        return parents


class SparseRouting(SAARouting):
    """The sparse branch of SAA routing, alone.

    Shapes:
        - input: U_l (B, n, in_dim)
        - output: U_{l+1} (B, n', out_dim)
    """

    def __init__(self, *, width: int, in_dim: int, out_dim: int, stride: int, config: RoutingConfig) -> None:
        super().__init__(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, config=config)
        del self.axial

    def forward(self, u: Tensor) -> Tensor:
        parents: Tensor = self.sparse(u, self.query_norm(self.predict(u)))
        return parents


ROUTINGS["place"] = PlaceRouting
ROUTINGS["sparse"] = SparseRouting
PLACE: dict[str, Any] = {"routing": "place"}
SPARSE_ALONE: dict[str, Any] = {"routing": "sparse"}
PAPER_CELL: dict[str, Any] = {
    "heads": [1, 1, 1],
    "radius": [-1, -1, -1],
    "locality": False,
    "paper_logits": True,
    "normalisation": "layer",
    "squash_form": "quadratic",
}
