import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.hooks import RemovableHandle

from parsecaps.config import ExplainConfig
from parsecaps.data.raw_image import RawImage
from parsecaps.data.sources import open_data
from parsecaps.explain.attribution import Target, attribution_maps
from parsecaps.explain.attribution_path import AttributionPath
from parsecaps.explain.parse_tree import parse_tree
from parsecaps.metrics.calibration import Calibration
from parsecaps.metrics.conformal import ConformalQuantiles
from parsecaps.model import Model, load
from tests.explain.make_explained import DATA, make_folder, make_model
from tests.messages import message, refused

IMAGE = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return make_folder(tmp_path_factory.mktemp("bundle"), "bottleneck")


def test_it_puts_together_what_the_parts_say(known: Model) -> None:
    told, model = known.explain(IMAGE, name="this"), known
    with torch.no_grad():
        output = model.network(IMAGE[None])
    assert list(told.probabilities.values()) == pytest.approx(output.logits[0].softmax(0).tolist(), abs=1e-6)
    best = int(output.logits.argmax())
    assert told.diagnosis == model.classes[best]
    assert [each.name for each in told.concepts] == list(model.concepts)
    assert [each.presence for each in told.concepts] == pytest.approx(output.presence[0].tolist(), abs=1e-6)
    targets = [*(Target("concepts", j) for j in range(7)), Target("classes", best)]
    maps = attribution_maps(model.network, IMAGE[None], targets)[0].numpy()
    assert np.stack([*(each.map for each in told.concepts), told.class_map]) == pytest.approx(maps, abs=1e-6)
    most = output.presence[0].argsort(descending=True).tolist()
    assert [(tree.about, tree.index) for tree in told.trees] == [
        ("classes", best),
        ("concepts", most[0]),
        ("concepts", most[1]),
    ]
    alone = parse_tree(model.network, IMAGE[None], index=most[0], name=model.concepts[most[0]])
    assert told.trees[1].name == alone.name
    assert told.trees[1].share == pytest.approx(alone.share, abs=1e-5)
    for node, same in zip(told.trees[1].nodes, alone.nodes, strict=True):
        assert replace(node, share=same.share) == same
        assert node.share == pytest.approx(same.share, abs=1e-5)
    assert (told.method, told.possible, told.abstain) == ("routes", None, None)
    message(*told.notes)


def test_it_says_that_a_model_looks_at_the_middle_alone(known: Model) -> None:
    model = replace(known, preparation=replace(known.preparation, centre=0.6))
    (note,) = set(model.explain(IMAGE).notes) - set(known.explain(IMAGE).notes)
    message(note)


def test_two_streams_are_explained_like_any_other(tmp_path: Path) -> None:
    """Maps, trees, similar cases and corrections; what a correction does follows from the concepts alone."""
    told = (model := make_folder(tmp_path, "trunk")).explain(IMAGE)
    assert all(each.map.shape == (32, 32) and each.map.max() > 0 for each in told.concepts)
    assert told.class_map.max() > 0
    assert [tree.about for tree in told.trees] == ["classes", "concepts", "concepts"]
    assert all(len(tree.nodes) > 1 for tree in told.trees)
    assert len(told.similar) > 0
    assert told.reasons is not None
    with torch.no_grad():
        logits = model.network(IMAGE[None]).logits[0].numpy()
    assert told.reasons.contributions.sum(1) + told.reasons.reasoning.bias == pytest.approx(logits, abs=1e-5)
    assert told.reasons.flip is not None
    assert told.choice is not None
    message(told.choice)


def test_reasons_add_up_to_the_logits(known: Model) -> None:
    told = known.explain(IMAGE)
    assert told.reasons is not None
    with torch.no_grad():
        logits = known.network(IMAGE[None]).logits[0].numpy()
    reasons = told.reasons
    assert reasons.contributions.sum(1) + reasons.reasoning.bias == pytest.approx(logits, abs=1e-5)
    assert [each.seen for each in told.concepts] == reasons.reasoning.seen(reasons.presence).tolist()
    assert reasons.flip is not None
    after = reasons.reasoning.probabilities(reasons.reasoning.change(reasons.presence, reasons.flip.changes))
    assert list(reasons.what_if(reasons.flip.changes).values()) == pytest.approx(after)
    assert reasons.reasoning.classes[int(after.argmax())] != told.diagnosis
    assert f"would be {reasons.flip.diagnosis} ({after.max():.1%}) if" in reasons.sentence()
    assert reasons.sentence() in repr(told)


def test_a_training_image_is_most_similar_to_itself(known: Model) -> None:
    data = open_data(DATA)
    assert data.draw is not None
    image = known.preparation.prepare(RawImage(np.moveaxis(data.draw([3])[0], 0, -1), (0.0, 255.0)))
    told = known.explain(image)
    assert told.similar[0].case.row == 3
    assert told.similar[0].distance < 1e-3
    assert told.similar[0].case.label == data.classes[data.cases[3].label]
    shown = np.asarray(Image.open(io.BytesIO(told.pictures[3])).convert("RGB")).astype(float) / 255
    assert np.abs(shown - image.permute(1, 2, 0).numpy()).mean() < 0.05
    assert known.memory is not None
    best = int(known.memory.presence[:, 2].argmax())
    assert told.concepts[2].prototypes[0].case.row == best
    assert best in told.pictures


