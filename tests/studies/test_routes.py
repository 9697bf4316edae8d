"""The contract of the routes on a small model: uniform couplings cost most, and a few routes are enough."""

from pathlib import Path

import pytest
import torch

from parsecaps.config import load_config
from parsecaps.models import ParseCaps
from parsecaps.nn.recorder import record_couplings
from parsecaps.run import Run
from parsecaps.training import Callbacks
from parsecaps.training.fit import fit
from studies.parts import write_parts
from studies.routes import (
    CONTENT_COSTS,
    KEPT,
    TWIN,
    UNIFORM,
    RouteResult,
    measure_run,
    routes_config,
    strongest_of,
    train_with_twin,
    without_content,
)
from studies.routings import PLACE, SPARSE_ALONE
from tests.audit.make_audit import make_comparison
from tests.messages import refused
from tests.training.make import PHANTOM


def trained(folder: Path, twin: bool = False) -> Run:
    config = load_config(None, [*PHANTOM, "training.epochs=2"])
    return fit(without_content(config) if twin else config, run_folder=folder, callbacks=Callbacks())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and `twin` without content."""
    root = tmp_path_factory.mktemp("runs")
    trained(root / "run")
    trained(root / "twin", twin=True)
    return root


def result(accuracy: float, prior_only: float | None, uniform: float, strongest: float) -> RouteResult:
    found = {UNIFORM: uniform, strongest_of(max(KEPT)): strongest, TWIN: prior_only}
    compared = {name: make_comparison(each / 100, accuracy / 100) for name, each in found.items() if each is not None}
    return RouteResult("run", 0, 1, 10, 10, compared)


def test_criteria_are_judged_by_points_lost() -> None:
    assert [c.holds for c in result(95, 93, 75, 90).criteria] == [True, True, True]
    assert [c.holds for c in result(95, 93.1, 75.1, 89.9).criteria] == [False, False, False]
    assert [c.points for c in result(95, 93, 75, 90).criteria] == [20, CONTENT_COSTS, 5]
    assert result(95, None, 20, 95).criteria[1].holds is None  # a twin that was not trained


def test_as_it_is_the_accuracy_is_that_of_the_run(folder: Path) -> None:
    lines: list[str] = []
    measured = measure_run(folder / "run", folder / "twin", log=lines.append)
    scores, twin = (Run(folder / name).scores for name in ("run", "twin"))
    assert scores is not None
    assert twin is not None
    accuracy = measured.compared[TWIN].differences["accuracy"]
    assert (accuracy.first, accuracy.second) == pytest.approx(
        (scores.overall["accuracy"].value, twin.overall["accuracy"].value)
    )
    assert (measured.num_test, measured.epochs, measured.seed) == (scores.images, 2, 0)
    alone = measure_run(folder / "run").compared
    assert list(measured.compared) == [TWIN, *alone]
    assert list(alone) == [UNIFORM, "of another image", "mean over images", *map(strongest_of, KEPT)]
    assert lines == ["testing with other couplings"]


@torch.no_grad()
def test_the_twin_chooses_by_place_alone() -> None:
    image = torch.rand(2, 1, 32, 32)
    for settings, same in ((PLACE, True), ({}, False)):
        model = ParseCaps.from_preset("tiny", num_classes=2, **settings).eval()
        with record_couplings(model) as couplings:
            logits = model(image).logits
        assert {each.branch for each in couplings} == {"sparse", "axial"}
        assert all(torch.equal(*each.coupling) for each in couplings) == same
        assert not torch.equal(*logits)


@torch.no_grad()
def test_without_the_axial_branch_the_sparse_one_is_left() -> None:
    model = ParseCaps.from_preset("tiny", num_classes=2, **SPARSE_ALONE).eval()
    with record_couplings(model) as couplings:
        model(torch.rand(1, 1, 32, 32))
    assert {each.branch for each in couplings} == {"sparse"}


def test_parts_are_written_trained_and_not_trained_again(tmp_path: Path) -> None:
    write_parts(tmp_path / "parts", num_train=96, num_test=36)
    config = routes_config(None, tmp_path, settings=["training.epochs=1", "training.seed=2"])
    run, twin = train_with_twin(config, tmp_path)
    assert twin is not None
    assert (len(run.rows("train")), len(run.rows("test")), run.config.training.seed) == (96, 36, 2)
    assert run.model.network.standardise.mean.item() > 0  # the scaling of pixels is part of the saved model
    written = run.scores_file.stat().st_mtime_ns
    again, none = train_with_twin(config, tmp_path, twin=False)
    assert (again.folder, none, run.scores_file.stat().st_mtime_ns) == (run.folder, None, written)
    assert measure_run(run.folder, twin.folder).num_test == 36
    with refused(ValueError):
        train_with_twin(config.change("training", seed=3), tmp_path)
