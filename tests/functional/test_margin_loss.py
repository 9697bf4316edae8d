"""The margin loss against its formula, image by image and class by class."""

import pytest
import torch

from parsecaps.functional import margin_loss

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
    with pytest.raises(ValueError, match=r"scores \(4, 3\) and label \(3,\); give"):
        margin_loss(SCORES, LABEL[:3])
