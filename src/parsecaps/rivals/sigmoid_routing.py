"""Routing without competition: each parent takes as much of a child as agrees with it, whatever the others take."""

from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.nn.capsules import Votes
from parsecaps.nn.couplings import Coupling
from parsecaps.rivals.class_routing import ClassRoutingConfig, CoupledVotes, DynamicClassRouting


class SigmoidCoupling(Coupling):
    """A sigmoid in place of alpha-entmax: couplings of a child lie in (0, 1) and need not add up to 1."""

    def forward(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()


class SigmoidClassRouting(DynamicClassRouting):
    """Routing by agreement with `c = sigmoid(b)`, as in X-Caps and Proto-Caps, whose capsules are attributes.

    Gradients flow through the last sum alone and not through the couplings, as in the code of Proto-Caps.

    Shapes:
        - input: votes (B, m, n, d)
        - output: capsules (B, m, d)
        - couplings: (B, 1, m, n)
    """

    def __init__(self, config: ClassRoutingConfig) -> None:
        super().__init__(config)
        self.coupling = SigmoidCoupling(branch="agreement", dim=-2, alpha=1.0)

    def forward(self, u_hat: Tensor) -> Tensor:
        fixed = u_hat.detach()
        b = fixed[..., 0] * 0
        for _ in range(self.iterations - 1):
            v = squash(self._sum(b.sigmoid(), fixed), self.squash_form)
            b = b + self._agreement(fixed, v)
        c = self.coupling(b.unsqueeze(1)).squeeze(1)  # (B, m, n)
        return squash(self.way(self._sum(c, u_hat), CoupledVotes(u_hat, c)), self.squash_form)


class AttributeCapsules(nn.Module):
    """A capsule for each attribute: a vote of every primary capsule, and routing without competition.

    Votes start at a tenth of the size that is usual for classes, since couplings do not add up to 1.

    Shapes:
        - input: (B, capsules, in_dim)
        - output: (B, m, dim)
    """

    def __init__(self, *, in_dim: int, config: ClassRoutingConfig) -> None:
        super().__init__()
        self.votes = Votes(capsules=config.capsules, in_dim=in_dim, parents=config.classes, out_dim=config.dim)
        self.votes.weight.data.mul_(0.1)
        self.routing = SigmoidClassRouting(config)

    def forward(self, u: Tensor) -> Tensor:
        capsules: Tensor = self.routing(self.votes(u))
        return capsules
