"""What a model learns from: the objective, which joins the losses of Sec. 3.3."""

from parsecaps.training.objective import Losses, Objective

__all__ = ["Losses", "Objective"]
