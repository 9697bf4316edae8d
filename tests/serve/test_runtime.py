"""What runs the network of a server: ONNX Runtime answers as PyTorch does, or PyTorch answers and it is said why."""

import copy
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
import torch

from parsecaps.export.checking import PROBABILITY
from parsecaps.export.export import ExportSource
from parsecaps.model import Model
from parsecaps.prediction.predict import answer, answers_of_output
from parsecaps.serve import runtime
from parsecaps.serve.runtime import choose_runtime
from tests.messages import refused
from tests.serve.running import MODEL, NEVUS, OTHER, running


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for caches with nothing in it."""
    monkeypatch.setenv("PARSECAPS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=[MODEL, OTHER], ids=["bottleneck", "parallel"])
def model(request: pytest.FixtureRequest) -> Model:
    return Model.load(request.param)


def probabilities(model: Model, network: Callable[..., Any], images: torch.Tensor) -> list[float]:
    said = answers_of_output(model, network(images), None)
    return [value for each in said for name in ("probabilities", "concepts") for value in each[name].values()]


def test_onnx_runtime_answers_as_pytorch_does(model: Model) -> None:
    found = choose_runtime(model, "auto")
    assert (found.name, found.version, found.note) == ("onnx", version("onnxruntime"), None)
    assert str(found) == f"ONNX Runtime {version('onnxruntime')}"
    images = torch.cat([ExportSource(model, None, "").drawn(), model.read(NEVUS)[None]])
    assert len(images) == 7
    wanted = probabilities(model, lambda image: answer(model, image), images)
    assert probabilities(model, found.network, images) == pytest.approx(wanted, abs=PROBABILITY)
    alone = probabilities(model, found.network, images[6:])
    assert alone == pytest.approx(wanted[-len(alone) :], abs=PROBABILITY)


def test_an_export_is_kept_for_the_next_start_and_a_damaged_one_made_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, made = Model.load(OTHER), []
    write = runtime.write_onnx
    monkeypatch.setattr(runtime, "write_onnx", lambda *given: (made.append(1), write(*given))[1])
    for _ in range(2):
        assert choose_runtime(model, "onnx").name == "onnx"
    (kept,) = cache.iterdir()
    assert len(made) == 1
    assert kept.stat().st_mode & 0o777 == 0o600
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2])
    assert choose_runtime(model, "onnx").name == "onnx"
    assert len(made) == 2
    assert len(kept.read_bytes()) == len(whole)


def test_a_kept_export_that_answers_otherwise_is_made_anew(cache: Path) -> None:
    model = Model.load(OTHER)
    choose_runtime(model, "onnx")
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    runtime.write_onnx(changed(model), kept)
    assert kept.read_bytes() != whole
    choose_runtime(model, "onnx")
    assert kept.read_bytes() == whole


def test_where_nothing_can_be_kept_it_answers_all_the_same(cache: Path) -> None:
    cache.write_text("a file is in the way", encoding="utf-8")
    assert choose_runtime(Model.load(OTHER), "onnx").name == "onnx"
    assert cache.is_file()


def changed(model: Model) -> Model:
    """The same model with other weights."""
    network = copy.deepcopy(model.network)
    with torch.no_grad():
        for weights in network.parameters():
            weights.add_(0.05 * torch.randn_like(weights))
    return replace(model, network=network)


def wrong_export(monkeypatch: pytest.MonkeyPatch) -> str:
    write = runtime.write_onnx

    def write_other(model: Model, path: Path) -> Any:
        write(changed(model), path)
        return runtime.answer_graph(model)

    monkeypatch.setattr(runtime, "write_onnx", write_other)
    return "the exported file is wrong"


def no_package(monkeypatch: pytest.MonkeyPatch) -> str:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(runtime, "version", missing)
    return "onnx is not installed (pip install 'parsecaps[export]')"


def no_operator(monkeypatch: pytest.MonkeyPatch) -> str:
    def refuse(*given: Any) -> Any:
        raise NotImplementedError("an operation that ONNX\ndoes not know")

    monkeypatch.setattr(runtime, "write_onnx", refuse)
    return "an operation that ONNX does not know"


@pytest.mark.parametrize("hinder", [wrong_export, no_package, no_operator])
def test_pytorch_answers_where_onnx_runtime_cannot(
    cache: Path, monkeypatch: pytest.MonkeyPatch, hinder: Callable[[pytest.MonkeyPatch], str]
) -> None:
    reason, model = hinder(monkeypatch), Model.load(OTHER)
    found = choose_runtime(model, "auto")
    assert found.name == "torch"
    assert found.note is not None
    assert found.note.startswith(reason)
    assert str(found).startswith(f"PyTorch {torch.__version__}, not ONNX Runtime: {reason}")
    image = model.read(NEVUS)[None]
    assert torch.equal(found.network(image).logits, answer(model, image).logits)
    assert not cache.exists()
    with refused(ValueError, hide=r"by [\d.e-]+"):
        choose_runtime(model, "onnx")


def test_a_server_says_what_answers(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(OTHER, runtime="torch") as server:
        assert server.client.get("/api/model").json()["runtime"] == {
            "name": "torch",
            "version": torch.__version__,
            "note": None,
        }
        (by_torch,) = server.results(("a.png", NEVUS.read_bytes()))
        assert server.service.batch_size == 16
    with running(OTHER) as server:
        about = server.client.get("/api/model").json()["runtime"]
        assert about == {"name": "onnx", "version": version("onnxruntime"), "note": None}
        (by_onnx,) = server.results(("a.png", NEVUS.read_bytes()))
    assert by_onnx["class"] == by_torch["class"]
    assert by_onnx["probabilities"] == pytest.approx(by_torch["probabilities"], abs=PROBABILITY)
    reason = no_package(monkeypatch)
    with running(OTHER) as server:
        assert server.client.get("/api/model").json()["runtime"]["note"] == reason


def test_many_files_in_one_request_are_answered_in_order(cache: Path) -> None:
    """More than a batch, and more than are read at a time."""
    with running(OTHER, batch_size=3) as server:
        images = [NEVUS.read_bytes(), b"no image", NEVUS.with_name("melanoma.png").read_bytes()] * 7
        single = [server.results(("x", data))[0] for data in images[:3]]
        results = server.results(*((str(i), data) for i, data in enumerate(images)))
    assert [each["name"] for each in results] == [str(i) for i in range(21)]
    for i, each in enumerate(results):
        assert each["class"] == single[i % 3]["class"]
        assert (each["error"] is None) == (i % 3 != 1)
        if each["probabilities"]:
            assert each["probabilities"] == pytest.approx(single[i % 3]["probabilities"], abs=1e-5)
