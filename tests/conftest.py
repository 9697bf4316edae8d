"""What every test shares: hypothesis profiles, a clean global state, and the way to the datasets."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from tests.messages import pytest_addoption, pytest_configure, temporary_folder

__all__ = ["pytest_addoption", "pytest_configure", "temporary_folder"]

# `fast` gives the same examples on every run, so a red test is about the change; `thorough` goes looking.
settings.register_profile(
    "fast", deadline=None, derandomize=True, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(autouse=True)
def clean_global_state() -> Iterator[None]:
    """Seed every generator before a test, and undo what the test did to torch's global switches."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    dtype = torch.get_default_dtype()
    grad = torch.is_grad_enabled()
    deterministic = torch.get_deterministic_debug_mode()
    yield
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(grad)
    if torch.get_deterministic_debug_mode() != deterministic:  # setting it loads the compiler: two seconds
        torch.set_deterministic_debug_mode(deterministic)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Prepared images go to a folder of this run, never to the user's."""
    os.environ["PARSECAPS_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session", autouse=True)
def same_threads() -> None:
    """Trainings are compared bit for bit, so each has the same number of threads, however busy the machine is."""
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with the datasets; a test that asks for it is skipped where there is none."""
    value = os.environ.get("PARSECAPS_DATA")
    if not value:
        pytest.skip("set PARSECAPS_DATA to the folder with the datasets to run this test")
    root = Path(value)
    if not root.is_dir():
        pytest.fail(f"PARSECAPS_DATA={value} is not a folder")
    return root
