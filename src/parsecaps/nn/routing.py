"""Sparse axial attention routing: the parents from their children (Sec. 3.2.2, Alg. 1)."""

from torch import Tensor, nn

from parsecaps.functional.squash import SquashForm
from parsecaps.nn.axial import AxialAttention
from parsecaps.nn.normalisation import CapsuleBatchNorm, Normalisation, capsule_norm
from parsecaps.nn.pconv import PConvCaps
from parsecaps.nn.sparse import Choice, SparseAttention


class SAARouting(nn.Module):
    """`U_{l+1} = U_s + U_a`, both asked by the prediction of PConvCaps, both made of nothing but coupled children.

    The branches do not depend on each other. `content=False` is for measuring what the choice by content is worth:
    no prediction, keys or queries, only what the priors say. `axial=False` leaves the sparse branch alone.
    `paper_logits` computes the logits as printed, from raw queries and keys.

    Shapes:
        - input: U_l (B, n, in_dim)
        - output: U_{l+1} (B, n', out_dim)
    """

    def __init__(
        self,
        *,
        width: int,
        in_dim: int,
        out_dim: int,
        stride: int,
        heads: int,
        radius: int | None,
        whole_values: bool,
        locality: bool,
        jitter: float,
        content: bool,
        paper_logits: bool,
        axial: bool,
        over: Choice,
        alpha: float,
        learn_alpha: bool,
        squash_form: SquashForm,
        normalisation: Normalisation,
    ) -> None:
        super().__init__()
        self.content = content
        if content:
            self.predict = PConvCaps(
                width=width,
                in_dim=in_dim,
                out_dim=out_dim,
                stride=stride,
                normalisation=normalisation,
                bias=paper_logits or normalisation != "batch",
            )
            self.query_norm = nn.Identity() if paper_logits else _asking(normalisation, out_dim)
        self.sparse = SparseAttention(
            width=width,
            in_dim=in_dim,
            out_dim=out_dim,
            stride=stride,
            heads=heads,
            radius=radius,
            whole_values=whole_values,
            locality=locality,
            jitter=jitter,
            content=content,
            paper_logits=paper_logits,
            over=over,
            alpha=alpha,
            learn_alpha=learn_alpha,
            squash_form=squash_form,
            normalisation=normalisation,
        )
        self.axial = (
            AxialAttention(
                width=width,
                in_dim=in_dim,
                out_dim=out_dim,
                stride=stride,
                content=content,
                paper_logits=paper_logits,
                alpha=alpha,
                learn_alpha=learn_alpha,
                squash_form=squash_form,
            )
            if axial
            else None
        )

    def forward(self, u: Tensor) -> Tensor:
        q = self.query_norm(self.predict(u)) if self.content else None
        parents: Tensor = self.sparse(u, q)
        return parents if self.axial is None else parents + self.axial(u, q)


def _asking(normalisation: Normalisation, dim: int) -> CapsuleBatchNorm | nn.LayerNorm:
    """The normalisation of queries, which starts with all parents asking for nearly the same.

    So a child is first chosen by what it holds, and what parents want of it comes to differ as they learn. Where
    queries differ from the start, couplings are random choices, from which the network learns less (`docs/study.md`).
    """
    norm = capsule_norm(normalisation, dim)
    nn.init.normal_(norm.bias)
    nn.init.constant_(norm.weight, 0.3)
    return norm
