"""The weight file of the trunk is what its script makes."""

import hashlib

from parsecaps.nn import TRUNKS
from studies.trunk_weights import trunk_tensors


def test_the_file_can_be_made_again() -> None:
    weights = TRUNKS["lite0"].weights
    assert weights is not None
    assert hashlib.sha256(trunk_tensors()).hexdigest() == weights.sha256
