"""Measures of lesions as a further target of training: off unless `training.measure_weight` is set.

Not in the paper. A linear head on the top capsules tells where the lesion lies, how large and how bright it is, and the
rest of `data.measures`. It is thrown away after training: what is left are top capsules that know these, and nothing
that sees a mask.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.models import ParseCaps
from studies.tumour_measures import MEASURES


class MeasureGuide(nn.Module):
    """A linear head on the top capsules, which it hears of whenever the model runs.

    Shapes:
        - measures: (B, 29), NaN in the rows of images of which nothing is known
        - output: (), squared error, mean over the measures and over the images that have them
    """

    def __init__(self, model: ParseCaps) -> None:
        super().__init__()
        self.head = nn.Linear(model.widths[-1] ** 2 * model.config["dims"][-1], len(MEASURES))
        nn.init.normal_(self.head.weight, std=0.01)
        self._heard: list[Tensor] = []
        model.norm.register_forward_hook(lambda module, given, capsules: self._hear(capsules))

    def forward(self, measures: Tensor) -> Tensor:
        known = ~measures.isnan().any(1)
        (capsules,) = self._heard
        said = self.head(capsules.flatten(1)).float()
        cost = F.mse_loss(said, measures.nan_to_num(), reduction="none").mean(1)
        self._heard = []
        return torch.where(known, cost, 0).sum() / known.sum().clamp(min=1)

    def _hear(self, capsules: Tensor) -> None:
        self._heard = [capsules]