def calibrated(model: Model, temperature: float, truth: float) -> Model:
    """The same model, calibrated on patients in whom the true class had this probability."""
    quantiles = ConformalQuantiles((truth,) * 50, (1.0,) * 50, 50)
    return replace(model, calibration=Calibration(temperature, quantiles, None))


def test_the_temperature_and_the_risk_decide(known: Model) -> None:
    told = calibrated(known, 4.0, 0.01).explain(IMAGE, trees=0, risk=0.1)
    with torch.no_grad():
        logits = known.network(IMAGE[None]).logits[0]
    assert list(told.probabilities.values()) == pytest.approx((logits / 4).softmax(0).tolist(), abs=1e-6)
    assert (told.possible, told.abstain) == (list(known.classes), True)
    assert "nevus or melanoma cannot be ruled out" in repr(told)
    assert told.reasons is not None
    assert told.reasons.reasoning.probabilities(told.reasons.presence) == pytest.approx(
        list(told.probabilities.values()), abs=1e-6
    )
    assert told.trees == ()
    sure = calibrated(known, 1.0, max(told.probabilities.values())).explain(IMAGE, trees=0, risk=0.1)
    assert (sure.possible, sure.abstain) == ([sure.diagnosis], False)
    with refused(ValueError):
        known.explain(IMAGE, risk=0.1)


@pytest.mark.parametrize("method", ["grad-cam", "integrated-gradients", "occlusion"])
def test_other_maps(known: Model, method: str) -> None:
    told = known.explain(IMAGE, method=method, trees=0)
    wanted = attribution_maps(known.network, IMAGE[None], [Target("concepts", j) for j in range(7)], method)[0]
    assert told.method == method
    assert np.stack([each.map for each in told.concepts]) == pytest.approx(wanted.numpy(), abs=1e-5)


def test_a_parallel_head_has_no_contributions_and_says_why() -> None:
    told = make_model(open_data(DATA), "parallel").explain(IMAGE)
    assert told.reasons is None
    assert any("head=bottleneck" in note for note in told.notes)
    assert any("parsecaps remember" in note for note in told.notes)
    assert (told.similar, told.pictures) == ((), {})
    assert len(told.trees) == 3


def test_a_plain_cnn_gets_a_gradient_map_and_says_what_is_missing() -> None:
    model = make_model(open_data(DATA), "cnn")
    told = model.explain(IMAGE)
    assert (told.method, told.concepts, told.trees, told.reasons) == ("grad-cam", (), (), None)
    best = model.classes.index(told.diagnosis)
    wanted = attribution_maps(model.network, IMAGE[None], [Target("classes", best)], "grad-cam")[0, 0]
    assert told.class_map == pytest.approx(wanted.numpy(), abs=1e-6)
    assert any("no routes" in note for note in told.notes)
    assert any("without concepts" in note for note in told.notes)


def test_an_unknown_method_is_refused(known: Model) -> None:
    with refused(ValueError):
        known.explain(IMAGE, method="gradcam")


def test_a_file_gets_regions_in_its_own_pixels(known: Model, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    told = known.explain(tmp_path / "a.png")
    assert told.name == str(tmp_path / "a.png")
    for node in told.trees[0].nodes:
        assert node.original is not None
        assert np.abs(np.array(node.original) - 2 * np.array(node.region)).max() <= 1
    again = known.explain(tmp_path / "a.png", ExplainConfig(traversals=1), traversals=0)  # a keyword comes last
    assert (again.name, again.trees, again.probabilities) == (told.name, told.trees, told.probabilities)


def test_a_loaded_model_predicts_and_explains(known: Model, tmp_path: Path) -> None:
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no image")
    assert known.folder is not None
    model = load(known.folder)
    assert repr(model).startswith(f"ParseCaps of {known.folder}, 32 px; classes: nevus, melanoma; concepts: ")
    said, told = model.predict(tmp_path / "a.png"), model.explain(str(tmp_path / "a.png"), trees=0)
    assert said.probabilities == pytest.approx(told.probabilities)
    assert (said.label, said.image) == (told.diagnosis, told.name)
    assert said.concepts == pytest.approx({each.name: each.presence for each in told.concepts})
    with refused(ValueError):
        model.predict(tmp_path / "b.png")
    with refused(ValueError):
        model.predict(tmp_path / "a.png", risk=0.1)


@pytest.mark.parametrize("head", ["parallel", "bottleneck"])
def test_the_network_runs_once_for_all_maps_and_trees(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(open_data(DATA), head)
    passes: list[tuple[str, int]] = []

    def listen(name: str, module: torch.nn.Module) -> RemovableHandle:
        return module.register_forward_hook(lambda _, given, output: passes.append((name, len(given[0]))))

    handles = [listen("model", model.network), listen("cell", model.network.blocks[0][0])]
    found: list[int] = []
    backward = AttributionPath._backward

    def counted(path: AttributionPath, targets: Sequence[Target]) -> list[tuple[torch.Tensor, ...]]:
        found.append(len(targets))
        return backward(path, targets)

    monkeypatch.setattr(AttributionPath, "_backward", counted)
    model.explain(IMAGE)
    for handle in handles:
        handle.remove()
    # the image, the points by which panels are placed, the points of the path
    assert passes == [("cell", 1), ("model", 1), ("cell", 33), ("cell", 21)]
    assert found == [8 if head == "parallel" else 7]
