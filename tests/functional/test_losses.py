import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from parsecaps.functional import (
    class_loss,
    consistency_loss,
    diversity_loss,
    margin_loss,
    presentation_loss,
    reconstruction_loss,
    triplet_loss,
)
from parsecaps.functional.losses import among_own
from tests.messages import refused

NAN = math.nan


def some_concepts(batch: int, m: int, seed: int = 0) -> Tensor:
    """1, 0, unknown and in between; the first image has no known concept."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.tensor([1.0, 0.0, NAN, 0.3])
    concepts = values[torch.randint(4, (batch, m), generator=generator)]
    concepts[:1] = NAN
    return concepts


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def presentation_by_loop(presence: Tensor, concepts: Tensor, present: float, absent: float) -> float:
    images = []
    for u, z in zip(presence.tolist(), concepts.tolist(), strict=True):
        known = [(u_i, z_i) for u_i, z_i in zip(u, z, strict=True) if not math.isnan(z_i)]
        if known:
            cost = (z_i * max(0, present - u_i) ** 2 + (1 - z_i) * max(0, u_i - absent) ** 2 for u_i, z_i in known)
            images.append(sum(cost))
    return mean(images)


def triplet_by_loop(capsules: Tensor, phrases: Tensor, concepts: Tensor, margin: float) -> float:
    images = []
    for u, z in zip(capsules.double(), concepts.tolist(), strict=True):
        known = [i for i, z_i in enumerate(z) if not math.isnan(z_i)]
        cost = 0.0
        for i in known:
            for j in known:
                if i != j:
                    own, other = (u[i] - phrases[i]).square().sum(), (u[j] - phrases[i]).square().sum()
                    cost += max(0.0, (own - other + margin).item())
        if known:
            images.append(cost)
    return mean(images)


class TestClassLoss:
    def test_value_by_hand(self) -> None:
        logits = torch.tensor([[math.log(3), 0.0], [0.0, 0.0], [5.0, 5.0]])
        loss = class_loss(logits, torch.tensor([0, 1, -1]))
        assert loss.item() == pytest.approx((-math.log(3 / 4) - math.log(1 / 2)) / 2)

    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_equals_torch_on_the_known_images(self, smoothing: float, weighted: bool) -> None:
        logits, label = torch.randn(8, 3), torch.tensor([0, 1, 2, -1, 1, -1, 0, 0])
        weight = torch.tensor([0.5, 1.0, 3.0]) if weighted else None
        known = label >= 0
        want = F.cross_entropy(logits[known], label[known], weight, label_smoothing=smoothing)
        torch.testing.assert_close(class_loss(logits, label, weight, smoothing), want)

    def test_gradcheck_and_no_gradient_for_the_unknown(self) -> None:
        logits = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
        label = torch.tensor([2, -1, 0, 1])
        assert torch.autograd.gradcheck(lambda x: class_loss(x, label), logits)
        (grad,) = torch.autograd.grad(class_loss(logits, label), logits)
        assert (grad[1] == 0).all()
        assert (grad[[0, 2, 3]] != 0).all()

    def test_a_class_of_weight_zero_is_as_good_as_unknown(self) -> None:
        logits = torch.randn(2, 2, requires_grad=True)
        loss = class_loss(logits, torch.tensor([0, 0]), torch.tensor([0.0, 1.0]))
        loss.backward()
        assert loss.item() == 0
        assert (logits.grad == 0).all()  # type: ignore[union-attr]

    @pytest.mark.parametrize("weighted", [False, True])
    def test_of_several_sets_each_has_a_head_of_its_own(self, weighted: bool) -> None:
        logits, label = torch.randn(9, 5), torch.tensor([0, 1, 4, 2, -1, 3, 0, 4, 1])
        sets = torch.tensor([0, 0, 1, 1, 1])
        weight = torch.tensor([0.5, 1.0, 3.0, 1.0, 2.0]) if weighted else None
        total, count = 0.0, 0.0
        for first, last in ((0, 2), (2, 5)):
            own = (label >= first) & (label < last)
            part = None if weight is None else weight[first:last]
            loss = F.cross_entropy(logits[own, first:last], label[own] - first, part, reduction="sum")
            total += loss.item()
            count += own.sum().item() if weight is None else weight[label[own]].sum().item()
        assert class_loss(logits, label, weight, sets=sets).item() == pytest.approx(total / count, rel=1e-6)

    def test_what_is_of_another_set_gets_no_gradient(self) -> None:
        logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
        label, sets = torch.tensor([1, 3, -1, 0]), torch.tensor([0, 0, 1, 1, 1])
        assert torch.autograd.gradcheck(lambda x: class_loss(x, label, sets=sets), logits)
        (grad,) = torch.autograd.grad(class_loss(logits, label, sets=sets), logits)
        assert (grad != 0).tolist() == [
            [True, True, False, False, False],
            [False, False, True, True, True],
            [False] * 5,
            [True, True, False, False, False],
        ]

    def test_a_mixture_of_two_sets_is_judged_in_both(self) -> None:
        logits, sets = torch.randn(3, 4), torch.tensor([0, 0, 1, 1])
        label, other = torch.tensor([0, 3, -1]), torch.tensor([2, 2, -1])
        got = class_loss(logits, label, other=other, share=0.7, sets=sets)
        own, foreign = (class_loss(logits, each, sets=sets) for each in (label, other))
        torch.testing.assert_close(got, 0.7 * own + 0.3 * foreign)
        assert got.isfinite()

    def test_one_set_is_as_good_as_none(self) -> None:
        logits, label = torch.randn(6, 3), torch.tensor([0, 1, 2, -1, 1, 0])
        assert torch.equal(class_loss(logits, label, sets=torch.zeros(3, dtype=torch.long)), class_loss(logits, label))

    def test_where_nothing_is_known_sets_cost_nothing(self) -> None:
        logits = torch.randn(2, 3, requires_grad=True)
        loss = class_loss(logits, torch.tensor([-1, -1]), sets=torch.tensor([0, 1, 1]))
        loss.backward()
        assert loss.item() == 0
        assert (logits.grad == 0).all()  # type: ignore[union-attr]

    def test_among_own_answers_are_those_of_the_own_set(self) -> None:
        logits = torch.tensor([[0.0, 1.0, 9.0], [5.0, 0.0, 1.0], [0.0, 1.0, 9.0]])
        own = among_own(logits, torch.tensor([0, 2, -1]), torch.tensor([0, 0, 1]))
        assert own.argmax(1).tolist() == [1, 2, 2]
        assert torch.equal(own[0, :2], logits[0, :2])
        assert torch.equal(own[2], logits[2])


class TestPresentationLoss:
    def test_value_by_hand(self) -> None:
        presence = torch.tensor([[0.5, 0.5, 0.99], [0.0, 0.95, 0.05]])
        concepts = torch.tensor([[1.0, 0.0, NAN], [1.0, 1.0, 0.0]])
        assert presentation_loss(presence, concepts).item() == pytest.approx((0.16 + 0.16 + 0.81) / 2)

    @given(st.integers(0, 5), st.integers(0, 6), st.integers(0, 1000))
    def test_equals_the_loop(self, batch: int, m: int, seed: int) -> None:
        presence = torch.rand(batch, m, generator=torch.Generator().manual_seed(seed))
        concepts = some_concepts(batch, m, seed)
        want = presentation_by_loop(presence, concepts, 0.8, 0.2)
        assert presentation_loss(presence, concepts, 0.8, 0.2).item() == pytest.approx(want, abs=1e-6)

    def test_gradcheck(self) -> None:
        presence = torch.rand(3, 5, dtype=torch.float64, requires_grad=True)
        concepts = some_concepts(3, 5)
        assert torch.autograd.gradcheck(lambda u: presentation_loss(u, concepts), presence)

    def test_weights_of_absence_and_presence(self) -> None:
        presence = torch.tensor([[0.5, 0.5], [0.4, 0.3]])
        concepts = torch.tensor([[1.0, 0.0], [0.0, NAN]])
        weights = torch.tensor([[2.0, 3.0], [5.0, 7.0]])
        want = (5 * 0.16 + 3 * 0.16 + 2 * 0.09) / 2
        assert presentation_loss(presence, concepts, weights=weights).item() == pytest.approx(want)
        alike = presentation_loss(presence, concepts, weights=torch.ones(2, 2))
        assert alike.item() == presentation_loss(presence, concepts).item()
        with refused(ValueError):
            presentation_loss(presence, concepts, weights=torch.ones(2))

    def test_a_present_concept_of_zero_length_is_pulled_up(self) -> None:
        presence = torch.zeros(1, 3, requires_grad=True)
        presentation_loss(presence, torch.tensor([[1.0, 0.0, NAN]])).backward()
        torch.testing.assert_close(presence.grad, torch.tensor([[-1.8, 0.0, 0.0]]))


class TestTripletLoss:
    def test_value_by_hand(self) -> None:
        phrases = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        at_home = phrases[None].clone()
        swapped = at_home.flip(1)
        concepts = torch.ones(1, 2)
        assert triplet_loss(at_home, phrases, concepts, margin=1.0).item() == 0  # 0 - 2 + 1 < 0, twice
        assert triplet_loss(at_home, phrases, concepts, margin=3.0).item() == pytest.approx(2)
        assert triplet_loss(swapped, phrases, concepts, margin=1.0).item() == pytest.approx(6)

    @given(st.integers(0, 4), st.integers(0, 5), st.integers(1, 4), st.integers(0, 1000))
    def test_equals_the_loop(self, batch: int, m: int, e: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        capsules, phrases = (
            torch.randn(batch, m, e, generator=generator),
            torch.randn(m, e, generator=generator),
        )
        concepts = some_concepts(batch, m, seed)
        want = triplet_by_loop(capsules, phrases, concepts, 0.7)
        assert triplet_loss(capsules, phrases, concepts, 0.7).item() == pytest.approx(want, abs=1e-4)

    def test_stays_accurate_far_from_the_origin(self) -> None:
        capsules, phrases, concepts = torch.randn(3, 6, 4), torch.randn(6, 4), torch.ones(3, 6)
        far = capsules + 1000, phrases + 1000
        want = triplet_by_loop(far[0], far[1].double(), concepts, 1.0)
        assert triplet_loss(*far, concepts).item() == pytest.approx(want, rel=1e-4)

    def test_gradcheck(self) -> None:
        capsules = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
        phrases = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
        concepts = some_concepts(3, 4)
        assert torch.autograd.gradcheck(lambda u, p: triplet_loss(u, p, concepts), (capsules, phrases))

    def test_learning_brings_each_phrase_to_its_own_capsule(self) -> None:
        capsules = torch.randn(1, 4, 3, requires_grad=True)
        phrases = torch.randn(4, 3, requires_grad=True)
        optimizer = torch.optim.SGD([capsules, phrases], lr=0.02)
        for _ in range(200):
            optimizer.zero_grad()
            triplet_loss(capsules, phrases, torch.ones(1, 4)).backward()
            optimizer.step()
        assert torch.cdist(phrases, capsules[0]).argmin(1).tolist() == [0, 1, 2, 3]

    @pytest.mark.parametrize("concepts", [[1.0, NAN, 0.0], [NAN, NAN, 1.0]])
    def test_an_unknown_concept_has_no_gradient(self, concepts: list[float]) -> None:
        capsules = torch.randn(1, 3, 2, requires_grad=True)
        phrases = torch.randn(3, 2, requires_grad=True)
        triplet_loss(capsules, phrases, torch.tensor([concepts]), margin=100).backward()
        for grad in (capsules.grad[0], phrases.grad):  # type: ignore[index]
            expected = [not math.isnan(z) and concepts[0] == 1 for z in concepts]
            assert (grad != 0).any(1).tolist() == expected  # type: ignore[union-attr]


class TestReconstructionLoss:
    def test_value_by_hand(self) -> None:
        image = torch.zeros(3, 1, 2, 2)
        reconstruction = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1, 1).expand(3, 1, 2, 2)
        assert reconstruction_loss(reconstruction, image).item() == pytest.approx((4 + 16 + 36) / 3)
        chosen = torch.tensor([True, False, True])
        assert reconstruction_loss(reconstruction, image, chosen).item() == pytest.approx((4 + 36) / 2)

    def test_gradcheck_and_no_gradient_for_the_others_even_if_they_are_nan(self) -> None:
        reconstruction = torch.randn(3, 2, 2, 2, dtype=torch.float64, requires_grad=True)
        image, chosen = torch.randn(3, 2, 2, 2, dtype=torch.float64), torch.tensor([True, False, True])
        image[1] = NAN
        assert torch.autograd.gradcheck(lambda x: reconstruction_loss(x, image, chosen), reconstruction)
        (grad,) = torch.autograd.grad(reconstruction_loss(reconstruction, image, chosen), reconstruction)
        assert (grad[1] == 0).all()


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, requires_grad=True)


@pytest.mark.parametrize(
    ("loss", "inputs", "rest"),
    [
        (class_loss, [ones(3, 2)], [torch.full((3,), -1)]),
        (class_loss, [ones(3, 2)], [torch.full((3,), -1), torch.ones(2)]),
        (class_loss, [ones(0, 2)], [torch.empty(0, dtype=torch.int64)]),
        (presentation_loss, [ones(3, 2)], [torch.full((3, 2), NAN)]),
        (presentation_loss, [ones(3, 0)], [torch.empty(3, 0)]),
        (presentation_loss, [ones(0, 2)], [torch.empty(0, 2)]),
        (triplet_loss, [ones(3, 2, 4), ones(2, 4)], [torch.full((3, 2), NAN)]),
        (triplet_loss, [ones(3, 0, 4), ones(0, 4)], [torch.empty(3, 0)]),
        (triplet_loss, [ones(3, 1, 4), ones(1, 4)], [torch.ones(3, 1)]),
        (triplet_loss, [ones(0, 2, 4), ones(2, 4)], [torch.empty(0, 2)]),
        (reconstruction_loss, [ones(0, 1, 2, 2)], [torch.empty(0, 1, 2, 2)]),
        (reconstruction_loss, [ones(2, 1, 2, 2)], [torch.zeros(2, 1, 2, 2), torch.tensor([False, False])]),
    ],
)
def test_nothing_to_learn_from_gives_zero_joined_to_the_graph(
    loss: Callable[..., Tensor], inputs: list[Tensor], rest: list[Tensor]
) -> None:
    value = loss(*inputs, *rest)
    assert value.shape == ()
    assert value.item() == 0
    for grad in torch.autograd.grad(value, inputs):
        assert (grad == 0).all()


def test_half_precision_is_summed_in_float32() -> None:
    torch.manual_seed(0)
    logits, label = torch.randn(6, 3), torch.tensor([0, 1, 2, -1, 1, 0])
    concepts, presence = some_concepts(6, 5), torch.rand(6, 5)
    capsules, phrases, images = torch.randn(6, 5, 8), torch.randn(5, 8), torch.randn(2, 6, 3, 16, 16)
    cases: list[tuple[Callable[..., Tensor], list[Tensor], list[Tensor]]] = [
        (class_loss, [logits], [label]),
        (presentation_loss, [presence], [concepts]),
        (triplet_loss, [capsules, phrases], [concepts]),
        (reconstruction_loss, [images[0], images[1]], []),
    ]
    for loss, inputs, rest in cases:
        half = [x.bfloat16() for x in inputs]
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(*half, *rest)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, loss(*(x.float() for x in half), *rest))


@pytest.mark.parametrize(
    ("loss", "shapes"),
    [
        (class_loss, [(2, 3), (3,)]),
        (presentation_loss, [(2, 3), (3, 2)]),
        (triplet_loss, [(2, 3, 4), (3, 5), (2, 3)]),
        (reconstruction_loss, [(2, 1, 4, 4), (2, 1, 5, 5)]),
        (reconstruction_loss, [(2, 1, 4, 4), (2, 1, 4, 4), (3,)]),
    ],
)
def test_wrong_shapes_are_named(loss: Callable[..., Tensor], shapes: list[tuple[int, ...]]) -> None:
    with refused(ValueError):
        loss(*(torch.ones(shape) for shape in shapes))


def test_compile_without_a_break() -> None:
    capsules, phrases, concepts = torch.randn(2, 3, 4), torch.randn(3, 4), some_concepts(2, 3)
    compiled = torch.compile(triplet_loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(capsules, phrases, concepts), triplet_loss(capsules, phrases, concepts))


def test_diversity_is_the_mutual_information_of_pairs_and_the_lack_of_spread() -> None:
    """Against numpy's correlations, and by hand for concepts that hardly vary."""
    presence = torch.rand(40, 5, dtype=torch.float64)
    presence[:, 4] = 0.5 + 0.03 * presence[:, 0] + 0.02 * presence[:, 4]
    r = np.corrcoef(presence.numpy().T)
    pairs = [-np.log(1 - 0.99 * r[i, j] ** 2) for i in range(5) for j in range(5) if i != j]
    spread = presence.numpy().std(0)
    expected = np.mean(pairs) + np.maximum(0, 1 - spread / 0.1).mean()
    assert diversity_loss(presence).item() == pytest.approx(expected, rel=1e-2)  # a little is added to each variance
    assert spread[4] < 0.1 < spread[0]


