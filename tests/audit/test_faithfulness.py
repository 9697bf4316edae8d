import warnings
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.audit.cases import joined
from parsecaps.audit.faithfulness import (
    CurveMeasures,
    area,
    cover,
    curves_of_targets,
    random_curves,
    region_curves,
    region_order,
    summarise_curves,
)
from parsecaps.metrics import means
from tests.explain.oracle import quantus

RANDOM = np.random.default_rng


def chance(count: int, grid: int, seed: int = 0) -> np.ndarray:
    return RANDOM(seed).random((count, grid * grid))


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
        order = region_order(maps, chance(4, 6), grid=6)
        curve = region_curves(network, image, dark, range(4), order, grid=6, steps=12).deletion
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
        order = region_order(maps, chance(3, 4), grid=4)
        curve = region_curves(network, image, dark, range(3), order, grid=4, steps=16).deletion
    picked = curve[torch.arange(3), :, torch.from_numpy(target)]
    np.testing.assert_allclose(picked[:, :1] - picked[:, 1:], np.array(wanted), rtol=1e-4, atol=1e-6)


def measure(image: Tensor, maps: Tensor, column: list[int], steps: int = 16) -> CurveMeasures:
    """A map for each image, of one target."""
    case, covered = list(range(len(image))), cover(image)
    random = random_curves(Patch(), image, covered, RANDOM(0), grid=4, steps=steps)
    order = region_order(maps, chance(len(image), 4, seed=3), grid=4)
    found = region_curves(Patch(), image, covered, case, order, grid=4, steps=steps)
    return curves_of_targets(found, random, case, column)


def test_the_right_map_makes_the_value_fall_at_once() -> None:
    image = white_patch()
    found = measure(image, where_it_looks()[:, 0], [0, 0, 0])
    assert (found.deletion[:, 0] > 0.99).all()
    assert (found.deletion[:, 1] < 0.5).all()  # what is left of a white square when blurred
    np.testing.assert_allclose(found.insertion[:, 1], 1)
    scores = summarise_curves(found, partial(means, group=np.arange(3), resamples=50))
    assert (scores.deletion_gain.low or 0) > 0.1
    assert (scores.insertion_gain.low or 0) > 0.1
    assert scores.deletion_gain.n == 3
    assert scores.covered[-1] == 1


def test_a_blank_or_random_map_gains_nothing() -> None:
    image = white_patch(60)
    for maps in (torch.zeros(60, 32, 32), torch.full((60, 32, 32), torch.nan), torch.rand(60, 32, 32)):
        scores = summarise_curves(measure(image, maps, [0] * 60), partial(means, group=np.arange(60), resamples=200))
        assert (scores.deletion_gain.low or 0) < 0 < (scores.deletion_gain.high or 0)
        assert (scores.insertion_gain.low or 0) < 0 < (scores.insertion_gain.high or 0)


def test_curves_step_by_step_also_of_several_orders_of_an_image() -> None:
    """Against images that are put together region by region; 8 regions along 30 pixels have 3 and 4."""
    image = torch.rand(2, 1, 30, 30)
    covered, case = cover(image), [1, 0, 1]
    order = region_order(torch.rand(3, 30, 30), chance(3, 8), grid=8)
    found = region_curves(Patch(), image, covered, case, order, steps=4)
    edge = [-(-30 * i // 8) for i in range(9)]
    for pair, i in enumerate(case):
        now, back = image[i : i + 1].clone(), covered[i : i + 1].clone()
        for step in range(5):
            torch.testing.assert_close(found.deletion[pair, step], Patch()(now)[0])
            torch.testing.assert_close(found.insertion[pair, step], Patch()(back)[0])
            for region in order[pair, 16 * step : 16 * step + 16].tolist():
                y, x = (slice(edge[k], edge[k + 1]) for k in divmod(region, 8))
                now[..., y, x], back[..., y, x] = covered[i, :, y, x], image[i, :, y, x]


def test_pairs_are_picked_after_all_batches() -> None:
    parts = [measure(white_patch(), torch.rand(3, 32, 32), [0, 1, 0]) for _ in range(2)]
    for whole, first, second in zip(joined(parts, [1, 3, 5]), *parts, strict=True):
        np.testing.assert_array_equal(whole, np.stack([first[1], second[0], second[2]]))


def test_covers_keep_the_mean_and_lose_the_detail() -> None:
    image = torch.rand(2, 3, 32, 32)
    blurred = cover(image)
    torch.testing.assert_close(blurred.mean((2, 3)), image.mean((2, 3)), rtol=0, atol=0.02)
    assert (blurred.std((2, 3)) < 0.15 * image.std((2, 3))).all()
    torch.testing.assert_close(cover(torch.full((1, 1, 32, 32), 0.3)), torch.full((1, 1, 32, 32), 0.3))


def test_the_area_is_that_of_numpy() -> None:
    curves = RANDOM(0).random((4, 9))
    np.testing.assert_allclose(area(curves), np.trapezoid(curves, dx=1 / 8, axis=1))
