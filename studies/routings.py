"""Routings that only studies need, registered in `ROUTINGS` from outside and chosen by `model.settings.routing`.

`PLACE` lets couplings follow from place alone: what a choice by content is worth is what a network loses without it.
`SPARSE_ALONE` leaves out the axial branch.
"""

from typing import Any

from torch import Tensor

from parsecaps.nn import ROUTINGS, SAARouting


class PlaceRouting(SAARouting):
    """The routing of the paper with nobody asking: all queries are 0, so the priors alone choose the children.

    Shapes:
        - input: U_l (B, n, in_dim)
        - output: U_{l+1} (B, n', out_dim)
    """

    def forward(self, u: Tensor) -> Tensor:
        q = 0 * self.predict(u)
        parents: Tensor = self.sparse(u, q) + self.axial(u, q)
        return parents


class SparseRouting(SAARouting):
    """The sparse branch of the paper's routing alone.

    Shapes:
        - input: U_l (B, n, in_dim)
        - output: U_{l+1} (B, n', out_dim)
    """

    def forward(self, u: Tensor) -> Tensor:
        parents: Tensor = self.sparse(u, self.query_norm(self.predict(u)))
        return parents


ROUTINGS["place"] = PlaceRouting
ROUTINGS["sparse"] = SparseRouting
PLACE: dict[str, Any] = {"routing": "place"}
SPARSE_ALONE: dict[str, Any] = {"routing": "sparse"}