def test_two_concepts_that_became_one_are_driven_apart() -> None:
    """Where the square of a correlation alone would have no gradient."""
    same = torch.rand(16, 1).repeat(1, 2) + 1e-3 * torch.randn(16, 2)
    same.requires_grad_()
    for _ in range(300):
        (gradient,) = torch.autograd.grad(diversity_loss(same), same)
        same = (same - 0.05 * gradient).detach().requires_grad_()
    assert abs(np.corrcoef(same.detach().numpy().T)[0, 1]) < 0.2


@pytest.mark.parametrize("presence", [torch.full((16, 3), 0.5), torch.rand(3, 4), torch.rand(16, 1), torch.rand(16, 0)])
def test_dead_concepts_few_images_and_a_single_concept_have_finite_gradients(presence: Tensor) -> None:
    presence.requires_grad_()
    loss = diversity_loss(presence)
    loss.backward()
    assert loss.isfinite()
    assert presence.grad.isfinite().all()
    if len(presence) < 4 or not presence.shape[1]:
        assert loss == 0


@pytest.mark.parametrize("views", [1, 2, 3])
def test_consistency_is_the_divergence_of_jensen_and_shannon(views: int) -> None:
    """Against the entropy of the mean less the mean of the entropies, image by image."""
    logits = 2 * torch.randn(views * 5, 4, dtype=torch.float64)
    answers = logits.softmax(-1).numpy().reshape(views, 5, 4)

    def entropy(p: np.ndarray) -> np.ndarray:
        return -(p * np.log(p)).sum(-1)

    expected = entropy(answers.mean(0)) - entropy(answers).mean(0)
    assert consistency_loss(logits, views).item() == pytest.approx(expected.mean(), abs=1e-12)
    assert torch.autograd.gradcheck(lambda x: consistency_loss(x, views), logits.requires_grad_())


