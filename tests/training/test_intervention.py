"""A bottleneck learns from true concepts as well, so that a correction mends a diagnosis."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.config import load_config
from parsecaps.models import ParseCaps
from parsecaps.nn.heads import Bottleneck
from parsecaps.training.objective import Objective
from parsecaps.training.terms import Intervention, TermContext
from parsecaps.types import Batch, Mixed, Output

NAN = float("nan")
CONCEPTS = torch.tensor([[1.0, 0.0], [NAN, 1.0], [NAN, NAN], [0.0, 0.0]])
LABEL = torch.tensor([0, 1, 1, -1])
PRESENCE = torch.tensor([[0.4, 0.6], [0.7, 0.2], [0.3, 0.3], [0.5, 0.5]])


def model(head: str = "bottleneck", **changes: object) -> ParseCaps:
    return ParseCaps.from_preset("tiny", num_classes=2, num_concepts=2, head=head, **changes)


def term_of(network: ParseCaps, *settings: str) -> Intervention | None:
    training = load_config(None, settings).training
    built = dict(Objective.build(TermContext(training, network)).terms.items()).get("intervention")
    assert built is None or isinstance(built, Intervention)
    return built


def given(presence: Tensor) -> tuple[Output, Batch]:
    output = Output(logits=torch.zeros(4, 2), presence=presence)
    return output, Batch(torch.zeros(4, 1, 32, 32), LABEL, CONCEPTS)


def test_classes_follow_from_true_concepts_where_they_are_known_and_teach_the_head_alone() -> None:
    network = model()
    term, head = term_of(network), network.classes
    assert term is not None
    assert isinstance(head, Bottleneck)
    presence = PRESENCE.clone().requires_grad_()
    loss = term(*given(presence))
    right = torch.tensor([[0.9, 0.1], [0.7, 0.9]])  # unknown: as it is in the image; without any truth: not counted
    expected = F.cross_entropy(head(right)[0], LABEL[:2], reduction="sum")
    torch.testing.assert_close(loss.sum, expected)
    assert float(loss.images) == 2
    loss.mean.backward()
    assert presence.grad is None
    assert head.weight.grad is not None
    assert head.weight.grad.any()
    assert not any(name.startswith("_head") for name, _ in term.named_parameters())


def test_mixed_images_count_by_their_shares() -> None:
    network = model()
    term, head = term_of(network), network.classes
    assert term is not None
    output, batch = given(PRESENCE)
    other = torch.tensor([1, 0, 0, -1])
    loss = term(output, batch._replace(mixed=Mixed(other, 0.75)))
    logits = head(torch.tensor([[0.9, 0.1], [0.7, 0.9]]))[0]
    expected = 0.75 * F.cross_entropy(logits, LABEL[:2], reduction="sum")
    expected = expected + 0.25 * F.cross_entropy(logits, other[:2], reduction="sum")
    torch.testing.assert_close(loss.sum, expected)


@pytest.mark.parametrize("settings", [("training.losses.intervention=0",), ()])
def test_it_can_be_switched_off_and_is_for_bottlenecks_alone(settings: tuple[str, ...]) -> None:
    assert term_of(model("parallel" if not settings else "bottleneck"), *settings) is None
    assert term_of(model()) is not None
