"""Gradient maps against formulas of their own, on any model."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.explain.gradient_maps import GRADIENT_MAPS, grad_cam, integrated_gradients, occlusion, saliency
from parsecaps.explain.path import neutral
from parsecaps.models import PlainCNN
from parsecaps.nn.recorder import record_stages
from parsecaps.types import Output
from tests.explain.small_models import random_image, small_model


class Sums(nn.Module):
    """Two concepts: the left half of the image, and the right half doubled and negative."""

    def forward(self, image: Tensor) -> Output:
        left, right = (half.sum((1, 2, 3)) for half in image.chunk(2, -1))
        presence = torch.stack([left, -2 * right], 1)
        return Output(presence, presence=presence)


IMAGE = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", GRADIENT_MAPS)
def test_shapes_signs_and_rows(name: str) -> None:
    model = small_model()
    image = random_image(model)
    maps = GRADIENT_MAPS[name](model, image)
    assert maps.shape == (2, 3, 40, 40)
    assert maps.min() >= 0
    assert not maps.requires_grad
    torch.testing.assert_close(maps[1:], GRADIENT_MAPS[name](model, image[1:]))
    if name != "saliency":
        torch.testing.assert_close(GRADIENT_MAPS[name](model, image, signed=True).clamp_min(0), maps)


def test_integrated_gradients_of_a_linear_model() -> None:
    found = integrated_gradients(Sums(), IMAGE, signed=True)
    difference = (IMAGE - neutral(IMAGE)).sum(1)
    expected = torch.zeros(2, 2, 16, 16)
    expected[:, 0, :, :8], expected[:, 1, :, 8:] = difference[..., :8], -2 * difference[..., 8:]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_saliency_of_a_linear_model() -> None:
    found = saliency(Sums(), IMAGE)
    assert found[0, 0, 0, 0].item() == pytest.approx(3**0.5)
    assert found[0, 1, 0, 15].item() == pytest.approx(2 * 3**0.5)
    assert saliency(Sums(), IMAGE, signed=True)[0, 1, 0, 15].item() == pytest.approx(-6)


def test_occlusion_of_a_linear_model() -> None:
    found = occlusion(Sums(), IMAGE, signed=True)
    difference = (IMAGE - neutral(IMAGE)).sum(1)
    corner = difference[:, :4, :4].sum((1, 2))  # only one window covers the pixel in the corner
    torch.testing.assert_close(found[:, 0, 0, 0], corner, atol=1e-4, rtol=1e-4)


def test_grad_cam_by_its_formula() -> None:
    model = small_model()
    image = random_image(model)
    with record_stages(model) as stages:
        kept: list[Tensor] = []
        handle = model.primary.norm.register_forward_hook(lambda module, given, result: kept.append(result))
        presence = model(image).presence
        handle.remove()
    assert stages
    gradient = torch.autograd.grad(presence[:, 1].sum(), kept[0])[0]
    by_hand = (gradient.mean((2, 3), keepdim=True) * kept[0]).sum(1, keepdim=True)
    by_hand = F.interpolate(by_hand, (40, 40), mode="bilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(grad_cam(model, image, signed=True)[:, 1], by_hand)


def test_any_model_has_gradient_maps_of_its_classes() -> None:
    torch.manual_seed(0)
    model = PlainCNN(num_classes=3, image_size=32).eval()
    for method in GRADIENT_MAPS.values():
        assert method(model, torch.rand(1, 1, 32, 32), about="classes").shape == (1, 3, 32, 32)
        with pytest.raises(ValueError, match="no concepts to explain; ask for its classes"):
            method(model, torch.rand(1, 1, 32, 32))


def test_grad_cam_needs_a_feature_map() -> None:
    with pytest.raises(ValueError, match="Sums has no feature map for Grad-CAM; choose another map"):
        grad_cam(Sums(), IMAGE)
