"""ProtoCaps keeps the contract of every model, and its capsules and prototypes are those of the paper."""

import pytest
import torch
from torch import Tensor

from parsecaps.explain.attribution import Target, attribution_maps, grad_cam, route_relevance
from parsecaps.functional import squash
from parsecaps.nn import record_couplings
from parsecaps.rivals import ProtoCaps
from parsecaps.rivals.class_capsules import ClassRoutingConfig
from parsecaps.rivals.protocaps import Prototypes, SigmoidClassRouting
from tests.models.contract import CompileContract, ExportContract, ModelContract, warmed_up


class TestProtoCaps(CompileContract, ExportContract):
    wrong = ({"grades": (2, 2)}, {"grades": (2, 1, 2)}, {"prototypes": 0})

    def build(self) -> ProtoCaps:
        return ProtoCaps.from_preset("tiny", num_classes=3)


class TestGradedInColour(ModelContract):
    def build(self) -> ProtoCaps:
        settings = {"grades": (2, 4, 3), "prototypes": 3, "in_channels": 3, "image_size": 37}
        return ProtoCaps.from_preset("tiny", num_classes=2, **settings)


def test_it_has_as_many_parameters_as_published() -> None:
    grades = (5, 4, 6, 5, 5, 5, 5, 5)
    with torch.device("meta"):
        model = ProtoCaps(num_classes=5, num_concepts=8, grades=grades)
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in model.named_children()}
    assert counts == {
        "standardise": 0,
        "stem": 20_992,
        "primary": 5_308_672,
        "concepts": 2_097_152,
        "presence": 136,
        "classes": 645,
        "prototypes": 1_280,
        "decoder": 1_640_960,
    }
    assert sum(counts.values()) == 9_069_837


def routed_one_by_one(u_hat: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Routing with sigmoid couplings, written as in the paper: votes (m, n, d) -> capsules (m, d), couplings (m, n)."""
    m, n, _ = u_hat.shape
    b = torch.zeros(m, n)
    for turn in range(iterations):
        c = 1 / (1 + torch.exp(-b))
        v = torch.stack([squash(sum(c[j, i] * u_hat[j, i] for i in range(n)), "quadratic") for j in range(m)])
        if turn < iterations - 1:
            b += torch.tensor([[float(u_hat[j, i] @ v[j]) for i in range(n)] for j in range(m)])
    return v, c


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_attributes_do_not_compete_for_capsules(iterations: int) -> None:
    config = ClassRoutingConfig(capsules=4, classes=3, dim=5, iterations=iterations)
    routing, u_hat = SigmoidClassRouting(config), torch.randn(2, 3, 4, 5)
    with record_couplings(routing) as recorded:
        v = routing(u_hat)
    for k in range(2):
        expected, c = routed_one_by_one(u_hat[k], iterations)
        torch.testing.assert_close(v[k], expected)
        torch.testing.assert_close(recorded[0].coupling[k, 0], c)
    other = u_hat.clone()
    other[:, 1:] += 1
    torch.testing.assert_close(routing(other)[:, 0], v[:, 0])  # what the others get changes nothing for the first


def test_gradients_do_not_pass_through_the_couplings() -> None:
    routing = SigmoidClassRouting(ClassRoutingConfig(capsules=4, classes=2, dim=3, iterations=3))
    u_hat = torch.randn(1, 2, 4, 3, requires_grad=True)
    with record_couplings(routing) as recorded:
        routing(u_hat).sum().backward()
    fixed = u_hat.detach().clone().requires_grad_()
    c = recorded[0].coupling.squeeze(1)
    squash((c.unsqueeze(-1) * fixed).sum(2), "quadratic").sum().backward()
    torch.testing.assert_close(u_hat.grad, fixed.grad)


def test_concept_features_are_the_distances_to_the_prototypes_of_each_grade() -> None:
    model = warmed_up(ProtoCaps.from_preset("tiny", num_classes=2, grades=(2, 3, 2)))
    image = torch.rand(4, 1, 32, 32)
    distance, capsules = model(image).concept_features, model.attribute_capsules(image)
    assert distance is not None
    assert distance.shape == (4, 3, 3, 2)
    vectors = model.prototypes.weight.split([2, 3, 2])
    for j, own in enumerate(vectors):
        expected = (capsules[:, j, None, None] - own).norm(dim=-1)
        torch.testing.assert_close(distance[:, j, : len(own)], expected)
        assert (distance[:, j, len(own) :] == 0).all()


def test_presence_and_classes_are_linear_in_the_capsules() -> None:
    model = warmed_up(ProtoCaps.from_preset("tiny", num_classes=2))
    image = torch.rand(3, 1, 32, 32)
    output, capsules = model(image), model.attribute_capsules(image)
    logits = torch.einsum("bmd,kmd->bk", capsules, model.classes.weight) + model.classes.bias
    torch.testing.assert_close(output.logits, logits)
    for j in range(3):
        number = capsules[:, j] @ model.presence.weight[j] + model.presence.bias[j]
        torch.testing.assert_close(output.presence[:, j], number.sigmoid())  # type: ignore[index]


def test_grades_lie_evenly_between_0_and_1() -> None:
    prototypes = Prototypes(grades=(2, 5), per_grade=1, dim=3)
    share = torch.tensor([[0.0, 0.0], [1.0, 0.25], [0.4, 0.6], [0.6, 1.0]])
    assert prototypes.grade(share).tolist() == [[0, 0], [1, 1], [0, 2], [1, 4]]


def test_only_prototypes_that_were_found_are_replaced() -> None:
    prototypes = Prototypes(grades=(2, 3), per_grade=2, dim=4)
    before = prototypes.weight.detach().clone()
    found = torch.zeros(2, 3, 2, dtype=torch.bool)
    found[0, 1, 0] = found[1, 2, 1] = True
    capsules, case = torch.randn(2, 3, 2, 4), torch.arange(12).view(2, 3, 2)
    prototypes.replace(found, capsules, case)
    expected, rows = before.clone(), torch.full((5, 2), -1)
    expected[1, 0], rows[1, 0] = capsules[0, 1, 0], 2
    expected[4, 1], rows[4, 1] = capsules[1, 2, 1], 11
    assert torch.equal(prototypes.weight, expected)
    assert torch.equal(prototypes.case, rows)
    prototypes.replace(torch.zeros_like(found), capsules, case)
    assert torch.equal(prototypes.weight, expected)


def test_maps_are_of_classes_and_of_concepts() -> None:
    model, image = ProtoCaps.from_preset("tiny", num_classes=2).eval(), torch.rand(2, 1, 32, 32)
    targets = [Target("classes", 1), Target("concepts", 2)]
    assert grad_cam(model, image, targets).shape == (2, 2, 32, 32)
    assert attribution_maps(model, image, targets, "routes").shape == (2, 2, 32, 32)


def test_a_concept_is_explained_by_what_was_routed_to_its_own_capsule() -> None:
    model, image = warmed_up(ProtoCaps.from_preset("tiny", num_classes=2)), torch.rand(2, 1, 32, 32)
    ((of_concept,),) = route_relevance(model, image, [Target("concepts", 2)])  # (B, 1, m, n)
    assert of_concept[:, :, 2].abs().amax() > 0
    assert (of_concept[:, :, :2] == 0).all()
    ((of_class,),) = route_relevance(model, image, [Target("classes", 0)])
    assert (of_class.abs().amax((0, 1, 3)) > 0).all()
