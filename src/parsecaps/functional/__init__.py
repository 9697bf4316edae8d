"""The mathematics of ParseCaps as functions: tensors in, tensors out, no state and no parameters."""

from parsecaps.functional.entmax import entmax
from parsecaps.functional.losses import (
    class_loss,
    consistency_loss,
    diversity_loss,
    margin_loss,
    presentation_loss,
    reconstruction_loss,
    triplet_loss,
)
from parsecaps.functional.squash import squash

__all__ = [
    "class_loss",
    "consistency_loss",
    "diversity_loss",
    "entmax",
    "margin_loss",
    "presentation_loss",
    "reconstruction_loss",
    "squash",
    "triplet_loss",
]
