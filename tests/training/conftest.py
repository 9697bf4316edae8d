"""Small trainings that the tests of this room share; no test may change their files."""

import pytest

from parsecaps.config import load_config
from parsecaps.run import Run
from parsecaps.training import Callbacks
from parsecaps.training.fit import fit
from tests.training.make import PHANTOM


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Trained for two epochs, and scored."""
    return fit(load_config(None, PHANTOM), run_folder=tmp_path_factory.mktemp("fit") / "run", callbacks=Callbacks())


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run to start others from: coloured pictures with 7 concepts, one epoch."""
    settings = {"model.preset": "tiny", "training.epochs": 1, "training.batch_size": 8}
    folder = tmp_path_factory.mktemp("start") / "source"
    return fit("phantom:n=60,size=32", settings=settings, run_folder=folder, callbacks=Callbacks())
