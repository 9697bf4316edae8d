"""Training: the objective as a list of terms, the loop, and the choice of what is `auto`."""

from parsecaps.system.signals import TerminatedError
from parsecaps.training.callbacks import Callbacks, DivergedError, Progress
from parsecaps.training.objective import Objective
from parsecaps.training.terms import TERMS, Loss, Term, TermContext

__all__ = [
    "TERMS",
    "Callbacks",
    "DivergedError",
    "Loss",
    "Objective",
    "Progress",
    "Term",
    "TermContext",
    "TerminatedError",
]
