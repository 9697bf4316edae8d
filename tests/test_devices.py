"""Each verb that runs a model runs it on the device that was asked for, and gives the same there."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import parsecaps
from parsecaps.audit import audit_model, faithfulness, measure
from parsecaps.config import EvaluateConfig, load_settings
from parsecaps.data.preparation import Preparation
from parsecaps.discovery.discover import discover_run
from parsecaps.evaluation import calibrate_run, evaluate_run
from parsecaps.explain import attribution, remember_run
from parsecaps.explain.attribution import MAP_METHODS
from parsecaps.model import Model, find_device
from parsecaps.models import find_model
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.fit import fit
from tests.command import fails
from tests.data.make import folder_of_pictures
from tests.explain.rival_models import KINDS, make
from tests.models.contract import warmed_up
from tests.other_device import DEVICE, other_device

GOLDEN = Path(__file__).parent / "golden"
IMAGE = GOLDEN / "images" / "nevus.png"


@pytest.fixture(autouse=True)
def _other_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parsecaps.model.find_device", lambda name: DEVICE if name == "cuda" else find_device(name))
    monkeypatch.setattr(attribution, "IG_STEPS", 2)  # each operation is slow there


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "bottleneck", tmp_path / "run"))


def both(work: Callable[[str], Any]) -> tuple[Any, Any]:
    """What some work gives on the CPU and on the other device."""
    with other_device():
        elsewhere = work("cuda")
    return work("cpu"), elsewhere


def numbers(found: Any) -> Any:
    """A result as numbers and names, to compare."""
    if isinstance(found, dict):
        return {key: numbers(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return type(found)(numbers(value) for value in found)
    return pytest.approx(found, rel=1e-3, abs=1e-3, nan_ok=True) if isinstance(found, float) else found


@pytest.mark.parametrize(("name", "methods"), [("bottleneck", tuple(MAP_METHODS)), ("parallel", ("routes",))])
def test_a_model_explains_where_it_is(name: str, methods: tuple[str, ...]) -> None:
    run = GOLDEN / name
    whole = {"traversals": 2, "strict": True}
    for method in methods:
        more = whole if method == "routes" else {"trees": 0}
        here, there = both(
            lambda device, method=method, more=more: parsecaps.load(run, device=device).explain(
                IMAGE, method=method, **more
            )
        )
        np.testing.assert_allclose(there.class_map, here.class_map, rtol=1e-3, atol=1e-6)
        assert there.probabilities == numbers(here.probabilities)
        assert len(there.trees) == len(here.trees)
        assert len(there.traversals) == len(here.traversals)
    here, there = both(lambda device: parsecaps.load(run, device=device).predict(IMAGE).probabilities)
    assert there == numbers(here)


def test_an_audit_is_the_same_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SANITY_CASES", "ROUTE_CASES", "INPAINTED_CASES", "REDUNDANCY_CASES"):
        monkeypatch.setattr(measure, name, 1)
    monkeypatch.setattr(faithfulness, "stages_from_top", lambda model: [("all", model)])
    here, there = both(lambda device: audit_model(GOLDEN / "bottleneck", limit=1, resamples=5, device=device).as_dict())
    assert there == numbers(here)


def test_training_cases_are_remembered_where_the_model_is(run: Path) -> None:
    here, there = both(lambda device: remember_run(run, limit=3, device=device))
    np.testing.assert_allclose(there.presence, here.presence, rtol=1e-4)
    np.testing.assert_allclose(there.capsules, here.capsules, atol=1e-3)
    with other_device():
        model = Model.load(run, device="cuda")
        assert model.device == DEVICE
        assert model.statistics
        assert model.explain(IMAGE, strict=True).similar


def test_a_run_is_calibrated_and_scored_where_the_model_is(run: Path) -> None:
    def score(device: str) -> dict[str, Any]:
        calibrate_run(Run(run, device=device))
        settings = load_settings(EvaluateConfig, values={"device": device, "views": 2, "resamples": 5})
        return evaluate_run(run, settings).scores.as_dict()

    here, there = both(score)
    assert there == numbers(here)


def test_concepts_are_discovered_where_the_model_is(tmp_path: Path) -> None:
    settings = {"model.preset": "tiny", "training.epochs": 1, "model.num_concepts": 3, "training.batch_size": 8}
    data = tmp_path / "pictures"
    folder_of_pictures(data, per_class=8, side=32)
    for seed in range(2):
        changed = {**settings, "training.seed": seed}
        fit(data, settings=changed, run_folder=tmp_path / f"run-{seed}", callbacks=Callbacks())

    def maps(device: str) -> tuple[np.ndarray, np.ndarray]:
        found = discover_run(tmp_path / "run-0", [tmp_path / "run-1"], device=device)
        return found.memory.presence, found.maps([0, 1], 2)

    for one, other in zip(*both(maps), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)


CAPSULES = ["CapsNet", "ARCapsNet", "EfficientCapsNet", "DeepCaps", "OrthCaps", "ProtoCaps"]


@pytest.mark.parametrize("kind", [*KINDS, *CAPSULES])
def test_rivals_explain_where_they_are(kind: str) -> None:
    if kind in KINDS:
        made = make(kind)
    else:
        torch.manual_seed(0)
        concepts = 3 if find_model(kind).names_concepts else 0
        network = warmed_up(find_model(kind).from_preset("tiny", num_classes=2, num_concepts=concepts, in_channels=1))
        preparation = Preparation(network.image_size, 1)
        made = Model(network, preparation, ("a", "b"), ("x", "y", "z")[:concepts])
    image = torch.rand(made.preparation.channels, made.preparation.size, made.preparation.size)
    here = made.explain(image, trees=0)
    with other_device():
        made.network.to(DEVICE)
        there = made.explain(image, trees=0)
    np.testing.assert_allclose(there.class_map, here.class_map, rtol=1e-3, atol=1e-6)
    assert there.probabilities == numbers(here.probabilities)


VERBS = {
    "train": ["train", "phantom:n=72,size=32", "--out", "OUT"],
    "resume": ["train", "--resume", "RUN"],
    "pretrain": ["pretrain", "phantom:n=72,size=32", "--out", "OUT"],
    "demo": ["demo", "--out", "OUT"],
    "predict": ["predict", "RUN", str(IMAGE), "--out", "OUT.csv"],
    "evaluate": ["evaluate", "RUN"],
    "explain": ["explain", "RUN", str(IMAGE), "--out", "OUT.html"],
    "audit": ["audit", "RUN"],
    "remember": ["remember", "RUN"],
    "discover": ["discover", "RUN"],
    "serve": ["serve", "RUN", "--port", "0"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_gpu_that_is_not_there_is_one_line(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    if verb == "discover":  # which refuses concepts with names first
        monkeypatch.setattr("parsecaps.discovery.discover.check_unlabelled", lambda run: None)
    shutil.copytree(GOLDEN / "bottleneck", tmp_path / "run")
    places = {"RUN": tmp_path / "run"} | {name: tmp_path / name.lower() for name in ("OUT", "OUT.csv", "OUT.html")}
    before = sorted(tmp_path.rglob("*"))
    fails(*(places.get(word, word) for word in VERBS[verb]), "--device", "cuda")
    assert sorted(tmp_path.rglob("*")) == before
