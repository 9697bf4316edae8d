"""Routings that only studies need, as settings of the network (`model.settings`).

`PLACE` lets couplings follow from place alone: what a choice by content is worth is what a network loses without it.
`SPARSE_ALONE` leaves out the axial branch.
"""

from typing import Any

PLACE: dict[str, Any] = {"content": False}
SPARSE_ALONE: dict[str, Any] = {"axial": False}
