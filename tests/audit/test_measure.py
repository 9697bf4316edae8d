"""The whole audit of tiny models on a few drawn images, with maps of which the truth is known."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parsecaps.audit import Audit, audit
from parsecaps.audit.audit_cases import CaseMasks, find_masks
from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.explain.attribution import Target, attribution_maps
from parsecaps.explain.strict_tree import strict_tree
from parsecaps.metrics import compare
from parsecaps.metrics.scores import score
from parsecaps.model import Model
from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.nn import record_couplings, replace_couplings
from parsecaps.nn.couplings import uniform
from parsecaps.prediction.predict import predict_cases
from tests.messages import message, refused

ROWS = list(range(20, 36))
FEW: dict[str, Any] = {"limit": 6, "resamples": 30}


@pytest.fixture(scope="module")
def data() -> DataSet:
    return open_data("phantom:n=40,size=32")


@pytest.fixture(scope="module")
def prepared(data: DataSet, tmp_path_factory: pytest.TempPathFactory) -> PreparedImages:
    return prepare_all(data, Preparation(32, 3), folder=tmp_path_factory.mktemp("cache"))


def bundle_of(data: DataSet, kind: type[ParseCaps] | type[PlainCNN] = ParseCaps, **changes: Any) -> Model:
    torch.manual_seed(0)
    settings = {"num_classes": 2, "num_concepts": 7, "in_channels": 3, **changes}
    model = kind.from_preset("tiny", **settings).eval()
    return Model(model, Preparation(32, 3), data.classes, data.concepts[: model.num_concepts])


class Known:
    """A map maker that looks the masks up, by the image."""

    def __init__(self, data: DataSet, prepared: PreparedImages, model: Model) -> None:
        masks = find_masks(data, model)
        assert masks.concepts is not None
        self.rows = {prepared.images[row].tobytes(): row for row in range(len(data))}
        self.masks = masks.concepts

    def __call__(self, model: nn.Module, image: Tensor, targets: Sequence[Target]) -> Tensor:
        rows = [self.rows[each.mul(255).round().byte().numpy().tobytes()] for each in image]
        masks = torch.from_numpy(self.masks(rows)).float()
        return torch.stack([masks[:, t.index] if t.about == "concepts" else masks.amax(1) for t in targets], 1)


def nowhere(model: nn.Module, image: Tensor, targets: Sequence[Target]) -> Tensor:
    return torch.zeros(len(image), len(targets), 32, 32)


def by_coupling(model: nn.Module, image: Tensor, targets: Sequence[Target]) -> list[list[Tensor]]:
    with torch.no_grad(), record_couplings(model) as recorded:
        model(image)
    return [[each.coupling for each in recorded if each.branch == "sparse"]] * len(targets)


@pytest.fixture(scope="module")
def whole(data: DataSet, prepared: PreparedImages) -> tuple[Model, Audit]:
    model = bundle_of(data, head="bottleneck")
    train = predict_cases(model, CaseSet(data, prepared, range(20)))
    maps = {"truth": Known(data, prepared, model), "nowhere": nowhere}
    return model, audit(model, CaseSet(data, prepared, ROWS), maps=maps, routes=by_coupling, train=train, **FEW)


def test_maps_of_the_truth_are_right_and_blank_ones_wrong(whole: tuple[Model, Audit], data: DataSet) -> None:
    _, found = whole
    truth, blank = (found.maps["concepts"][name].localisation for name in ("truth", "nowhere"))
    assert truth is not None
    assert blank is not None
    there = [target for target in truth.targets if target.pointing.n]
    assert there
    for target in there:
        assert (target.pointing.value, target.mass.value, target.iou.value, target.blank) == (1, 1, 1, 0)
        assert target.ratio.value == pytest.approx(1 / (target.share.value or 0))
    picked = np.random.default_rng(0).permutation(16)[:6]
    present = np.array([data.cases[ROWS[i]].concepts for i in picked]).sum(0)
    assert [target.pointing.n for target in truth.targets] == present.tolist()
    assert (blank.pointing.value, blank.mass.value, blank.iou.value) == (0, 0, 0)
    assert [target.blank for target in blank.targets] == present.tolist()
    assert found.maps["classes"]["truth"].localisation is None  # nothing outlines what a diagnosis is about


def test_every_pair_of_a_case_and_a_concept_counts(whole: tuple[Model, Audit], data: DataSet) -> None:
    _, found = whole
    picked = np.random.default_rng(0).permutation(16)[:6]
    pairs = int(np.array([data.cases[ROWS[i]].concepts for i in picked]).sum())
    concepts, classes = (found.maps[about]["truth"].faithfulness for about in ("concepts", "classes"))
    assert concepts is not None
    assert classes is not None
    assert (concepts.deletion_gain.n, classes.deletion_gain.n) == (pairs, 6)
    sane = found.maps["concepts"]["truth"].randomised
    assert sane is not None
    assert all(each.value == pytest.approx(1) for each in sane.spearman)  # the truth needs no weights
    assert found.maps["concepts"]["nowhere"].randomised is not None
    assert found.routes["concepts"].gain.n == pairs


def test_cutting_by_coupling_is_its_own_rival(whole: tuple[Model, Audit]) -> None:
    _, found = whole
    for ablation in found.routes.values():
        assert ablation.shown == ablation.strongest
        assert ablation.gain_on_strongest.value == 0
        assert ablation.shown[0] == ablation.random[0]
        assert ablation.shown[-1] != ablation.random[-1]


def test_the_strict_tree_is_scored_on_the_same_cases(
    whole: tuple[Model, Audit], data: DataSet, prepared: PreparedImages
) -> None:
    model, found = whole
    with replace_couplings(model.network, strict_tree):
        strict = score(predict_cases(model, CaseSet(data, prepared, ROWS)), resamples=30)
    ordinary = score(predict_cases(model, CaseSet(data, prepared, ROWS)), resamples=30)
    assert found.strict is not None
    assert not found.strict.adjusted
    for pair, name in ((found.strict.accuracy, "accuracy"), (found.strict.auroc, "mean_auroc")):
        assert pair is not None
        assert (pair.ordinary, pair.strict) == (ordinary[name], strict[name])
        assert (pair.difference.first, pair.difference.second) == pytest.approx(
            (pair.ordinary.value, pair.strict.value)
        )
        assert pair.difference.difference == pytest.approx((pair.strict.value or 0) - (pair.ordinary.value or 0))
        assert pair.difference.low is not None
        assert pair.difference.low <= pair.difference.difference <= (pair.difference.high or 0)


def test_other_couplings_are_scored_on_the_same_cases(
    whole: tuple[Model, Audit], data: DataSet, prepared: PreparedImages
) -> None:
    model, found = whole
    ordinary = predict_cases(model, CaseSet(data, prepared, ROWS))
    with replace_couplings(model.network, uniform):
        evenly = predict_cases(model, CaseSet(data, prepared, ROWS))
    assert list(found.couplings) == ["uniform", "of another image", "mean over images"]
    assert found.couplings["uniform"] == compare(ordinary, evenly, resamples=30)
    assert all(
        list(each.differences) == ["accuracy", "balanced_accuracy", "macro_auroc"] for each in found.couplings.values()
    )


def test_concepts_and_redundancy(whole: tuple[Model, Audit], data: DataSet, prepared: PreparedImages) -> None:
    model, found = whole
    scores = score(predict_cases(model, CaseSet(data, prepared, ROWS)), resamples=30)
    assert found.concepts is not None
    assert found.concepts.by_concept == scores.by_concept
    assert found.concepts.overall["explanation_error_l2"] == scores["explanation_error_l2"]
    assert [curve.order for curve in found.concepts.interventions] == ["uncertain", "random"]
    assert found.concepts.interventions[0].accuracy[0] == pytest.approx(scores["accuracy"].value)
    assert found.concepts.leakage is not None
    assert found.concepts.shuffled is not None
    assert found.concepts.shuffled.n == 16
    assert found.concepts.explained is not None
    assert found.concepts.explained.r2 > 0.95  # a bottleneck is linear in its concepts
    assert found.redundancy[0].layer == "primary"
    assert (found.cases, found.mapped) == (16, 6)
    message(*found.notes)


def test_the_same_arguments_give_the_same_numbers(data: DataSet, prepared: PreparedImages) -> None:
    model = bundle_of(data)
    stages: set[str] = set()

    def tell(what: str, done: int, total: int) -> None:
        stages.add(what)
        assert 0 <= done <= total

    def again() -> str:
        maps = {"truth": Known(data, prepared, model)}
        found = audit(
            model, CaseSet(data, prepared, ROWS[:2]), maps=maps, routes=by_coupling, progress=tell, resamples=10
        )
        return json.dumps(found.as_dict())

    assert again() == again()
    assert stages == {
        "predictions",
        "inpainted concepts",
        "maps",
        "parameter randomisation",
        "route ablation",
        "shares",
        "other couplings",
        "strict tree",
        "concepts",
        "redundancy",
    }


def test_each_method_is_measured_alone_as_beside_others(data: DataSet, prepared: PreparedImages) -> None:
    """Maps are made of what each image needs only, image by image, and curves in batches over all methods."""
    model = bundle_of(data)
    calls: list[tuple[int, list[Target]]] = []

    def slow(network: nn.Module, image: Tensor, targets: Sequence[Target]) -> Tensor:
        """All concepts and classes, of which some are picked."""
        calls.append((len(image), list(targets)))
        every = [Target("concepts", j) for j in range(7)] + [Target("classes", k) for k in range(2)]
        maps = attribution_maps(network, image, every, "grad-cam")
        return maps[:, [every.index(target) for target in targets]]

    both = audit(model, CaseSet(data, prepared, ROWS[:3]), maps={"nowhere": nowhere, "slow": slow}, resamples=10)
    alone = audit(
        model,
        CaseSet(data, prepared, ROWS[:3]),
        maps={"fast": lambda network, image, targets: attribution_maps(network, image, targets, "grad-cam")},
        resamples=10,
    )
    for about in ("concepts", "classes"):
        one, other = both.maps[about]["slow"], alone.maps[about]["fast"]
        assert (one.localisation is None) == (other.localisation is None) == (about == "classes")
        if one.localisation is not None and other.localisation is not None:
            assert one.localisation.pointing == other.localisation.pointing
            assert one.localisation.mass.value == pytest.approx(other.localisation.mass.value)
        assert one.faithfulness is not None
        assert other.faithfulness is not None
        assert one.faithfulness.deletion == pytest.approx(other.faithfulness.deletion, abs=1e-6)
        assert one.faithfulness.insertion == pytest.approx(other.faithfulness.insertion, abs=1e-6)
    picked = np.random.default_rng(0).permutation(3)
    for (count, targets), row in zip(calls, [ROWS[i] for i in picked], strict=False):
        assert count == 1
        has = [j for j, value in enumerate(data.cases[row].concepts) if value == 1]
        assert [target.index for target in targets if target.about == "concepts"] == has
        assert sum(target.about == "classes" for target in targets) == 1
    stages = 1 + 9  # the model itself, and the tiny network made random
    assert len(calls) == 3 * stages


def test_more_cases_than_a_batch_has(data: DataSet, prepared: PreparedImages) -> None:
    """Eight cases are in a batch, and only so many are explained again by random networks."""
    model = bundle_of(data)
    found = audit(
        model,
        CaseSet(data, prepared, ROWS),
        maps={"truth": Known(data, prepared, model)},
        routes=by_coupling,
        resamples=10,
    )
    order = np.random.default_rng(0).permutation(16)
    present = np.array([data.cases[ROWS[i]].concepts for i in order]).sum(1)
    concepts, classes = (found.maps[about]["truth"] for about in ("concepts", "classes"))
    assert concepts.randomised is not None
    assert classes.randomised is not None
    assert (concepts.randomised.spearman[0].n, classes.randomised.spearman[0].n) == (int(present[:8].sum()), 8)
    assert all(each.value == pytest.approx(1) for each in (*concepts.randomised.spearman, *classes.randomised.ssim))
    assert concepts.faithfulness is not None
    assert concepts.localisation is not None
    assert concepts.faithfulness.deletion_gain.n == found.routes["concepts"].gain.n == int(present.sum())
    assert concepts.localisation.mass.value == 1


def test_a_model_without_concepts_says_what_is_missing(data: DataSet, prepared: PreparedImages) -> None:
    model = bundle_of(data, PlainCNN, num_concepts=0)
    found = audit(model, CaseSet(data, prepared, ROWS[:4]), maps={"nowhere": nowhere}, masks=CaseMasks(), resamples=10)
    assert found.maps.keys() == {"classes"}
    assert found.concepts is None
    assert found.strict is None
    assert found.couplings == {}
    message(*found.notes)


def test_a_lesion_is_what_the_diagnosis_is_about(data: DataSet, prepared: PreparedImages) -> None:
    model = bundle_of(data, PlainCNN)
    known = Known(data, prepared, model)
    masks = CaseMasks(lesion=lambda rows: known.masks(rows).any(1))
    found = audit(model, CaseSet(data, prepared, ROWS[:4]), maps={"truth": known}, masks=masks, resamples=10)
    located = found.maps["classes"]["truth"].localisation
    assert located is not None
    assert [target.name for target in located.targets] == ["diagnosis"]
    assert located.mass.value == 1
    message(found.notes[2])


@pytest.mark.parametrize("changes", [{"rows": []}, {"limit": 0}])
def test_nothing_to_measure(data: DataSet, prepared: PreparedImages, changes: dict[str, Any]) -> None:
    model = bundle_of(data)
    arguments = {"rows": ROWS, "maps": {}, **changes}
    with refused(ValueError):
        audit(model, CaseSet(data, prepared, arguments.pop("rows")), **arguments)
