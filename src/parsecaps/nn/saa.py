"""Sparse axial attention routing: the parents from their children (Sec. 3.2.2, Alg. 1)."""

from torch import Tensor, nn

from parsecaps.nn.axial import AxialAttention
from parsecaps.nn.normalisation import CapsuleBatchNorm, Normalisation, capsule_norm
from parsecaps.nn.pconv import PConvCaps
from parsecaps.nn.routing import Routing, RoutingConfig
from parsecaps.nn.sparse import SparseAttention


class SAARouting(Routing):
    """`U_{l+1} = U_s + U_a`, both asked by the prediction of PConvCaps, both made of nothing but coupled children.

    The branches do not depend on each other. `paper_logits` computes the logits as printed, from raw queries and keys.

    Shapes:
        - input: U_l (B, n, in_dim)
        - output: U_{l+1} (B, n', out_dim)
    """

    uses = frozenset({"whole_values", "alpha", "learn_alpha", "over", "locality", "jitter", "paper_logits"})

    def __init__(self, *, width: int, in_dim: int, out_dim: int, stride: int, config: RoutingConfig) -> None:
        super().__init__(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, config=config)
        self.predict = PConvCaps(
            width=width,
            in_dim=in_dim,
            out_dim=out_dim,
            stride=stride,
            normalisation=config.normalisation,
            bias=config.paper_logits or config.normalisation != "batch",
        )
        self.query_norm = nn.Identity() if config.paper_logits else _query_norm(config.normalisation, out_dim)
        self.sparse = SparseAttention(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, config=config)
        self.axial = AxialAttention(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, config=config)

    def forward(self, u: Tensor) -> Tensor:
        q = self.query_norm(self.predict(u))
        parents: Tensor = self.sparse(u, q) + self.axial(u, q)
        return parents


def _query_norm(normalisation: Normalisation, dim: int) -> CapsuleBatchNorm | nn.LayerNorm:
    """The normalisation of queries, which starts with all parents asking for nearly the same.

    So a child is first chosen by what it holds, and what parents want of it comes to differ as they learn. Where
    queries differ from the start, couplings are random choices, from which the network learns less (`docs/study.md`).
    """
    norm = capsule_norm(normalisation, dim)
    nn.init.normal_(norm.bias)
    nn.init.constant_(norm.weight, 0.3)
    return norm
