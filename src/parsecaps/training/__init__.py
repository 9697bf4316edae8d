"""Training: the objective as a list of terms, the loop, and the choice of what is `auto`."""

from parsecaps.system.signals import TerminatedError
from parsecaps.training.callbacks import Callbacks, Progress
from parsecaps.training.loop import DivergedError
from parsecaps.training.objective import TERMS, Objective
from parsecaps.training.terms import Loss, Term, TermContext

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
