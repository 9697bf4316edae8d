import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parsecaps.audit.redundancy import capsule_similarity
from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.nn.capsules import CapsuleLayer
from parsecaps.rivals import CapsNet
from tests.messages import refused


class Given(CapsuleLayer):
    """Gives its input as capsules."""

    def forward(self, u: Tensor) -> Tensor:
        return u


def test_known_angles() -> None:
    """0, 90 and 180 degrees, at any length; a capsule of length 0 makes no pair."""
    u = torch.tensor([[[1.0, 0], [0.1, 0], [0, 3], [-2, 0], [0, 0]]])
    (found,) = capsule_similarity(Given(), [u])
    # pairs: 1 same, 2 opposite, 3 at right angles
    assert (found.pairs, found.capsules, found.dim) == (6, 5, 2)
    assert found.mean == pytest.approx((1 - 1 - 1 + 0 + 0 + 0) / 6)
    assert found.empty == pytest.approx(1 / 5)
    expected = np.zeros(40)
    expected[[0, 20, 39]] = 2 / 6, 3 / 6, 1 / 6
    assert found.share == pytest.approx(expected)


def test_batches_add_up_to_all_pairs() -> None:
    u = torch.randn(5, 7, 3)
    (found,) = capsule_similarity(Given(), [u[:2], u[2:]])
    cosines = [
        float(torch.nn.functional.cosine_similarity(image[i], image[j], dim=0))
        for image in u
        for i in range(7)
        for j in range(i)
    ]
    assert found.mean == pytest.approx(np.mean(cosines), abs=1e-5)
    assert found.share == pytest.approx(np.histogram(cosines, 40, (-1, 1))[0] / len(cosines), abs=1e-6)


def test_every_capsule_layer_of_a_model_in_order() -> None:
    model = ParseCaps.from_preset("tiny", num_classes=3).train()
    image = torch.rand(2, 1, 32, 32)
    found = capsule_similarity(model, [image])
    shapes = {each.layer: (each.capsules, each.dim) for each in found}
    assert list(shapes.items()) == [
        ("primary", (256, 4)),
        ("blocks.0.0", (64, 8)),
        ("blocks.1.0", (16, 12)),
        ("blocks.2.0", (4, 16)),
        ("blocks.2.1", (4, 16)),
        ("concepts.readout", (3, 8)),
        ("classes.readout", (3, 8)),
    ]
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())
    with torch.no_grad():
        capsules = model.eval()(image).concept_capsules
    cosine = torch.nn.functional.normalize(capsules, dim=-1) @ torch.nn.functional.normalize(capsules, dim=-1).mT
    above = [float(cosine[b, i, j]) for b in range(2) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert next(each for each in found if each.layer == "concepts.readout").mean == pytest.approx(
        np.mean(above), abs=1e-5
    )


@pytest.mark.parametrize("routing", ["dynamic", "none"])
def test_the_capsules_of_other_networks_are_found(routing: str) -> None:
    model = CapsNet.from_preset("tiny", num_classes=5, routing=routing)
    found = capsule_similarity(model, [torch.rand(2, 1, 32, 32)])
    assert [(each.capsules, each.dim) for each in found] == [(256, 4), (5, 8)]
    with torch.no_grad():
        torch.manual_seed(1)
        image = torch.rand(1, 1, 32, 32)
        directions = torch.nn.functional.normalize(model.eval()(image).class_capsules[0], dim=-1)
    pairs = [float(directions[i] @ directions[j]) for i in range(5) for j in range(i)]
    assert capsule_similarity(model, [image])[-1].mean == pytest.approx(np.mean(pairs), abs=1e-5)


def test_a_plain_network_stands_beside_by_its_feature_maps() -> None:
    model = PlainCNN(num_classes=2, image_size=32, grid_width=16, stem_channels=(4, 4, 8, 8), channels=(8, 8, 8))
    found = capsule_similarity(model, [torch.rand(1, 1, 32, 32)])
    assert (found[-1].capsules, found[-1].dim) == (4, 8)
    assert all(-1 <= (each.mean or 0) <= 1 and sum(each.share) == pytest.approx(1) for each in found if each.pairs)
    kept: list[Tensor] = []
    handle = model.layers[-1].register_forward_hook(lambda module, inputs, output: kept.append(output.clone()))
    last = capsule_similarity(model, [torch.full((1, 1, 32, 32), 0.5)])[-1]
    handle.remove()
    positions = torch.nn.functional.normalize(kept[0][0].flatten(1).T, dim=-1)
    pairs = [float(positions[i] @ positions[j]) for i in range(4) for j in range(i)]
    assert last.mean == pytest.approx(np.mean(pairs), abs=1e-5)


def test_what_has_no_capsules_is_refused() -> None:
    for model, images in ((nn.Identity(), [torch.rand(1, 2)]), (Given(), [])):
        with refused(ValueError):
            capsule_similarity(model, images)
