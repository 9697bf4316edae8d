"""Do the shares of an explanation add up? What they miss of the change that they explain, over cases and targets."""

from dataclasses import dataclass

import numpy as np
import torch

from parsecaps.audit.cases import AuditCases
from parsecaps.explain.attribution_path import AttributionPath
from parsecaps.explain.trace import trace
from parsecaps.types import ProgressCallback, silent


@dataclass(frozen=True)
class Residuals:
    """What shares miss of a target's change, in the worst layer of each: a part of that change.

    `targets` are the concepts and diagnoses that were explained.
    """

    targets: int
    median: float
    percentile_95: float
    largest: float

    def sentence(self) -> str:
        """The residuals in words."""
        return (
            f"shares add up to within {self.median:.2%} of the change they explain in the median, {self.largest:.2%} "
            f"in the worst of {self.targets:,} targets"
        )


def audit_residuals(cases: AuditCases, progress: ProgressCallback = silent) -> Residuals:
    """The residuals of each target of each case of a model with a tree (`AttributionPath.residual`)."""
    progress(0, len(cases))
    found = []
    for batch, image in cases.batches():
        for one, targets in zip(torch.split(image, 1), cases.targets(batch, cases.values(image)), strict=True):
            path = AttributionPath(trace(cases.model, one))
            path.find_gradients(targets)
            found += [path.residual(target).item() for target in targets]
        progress(batch.stop, len(cases))
    median, high = np.percentile(found, [50, 95]).tolist()
    return Residuals(len(found), median, high, max(found))
