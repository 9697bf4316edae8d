import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from parsecaps.audit.faithfulness import (
    area,
    cover,
    measure_curves,
    random_curves,
    region_curve,
    region_order,
    summarise_curves,
    target_values,
)
from parsecaps.models import PlainCNN
from tests.explain.oracle import quantus

RANDOM = np.random.default_rng


class Patch(nn.Module):
    """Looks at one square of the image and nothing else."""

    def forward(self, image: Tensor) -> Tensor:
        inside = image[:, 0, 8:16, 16:24].mean((1, 2))
        return torch.stack([inside, 1 - inside], 1)


def white_patch(count: int = 3) -> Tensor:
    image = torch.rand(count, 1, 32, 32) * 0.1
    image[:, :, 8:16, 16:24] = 1
    return image


def where_it_looks(count: int = 3) -> Tensor:
    maps = torch.zeros(count, 2, 32, 32)
    maps[:, 0, 8:16, 16:24] = 1
    return maps


def judged(metric: Any, network: nn.Module, image: torch.Tensor, target: np.ndarray, maps: torch.Tensor) -> Any:
    """What a metric of Quantus says of maps."""
    batch = {"x_batch": image.numpy(), "y_batch": target, "a_batch": maps.unsqueeze(1).numpy()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return metric(model=network, **batch, softmax=False, channel_first=True)


def test_pixel_flipping_is_that_of_quantus() -> None:
    library = quantus()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Tanh(), nn.Linear(8, 3)).eval()
    image, maps, target = torch.rand(4, 1, 6, 6), torch.rand(4, 6, 6), np.array([0, 2, 1, 0])
    metric = library.PixelFlipping(
        features_in_step=3, perturb_baseline="black", normalise=False, disable_warnings=True, display_progressbar=False
    )
    wanted = judged(metric, network, image, target, maps)
    dark = image.amin((1, 2, 3), keepdim=True).expand_as(image)
    with torch.no_grad():
        order = region_order(maps, RANDOM(0), grid=6)
        curve = region_curve(network, image, dark, order, grid=6, steps=12)
    got = curve[torch.arange(4), 1:, torch.from_numpy(target)]
    np.testing.assert_allclose(got, np.array(wanted), rtol=1e-5)


def test_region_perturbation_is_that_of_quantus() -> None:
    library = quantus()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 3)).eval()
    image, maps, target = torch.rand(3, 1, 8, 8), torch.rand(3, 8, 8), np.array([2, 1, 0])
    metric = library.RegionPerturbation(
        patch_size=2,
        order="morf",
        regions_evaluation=16,
        perturb_baseline="black",
        normalise=False,
        disable_warnings=True,
        display_progressbar=False,
    )
    wanted = judged(metric, network, image, target, maps)
    dark = image.amin((1, 2, 3), keepdim=True).expand_as(image)
    with torch.no_grad():
        curve = region_curve(network, image, dark, region_order(maps, RANDOM(0), grid=4), grid=4, steps=16)
    picked = curve[torch.arange(3), :, torch.from_numpy(target)]
    np.testing.assert_allclose(picked[:, :1] - picked[:, 1:], np.array(wanted), rtol=1e-4, atol=1e-6)


def test_the_right_map_makes_the_value_fall_at_once() -> None:
    image, values = white_patch(), Patch()
    random = random_curves(values, image, RANDOM(0), grid=4, steps=16)
    found = measure_curves(values, image, where_it_looks(), [0, 1, 2], [0, 0, 0], random, RANDOM(0), grid=4, steps=16)
    assert (found.deletion[:, 0] > 0.99).all()
    assert (found.deletion[:, 1] < 0.5).all()  # what is left of a white square when blurred
    np.testing.assert_allclose(found.insertion[:, 1], 1)
    scores = summarise_curves([found], np.arange(3), resamples=50)
    assert (scores.deletion_gain.low or 0) > 0.1
    assert (scores.insertion_gain.low or 0) > 0.1
    assert scores.deletion_gain.n == 3
    assert scores.covered[-1] == 1


def test_a_blank_or_random_map_gains_nothing() -> None:
    image = white_patch(60)
    random = random_curves(Patch(), image, RANDOM(0), grid=4)
    zero = list(range(60)), [0] * 60
    for maps in (torch.zeros(60, 2, 32, 32), torch.full((60, 2, 32, 32), torch.nan), torch.rand(60, 2, 32, 32)):
        found = measure_curves(Patch(), image, maps, *zero, random, RANDOM(3), grid=4)
        scores = summarise_curves([found], np.arange(60), resamples=200)
        assert (scores.deletion_gain.low or 0) < 0 < (scores.deletion_gain.high or 0)
        assert (scores.insertion_gain.low or 0) < 0 < (scores.insertion_gain.high or 0)


def test_insertion_ends_where_deletion_begins() -> None:
    image, values = torch.rand(2, 1, 30, 30), Patch()
    order = region_order(torch.rand(2, 30, 30), RANDOM(0), grid=8)  # regions of 3 and 4 pixels
    away = region_curve(values, image, cover(image), order)
    back = region_curve(values, cover(image), image, order)
    torch.testing.assert_close(back[:, -1], values(image))
    torch.testing.assert_close(away[:, -1], values(cover(image)))
    torch.testing.assert_close(away[:, 0], back[:, -1])


def test_covers_keep_the_mean_and_lose_the_detail() -> None:
    image = torch.rand(2, 3, 32, 32)
    blurred = cover(image)
    torch.testing.assert_close(blurred.mean((2, 3)), image.mean((2, 3)), rtol=0, atol=0.02)
    assert (blurred.std((2, 3)) < 0.15 * image.std((2, 3))).all()
    torch.testing.assert_close(cover(torch.full((1, 1, 32, 32), 0.3)), torch.full((1, 1, 32, 32), 0.3))
    assert cover(image, "mean").std((2, 3)).max() == 0
    with pytest.raises(ValueError, match="cover is 'black'; choose one of blur, mean"):
        cover(image, "black")  # type: ignore[arg-type]


def test_the_area_is_that_of_numpy() -> None:
    curves = RANDOM(0).random((4, 9))
    np.testing.assert_allclose(area(curves), np.trapezoid(curves, dx=1 / 8, axis=1))


def test_what_is_watched() -> None:
    model = PlainCNN.from_preset("tiny", num_classes=3, num_concepts=0).eval()
    image = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(target_values(model, "classes")(image), model(image).logits.softmax(-1))
    with pytest.raises(ValueError, match="no concepts; ask about its classes"):
        target_values(model, "concepts")(image)
