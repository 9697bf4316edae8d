"""Quantus, a library of measures of explanations, as a second opinion; without it such tests are skipped."""

import warnings
from typing import Any

import pytest


def quantus() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("quantus")
