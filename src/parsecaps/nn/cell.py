"""The capsule cell, repeated eight times (Sec. 3.1), and the routings that it can have."""

from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn

from parsecaps.nn.capsules import CapsuleLayer, capsule_norm
from parsecaps.nn.dynamic import DynamicRouting
from parsecaps.nn.routing import Context, OwnCapsule, Routing, RoutingConfig, Way
from parsecaps.nn.saa import SAARouting

ROUTINGS: dict[str, type[Routing]] = {"saa": SAARouting, "dynamic": DynamicRouting}

_OF_EVERY_CELL = frozenset(
    {
        *("routing", "heads", "radius", "squash_form", "normalisation"),
        *("residual", "norm_before_mlp", "mlp_residual"),
    }
)


class CapsuleCell(CapsuleLayer):
    """A routing, then an MLP within each capsule.

    A cell of stride 2 makes fewer, longer parents, by its couplings alone. A cell of stride 1 has a residual path, so a
    capsule is its own first child. The MLP never mixes capsules; it follows a normalisation and adds to its input
    (deviations, `docs/paper.md`). A cell built with a `context` lets its maps choose the children.

    Shapes:
        - input: U_l (B, w * w, in_dim), and the maps of the context (B, channels, W, W) where there is one
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
        context: Context | None = None,
    ) -> None:
        super().__init__()
        if stride == 1 and in_dim != out_dim:
            raise ValueError(f"a cell that keeps the grid keeps the dimension; {in_dim} and {out_dim} differ, give one")
        if config.routing not in ROUTINGS:
            near = get_close_matches(config.routing, ROUTINGS, n=1)
            advice = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(ROUTINGS)}"
            raise ValueError(f"routing {config.routing!r} is unknown; {advice}")
        kind = ROUTINGS[config.routing]
        for field in fields(config):
            if field.name not in _OF_EVERY_CELL | kind.uses and getattr(config, field.name) != field.default:
                raise ValueError(f"the routing {config.routing!r} has no setting {field.name!r}; leave it out")
        if context is not None and not kind.takes_context:
            raise ValueError(f"the routing {config.routing!r} cannot choose by a context; set context=none")
        self.by_context = context is not None
        more = {"context": context} if self.by_context else {}
        self.routing = kind(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, config=config, **more)
        self.keeps_grid = stride == 1
        self.residual, self.mlp_residual = self.keeps_grid and config.residual, config.mlp_residual
        self.stay = Way("residual", chooses=False) if self.residual else None
        self.norm = capsule_norm(config.normalisation, out_dim) if config.norm_before_mlp else nn.Identity()
        hidden = mlp_ratio * out_dim
        layers = nn.Linear(out_dim, hidden), nn.GELU(), nn.Linear(hidden, out_dim), nn.Dropout(dropout)
        self.mlp = nn.Sequential(*layers)

    def forward(self, u: Tensor, context: Tensor | None = None) -> Tensor:
        parents: Tensor = self.routing(u, context) if self.by_context else self.routing(u)
        if self.stay is not None:
            parents = parents + self.stay(u, OwnCapsule(u))
        parents = self.norm(parents)
        deeper: Tensor = self.mlp(parents)
        return parents + deeper if self.mlp_residual else deeper


def capsule_block(
    *,
    cells: int,
    width: int,
    in_dim: int,
    out_dim: int,
    stride: int,
    context: Context | None = None,
    by_context: int = 0,
    **cell: Any,
) -> nn.Sequential:
    """A block, whose first cell has the stride; in the first `by_context` cells the context chooses the children."""
    sizes: dict[str, Any] = {"width": width, "in_dim": in_dim, "out_dim": out_dim, "stride": stride}
    made = []
    for i in range(cells):
        made.append(CapsuleCell(**sizes, context=context if i < by_context else None, **cell))
        sizes = {"width": -(-width // stride), "in_dim": out_dim, "out_dim": out_dim, "stride": 1}
    return nn.Sequential(*made)
