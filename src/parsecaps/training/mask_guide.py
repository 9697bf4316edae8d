"""Masks as a further target of training, for the network of the paper: off unless `training.mask_weight` is set.

Not in the paper. At each place of the first two blocks a linear head says how much of it belongs to the lesion. The
heads are thrown away after training: what is left are capsules that know lesions, and nothing that sees a mask.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.models import ParseCaps

_BLOCKS = 2


class MaskGuide(nn.Module):
    """Heads on the capsules of the first two blocks, which it hears of whenever the model runs.

    Shapes:
        - mask: (B, size, size), how much of each pixel the mask covers, NaN where there is none
        - output: (), mean binary cross-entropy over the places of each grid, the images that have a mask, and the grids
    """

    def __init__(self, model: ParseCaps) -> None:
        super().__init__()
        dims = model.config["dims"][1 : _BLOCKS + 1]
        self.heads = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 1)) for dim in dims)
        self._heard: dict[int, Tensor] = {}
        for i, block in enumerate(list(model.blocks)[:_BLOCKS]):
            block.register_forward_hook(lambda module, given, capsules, i=i: self._heard.__setitem__(i, capsules))

    def forward(self, mask: Tensor) -> Tensor:
        known = ~mask.isnan().flatten(1).any(1)
        total = mask.new_zeros(())
        for i, head in enumerate(self.heads):
            capsules = self._heard.pop(i)
            width = round(capsules.shape[1] ** 0.5)
            covered = F.adaptive_avg_pool2d(mask.nan_to_num().unsqueeze(1), width).flatten(1)
            said = head(capsules).squeeze(-1).float()
            cost = F.binary_cross_entropy_with_logits(said, covered, reduction="none").mean(1)
            total = total + torch.where(known, cost, 0).sum() / known.sum().clamp(min=1)
        return total / len(self.heads)