def test_consistency_of_sure_and_of_half_precise_answers_is_finite() -> None:
    sure = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], requires_grad=True)
    loss = consistency_loss(sure, 2)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert sure.grad.isfinite().all()
    assert consistency_loss(sure.bfloat16(), 2).dtype == torch.float32
    with refused(ValueError):
        consistency_loss(sure, 3)


SCORES = torch.tensor([[0.95, 0.05, 0.4], [0.3, 0.2, 0.7], [0.0, 1.0, 0.5], [0.1, 0.9, 0.1]]).double()
LABEL = torch.tensor([0, 1, -1, 2])


def by_hand(scores: torch.Tensor, label: int, margins: tuple[float, float, float] = (0.9, 0.1, 0.5)) -> float:
    total, (long, short, absent) = 0.0, margins
    for k, v in enumerate(scores.tolist()):
        total += max(0.0, long - v) ** 2 if k == label else absent * max(0.0, v - short) ** 2
    return total


@pytest.mark.parametrize("margins", [(0.9, 0.1, 0.5), (0.95, 0.05, 0.8)])
def test_it_is_the_sum_over_classes_and_the_mean_over_known_images(margins: tuple[float, float, float]) -> None:
    expected = sum(by_hand(SCORES[i], int(LABEL[i]), margins) for i in (0, 1, 3)) / 3
    assert margin_loss(SCORES, LABEL, margins).item() == pytest.approx(expected)


