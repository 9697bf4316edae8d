"""Functions of any number of images are written down once, and gradients are what autograd makes of them."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.export.checking import open_session
from parsecaps.export.onnx_operators import translate
from parsecaps.export.tracing import decompositions, trace_function
from parsecaps.functional import squash
from parsecaps.functional.squash import tracing_for_export
from parsecaps.nn.locality import gather_windows
from tests.messages import refused


def exported(function: Any, image: Tensor, any_batch: bool = True) -> Any:
    """The function in ONNX Runtime."""
    builder, outputs = translate(trace_function(lambda x: (function(x),), image[:1], any_batch), ["result"])
    size = (-1 if any_batch else 1, *image.shape[1:])
    session = open_session(builder.model(size, outputs, {}).SerializeToString())
    return lambda x: session.run(None, {"image": x.numpy()})[0]


def gradient_of(function: Any) -> Any:
    def gradient(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(function(x).square().sum(), x)
        return found

    return gradient


WEIGHT = torch.randn(6, 1, 3, 3, generator=torch.Generator().manual_seed(0))
FUNCTIONS: dict[str, Any] = {
    "expanded": lambda x: torch.ones(3, 1, 1).expand(len(x), -1, 7, 7) + x.mean(1, keepdim=True),
    "matrices": lambda x: torch.eye(7) @ x @ x.mT,
    "rows of the batch": lambda x: x.flatten(0, 1).sum(-1).view(len(x), 3, 7),
    "strided convolution": lambda x: F.conv2d(x, WEIGHT, stride=2, padding=1, groups=3),
    "pooling with a border": lambda x: F.avg_pool2d(x, 2, ceil_mode=True),
    "part": lambda x: x[:, 1, 2:5],
    "windows": lambda x: gather_windows(x.flatten(2).mT, 7, 4, 2, (1, 2)),
    "squash": lambda x: squash(x - 0.5),
    "layer norm": lambda x: F.layer_norm(x, (7,)),
    "softmax": lambda x: x.softmax(-2),
    "gelu": F.gelu,
    "median": lambda x: x.flatten(2).median(2).values,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_for_any_batch_and_gradients(name: str) -> None:
    function, image = FUNCTIONS[name], torch.rand(4, 3, 7, 7)
    np.testing.assert_allclose(exported(function, image)(image), function(image).numpy(), atol=2e-6)
    if name != "median":
        gradient, one = gradient_of(function), image[:1]
        np.testing.assert_allclose(exported(gradient, one, False)(one), gradient(one).numpy(), atol=2e-5)


def test_the_gradient_of_windows_is_the_same_while_exporting() -> None:
    for width, side, stride, padding in ((7, 4, 2, (1, 2)), (6, 3, 1, (1, 1)), (8, 6, 2, (2, 2))):
        gradient = gradient_of(lambda u: gather_windows(u, width, side, stride, padding))  # noqa: B023
        u = torch.randn(2, width**2, 3)
        want = gradient(u)
        with tracing_for_export():
            torch.testing.assert_close(gradient(u), want)


def test_squash_of_nothing_is_nothing_while_exporting() -> None:
    zeros = torch.zeros(1, 3, 7, 7)
    assert (exported(squash, zeros)(zeros) == 0).all()
    slope = exported(gradient_of(lambda x: squash(x) + 1), zeros, False)(zeros)
    np.testing.assert_allclose(slope, 2, rtol=1e-6)
    tiny = torch.full((1, 3, 7, 7), 1e-7)
    np.testing.assert_allclose(exported(squash, tiny)(tiny), squash(tiny).numpy(), rtol=1e-5)


def test_expm1_keeps_its_digits() -> None:
    x = -torch.logspace(-8, 1, 50)
    torch.testing.assert_close(decompositions()[torch.ops.aten.expm1.default](x), torch.expm1(x), rtol=1e-6, atol=0)


def test_log1p_keeps_its_digits() -> None:
    x = torch.logspace(-8, 1, 49).view(1, 1, 7, 7)
    np.testing.assert_allclose(exported(torch.log1p, x)(x), torch.log1p(x).numpy(), rtol=1e-6)


def test_what_cannot_be_exported_is_said() -> None:
    image = torch.rand(4, 3, 7, 7)
    with refused(ValueError):
        exported(torch.erfinv, image)
    with refused(ValueError):
        exported(lambda x: x.double() + 1, image)
    with refused(ValueError):
        exported(lambda x: x + 1 if len(x) == 2 else x * 2, image)
    with refused(ValueError):
        exported(lambda x: F.pad(x, (0, len(x) - 3)), image)
