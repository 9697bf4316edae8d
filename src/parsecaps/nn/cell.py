"""The capsule cell, repeated eight times (Sec. 3.1)."""

from typing import Any

from torch import Tensor, nn

from parsecaps.nn.normalisation import Normalisation, capsule_norm
from parsecaps.nn.routing import SAARouting


class CapsuleCell(nn.Module):
    """PConvCaps and SAA routing, then an MLP within each capsule.

    A cell of stride 2 makes fewer, longer parents, out of nothing but its couplings. A cell of stride 1 adds what it
    routes to what was there, so a capsule is its own first child; the paper says nothing of residual paths
    (deviation, `docs/paper.md`). The MLP never mixes capsules. `routing` holds the arguments of `SAARouting` that do
    not follow from the shapes.

    Shapes:
        - input: U_l (B, w * w, in_dim)
        - output: U_{l+1} (B, w' * w', out_dim), w' = ceil(w / stride)
    """

    def __init__(
        self,
        *,
        width: int,
        in_dim: int,
        out_dim: int,
        stride: int,
        mlp_ratio: int,
        dropout: float,
        normalisation: Normalisation,
        **routing: Any,
    ) -> None:
        super().__init__()
        if stride == 1 and in_dim != out_dim:
            raise ValueError(f"a cell that keeps the grid keeps the dimension; {in_dim} and {out_dim} differ, give one")
        self.residual = stride == 1
        self.routing = SAARouting(
            width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, normalisation=normalisation, **routing
        )
        self.norm = capsule_norm(normalisation, out_dim)
        self.mlp = nn.Sequential(
            nn.Linear(out_dim, mlp_ratio * out_dim),
            nn.GELU(),
            nn.Linear(mlp_ratio * out_dim, out_dim),
            nn.Dropout(dropout),
        )

    def forward(self, u: Tensor) -> Tensor:
        parents = self.routing(u)
        if self.residual:
            parents = parents + u
        parents = self.norm(parents)
        return parents + self.mlp(parents)  # type: ignore[no-any-return]


def capsule_block(*, cells: int, width: int, in_dim: int, out_dim: int, stride: int, **cell: Any) -> nn.Sequential:
    """A block: with a stride of 2 the first cell halves the grid and lengthens the capsules; the others keep both."""
    first = CapsuleCell(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, **cell)
    width = -(-width // stride)
    rest = [CapsuleCell(width=width, in_dim=out_dim, out_dim=out_dim, stride=1, **cell) for _ in range(cells - 1)]
    return nn.Sequential(first, *rest)
