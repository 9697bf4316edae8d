"""Other couplings in a trained run: the run's own accuracy as it is, and another one without its routes."""

from pathlib import Path

import pytest

from parsecaps.config import load_config
from parsecaps.run import Run, fit
from parsecaps.training.callbacks import Callbacks
from studies.run_routes import measure_run
from tests.training.make import PHANTOM


def trained(folder: Path, *settings: str) -> Run:
    return fit(load_config(None, [*PHANTOM, *settings]), run_folder=folder, callbacks=Callbacks())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, `twin` without content, and `other` with another seed."""
    root = tmp_path_factory.mktemp("runs")
    trained(root / "run", "training.epochs=2")
    trained(root / "twin", "training.epochs=2", "model.settings={content: false}")
    trained(root / "other", "training.epochs=2", "model.settings={content: false}", "training.seed=1")
    return root


def test_as_it_is_the_accuracy_is_that_of_the_run(folder: Path) -> None:
    lines: list[str] = []
    result = measure_run(folder / "run", folder / "twin", log=lines.append)
    scores, twin = (fit(resume=folder / name, callbacks=Callbacks()).scores for name in ("run", "twin"))
    assert scores is not None
    assert twin is not None
    assert result.accuracy == pytest.approx(100 * (scores.overall["accuracy"].value or 0))
    assert result.prior_only == pytest.approx(100 * (twin.overall["accuracy"].value or 0))
    assert (result.num_test, result.epochs, result.seed) == (scores.images, 2, 0)
    assert set(result.strongest) == {1, 2, 4}
    assert len(result.criteria) == 3
    assert lines == ["testing with other couplings"]
    assert measure_run(folder / "run").prior_only is None


def test_a_twin_differs_in_nothing_else(folder: Path) -> None:
    for name in ("run", "other"):
        with pytest.raises(ValueError, match=r"is no twin of .*run; train it alike with model.settings.content=false"):
            measure_run(folder / "run", folder / name)


def test_a_run_without_a_test_part_or_without_routes(tmp_path: Path) -> None:
    trained(tmp_path / "untested", "training.epochs=1", "data.test=0")
    with pytest.raises(ValueError, match=r"untested has no test part"):
        measure_run(tmp_path / "untested")
    trained(tmp_path / "cnn", "training.epochs=1", "model.kind=PlainCNN")
    with pytest.raises(ValueError, match=r"PlainCNN has no couplings"):
        measure_run(tmp_path / "cnn")
