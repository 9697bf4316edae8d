"""The capsule cell, repeated eight times (Sec. 3.1), and the routings that it can have."""

from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

from parsecaps.nn.capsules import CapsuleLayer, capsule_norm
from parsecaps.nn.dynamic import DynamicRouting
from parsecaps.nn.routing import OwnCapsule, Routing, RoutingConfig, Way
from parsecaps.nn.saa import SAARouting

ROUTINGS: dict[str, type[Routing]] = {"saa": SAARouting, "dynamic": DynamicRouting}

_OF_EVERY_CELL = frozenset({"routing", "heads", "radius", "squash_form", "normalisation"})


class CapsuleCell(CapsuleLayer):
    """A routing, then an MLP within each capsule.

    A cell of stride 2 makes fewer, longer parents, out of nothing but its couplings. A cell of stride 1 adds what it
    routes to what was there, so a capsule is its own first child; the paper says nothing of residual paths
    (deviation, `docs/paper.md`). The MLP never mixes capsules.

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
        config: RoutingConfig,
    ) -> None:
        super().__init__()
        if stride == 1 and in_dim != out_dim:
            raise ValueError(f"a cell that keeps the grid keeps the dimension; {in_dim} and {out_dim} differ, give one")
        if config.routing not in ROUTINGS:
            near = get_close_matches(config.routing, ROUTINGS, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(ROUTINGS)}"
            raise ValueError(f"routing {config.routing!r} is unknown; {advice}")
        kind = ROUTINGS[config.routing]
        config.check_settings(_OF_EVERY_CELL | kind.uses)
        self.residual = stride == 1
        self.routing = kind(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, config=config)
        self.stay = Way("residual", chooses=False) if self.residual else None
        self.norm = capsule_norm(config.normalisation, out_dim)
        self.mlp = nn.Sequential(
            nn.Linear(out_dim, mlp_ratio * out_dim),
            nn.GELU(),
            nn.Linear(mlp_ratio * out_dim, out_dim),
            nn.Dropout(dropout),
        )

    def forward(self, u: Tensor) -> Tensor:
        parents: Tensor = self.routing(u)
        if self.stay is not None:
            parents = parents + self.stay(u, OwnCapsule(u))
        parents = self.norm(parents)
        return parents + self.mlp(parents)  # type: ignore[no-any-return]


def capsule_block(*, cells: int, width: int, in_dim: int, out_dim: int, stride: int, **cell: Any) -> nn.Sequential:
    """A block: with a stride of 2 the first cell halves the grid and lengthens the capsules; the others keep both."""
    first = CapsuleCell(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, **cell)
    width = -(-width // stride)
    rest = [CapsuleCell(width=width, in_dim=out_dim, out_dim=out_dim, stride=1, **cell) for _ in range(cells - 1)]
    return nn.Sequential(first, *rest)
