import warnings
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.audit.audit_cases import joined
from parsecaps.audit.faithfulness import (
    CurveMeasures,
    area,
    cover,
    curves_of_targets,
    random_curves,
    randomise,
    randomise_cascade,
    rank_correlation,
    region_curves,
    region_order,
    stages_from_top,
    structural_similarity,
    summarise_cascade,
    summarise_curves,
)
from parsecaps.metrics import means
from parsecaps.models import ParseCaps
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


IMAGE = torch.rand(3, 1, 32, 32, generator=torch.Generator().manual_seed(0))
CASE, TARGET = [0, 1, 2, 0], [0, 0, 1, 1]


def gradient(model: nn.Module) -> Tensor:
    image = IMAGE.clone().requires_grad_()
    logits = model(image).logits
    maps = [torch.autograd.grad(logits[:, k].sum(), image, retain_graph=True)[0][:, 0] for k in range(2)]
    return torch.stack(maps, 1)[CASE, TARGET]


def edges(model: nn.Module) -> Tensor:
    """Knows nothing of the model."""
    return IMAGE[CASE, 0]


def tiny() -> ParseCaps:
    return ParseCaps.from_preset("tiny", num_classes=2).eval()


def test_a_map_of_the_image_does_not_notice_and_a_gradient_does() -> None:
    model = tiny()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    makers = {"edges": edges, "gradient": gradient}
    stages: list[int] = []
    measured = randomise_cascade(
        model,
        makers,
        {name: make(model) for name, make in makers.items()},
        progress=lambda done, total: stages.append(done),
    )
    group = np.array([0, 1, 2, 0])
    same = summarise_cascade(measured["edges"], partial(means, group=group, resamples=20))
    assert all(score.value is not None and score.value > 0.999 for score in (*same.spearman, *same.ssim))
    found = summarise_cascade(measured["gradient"], partial(means, group=group, resamples=20))
    assert stages == list(range(len(found.stages) + 1))
    assert abs(found.spearman[-1].value or 0) < 0.3
    assert found.spearman[0].n == 4
    assert found.stages[0] == "classes"
    assert found.stages[-2:] == ["primary", "initial"]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_stages_come_from_the_top_and_leave_the_decoder_out() -> None:
    names = [name for name, _ in stages_from_top(tiny())]
    cells = ["blocks.2.1", "blocks.2.0", "blocks.1.0", "blocks.0.0"]
    assert names == ["classes", "concepts", "norm", *cells, "primary", "initial"]


def test_dealing_anew_keeps_the_numbers() -> None:
    layer = nn.Linear(20, 30)
    before = layer.weight.detach().clone()
    randomise(layer, torch.Generator().manual_seed(0))
    assert not torch.equal(before, layer.weight)
    assert torch.equal(before.flatten().sort().values, layer.weight.detach().flatten().sort().values)


def test_rank_correlation_is_that_of_quantus() -> None:
    random = np.random.default_rng(0)
    first, second = random.random((5, 8, 8)).round(1), random.random((5, 8, 8)).round(1)  # with ties
    second += first
    wanted = quantus().similarity_func.correlation_spearman(first.reshape(5, -1), second.reshape(5, -1), batched=True)
    np.testing.assert_allclose(rank_correlation(first, second), wanted)


def test_blank_maps_are_like_no_other() -> None:
    random = np.random.default_rng(0)
    some, blank = random.random((2, 16, 16)), np.zeros((2, 16, 16))
    for likeness in (rank_correlation, structural_similarity):
        assert likeness(some, blank).tolist() == [0, 0]
        assert np.isnan(likeness(blank, some)).all()
        np.testing.assert_allclose(likeness(some, 3 * some), 1)
        assert (likeness(some, some[::-1]) < 0.5).all()


def test_structural_similarity_is_that_of_torchmetrics() -> None:
    from torchmetrics.functional.image import structural_similarity_index_measure

    random = np.random.default_rng(0)
    first, second = random.random((4, 37, 41)) ** 8, random.random((4, 37, 41))
    first[:, :20] = 0
    second += first
    scaled = (torch.from_numpy(maps / maps.max((1, 2), keepdims=True)).unsqueeze(1) for maps in (first, second))
    wanted = structural_similarity_index_measure(*scaled, data_range=1.0, reduction="none")
    assert isinstance(wanted, Tensor)
    np.testing.assert_allclose(structural_similarity(first, second), wanted.numpy(), rtol=1e-12)
