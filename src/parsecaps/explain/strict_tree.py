"""A strict tree: each child keeps its single strongest parent (the paper's first stated limitation, Sec. 5)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.nn.couplings import Coupling


def strict_tree(module: Coupling, c: Tensor) -> Tensor:
    """The rule, for `replace_couplings`, by which each child keeps the parent that chose it most, over all heads.

    What is left sums to 1 again: over a parent's children, or over a child's parents with `over="parents"`. A parent
    that no child keeps in some head gets nothing in it. Where the grid stays as it is, a capsule already stays at its
    own place, and that is its parent. The axial branch couples instantiation parameters, not children, and stays as it
    is; its mean children are each parent's own.

    >>> c = torch.tensor([[[[0.7, 0.3, 0.0], [0.0, 0.4, 0.6]]]])  # one head, two parents, three children
    >>> strict_tree(Coupling(branch="sparse", dim=-1, alpha=1.5), c)
    tensor([[[[1.0000, 0.0000, 0.0000],
              [0.0000, 0.4000, 0.6000]]]])
    """
    if module.branch == "axial":
        return c
    dense = module.dense(c)
    num_parents, num_children = dense.shape[-2:]
    strongest = dense.sum(1).argmax(-2)  # (B, children)
    if num_parents == num_children:
        strongest = torch.arange(num_children, device=c.device).expand_as(strongest)
    only = F.one_hot(strongest, num_parents).mT.unsqueeze(1)  # (B, 1, parents, children)
    left = module.kept(dense * only)
    total = left.sum(module.dim, keepdim=True)
    return left / torch.where(total > 0, total, 1)