def test_the_weights_of_classes_make_a_weighted_mean() -> None:
    weight = torch.tensor([1.0, 3.0, 0.5])
    parts = [(by_hand(SCORES[i], int(LABEL[i])), float(weight[LABEL[i]])) for i in (0, 1, 3)]
    expected = sum(cost * w for cost, w in parts) / sum(w for _, w in parts)
    assert margin_loss(SCORES, LABEL, weight=weight).item() == pytest.approx(expected)


def test_a_mixture_is_of_both_classes() -> None:
    other = torch.tensor([1, 1, -1, 0])
    expected = 0.7 * margin_loss(SCORES, LABEL) + 0.3 * margin_loss(SCORES, other)
    torch.testing.assert_close(margin_loss(SCORES, LABEL, other=other, share=0.7), expected)


def test_classes_of_other_data_sets_do_not_count() -> None:
    sets = torch.tensor([0, 0, 1])
    expected = (by_hand(SCORES[0, :2], 0) + by_hand(SCORES[1, :2], 1) + by_hand(SCORES[3, 2:], 0)) / 3
    assert margin_loss(SCORES, LABEL, sets=sets).item() == pytest.approx(expected)


def test_nothing_known_costs_nothing_and_can_be_learned_from() -> None:
    scores = SCORES.clone().requires_grad_()
    loss = margin_loss(scores, torch.full((4,), -1))
    loss.backward()
    assert loss.item() == 0
    assert scores.grad is not None
    assert scores.grad.abs().max() == 0


def test_gradients() -> None:
    assert torch.autograd.gradcheck(lambda scores: margin_loss(scores, LABEL), (SCORES.clone().requires_grad_(),))


def test_shapes_that_do_not_fit() -> None:
    with refused(ValueError):
        margin_loss(SCORES, LABEL[:3])
