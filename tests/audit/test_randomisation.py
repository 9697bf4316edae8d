from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.audit.faithfulness import (
    randomise,
    randomise_cascade,
    rank_correlation,
    stages_from_top,
    structural_similarity,
    summarise_cascade,
)
from parsecaps.metrics import means
from parsecaps.models import ParseCaps
from tests.explain.oracle import quantus

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
    np.testing.assert_array_equal(measured["gradient"].of([2, 0]).ssim, measured["gradient"].ssim[[2, 0]])
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
