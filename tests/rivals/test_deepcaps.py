"""DeepCaps keeps the contract of every model and has as many weights as the published one."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps import load_config
from parsecaps.audit.redundancy import capsule_similarity
from parsecaps.explain.attribution import Target, attribution_maps, grad_cam, has_routes
from parsecaps.models.summary import summarize
from parsecaps.models.transfer import transfer
from parsecaps.nn.capsules import CapsuleLayer
from parsecaps.rivals import DeepCaps
from parsecaps.rivals.deepcaps import ConvCaps, DeconvDecoder, DeepCapsCell, Routing3D, halved
from tests.models.contract import CompileContract, ExportContract, ModelContract


def tiny(**changes: Any) -> DeepCaps:
    return DeepCaps.from_preset("tiny", **{"num_classes": 3, **changes})


class TestDeepCaps(CompileContract, ExportContract):
    wrong = ({"types": 0}, {"dims": (4, 0, 8, 8)}, {"dims": (4, 8)}, {"iterations": 0})

    def build(self) -> DeepCaps:
        return tiny()


class TestColourWithoutDecoder(ModelContract):
    def build(self) -> DeepCaps:
        return tiny(num_classes=2, in_channels=3, image_size=45, decoder=False, iterations=1)


@pytest.mark.parametrize(
    ("changes", "encoder", "decoder"),
    [
        ({"image_size": 28, "num_classes": 10}, 8_441_920, 58_417),
        ({"image_size": 32, "num_classes": 10, "in_channels": 3}, 8_444_224, None),
        ({"image_size": 64, "num_classes": 10, "in_channels": 3}, 13_359_424, 67_571),
        ({"image_size": 64, "num_classes": 3}, 8_769_376, 67_425),
    ],
)
def test_the_published_number_of_weights(changes: dict[str, Any], encoder: int, decoder: int | None) -> None:
    model = DeepCaps(**changes)
    assert model.decoder is not None
    drawing = sum(weight.numel() for weight in model.decoder.parameters())
    assert sum(weight.numel() for weight in model.parameters()) - drawing == encoder
    assert decoder in (None, drawing)


def test_the_table_has_the_capsules_of_every_cell() -> None:
    rows = {row.name: (row.n, row.d) for row in summarize(DeepCaps(num_classes=10, image_size=28))}
    assert rows["cell 1"] == (32 * 14 * 14, 4)
    assert rows["cell 2"] == (32 * 7 * 7, 8)
    assert rows["cell 3"] == (32 * 4 * 4, 8)
    assert rows["cell 4"] == (32 * 2 * 2, 8)
    assert rows["class capsules"] == (10, 32)
    assert rows["stem"] == (None, None)


def test_the_last_two_cells_vote_and_only_the_last_routes() -> None:
    model = DeepCaps(num_classes=10, image_size=28)
    assert model.classes.votes.weight.shape == (640, 8, 10, 32)
    assert [isinstance(cell.skip, Routing3D) for cell in model.cells] == [False, False, False, True]
    model = tiny().eval()
    seen = {}
    for name, layer in (("third", model.cells[2]), ("fourth", model.cells[3])):
        layer.register_forward_hook(lambda module, given, out, name=name: seen.update({name: out}))
    model.classes.register_forward_hook(lambda module, given, out: seen.update({"voters": given[0]}))
    model(torch.rand(2, 1, 32, 32))
    assert torch.equal(seen["voters"], model.vote_scale * torch.cat([seen["fourth"], seen["third"]], 1))


@pytest.mark.parametrize(("size", "classes", "scale"), [(28, 10, 1.0), (64, 10, 1.0), (64, 3, 0.3), (28, 2, 0.8)])
def test_votes_are_scaled_where_more_capsules_vote_than_in_the_published_networks(
    size: int, classes: int, scale: float
) -> None:
    model = DeepCaps(num_classes=classes, image_size=size, decoder=False)
    assert model.vote_scale == pytest.approx(scale)
    children = model.classes.votes.weight.shape[0]
    start = scale * model.classes.votes.weight.std().item()  # what the votes are at the start does not change
    assert start == pytest.approx((2 / (40 * classes * children)) ** 0.5, rel=0.02)


def test_the_score_is_the_length_and_the_longest_is_drawn() -> None:
    model = tiny().eval()
    output = model(torch.rand(4, 1, 32, 32), reconstruct=True)
    torch.testing.assert_close(output.logits, output.class_capsules.norm(dim=-1))
    assert 0 < output.logits.min() <= output.logits.max() < 1
    torch.testing.assert_close(output.reconstruction, model.decode(output.class_capsules, output.logits.argmax(1)))


def test_the_decoder_does_not_know_the_class() -> None:
    model = tiny().eval()
    capsules = torch.rand(2, 3, 8)
    swapped = capsules[:, [1, 0, 2]]
    zero, one = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64)
    torch.testing.assert_close(model.decode(capsules, zero), model.decode(swapped, one))
    changed = capsules.clone()
    changed[:, 1:] += 1
    torch.testing.assert_close(model.decode(capsules, zero), model.decode(changed, zero))


def test_layers_of_capsules_are_marked_and_gradient_maps_work() -> None:
    model = tiny().eval()
    marked = [name for name, module in model.named_modules() if isinstance(module, CapsuleLayer)]
    assert marked == ["cells.0", "cells.1", "cells.2", "cells.3", "classes.routing"]
    assert [each.layer for each in capsule_similarity(model, [torch.rand(2, 1, 32, 32)])] == marked
    assert grad_cam(model, torch.rand(2, 1, 32, 32), [Target("classes", 1)]).shape == (2, 1, 32, 32)


def test_route_maps_show_the_places_of_both_grids() -> None:
    """With votes of one child alone, the map is around its place, whichever of the two grids it is on."""
    model = tiny().eval()
    assert has_routes(model)
    last, before = model.class_children
    assert [(grid.width, grid.types, grid.first, grid.step) for grid in (last, before)] == [
        (2, 4, 0.5, 16),
        (4, 4, 0.5, 8),
    ]
    image, votes = torch.rand(1, 1, 32, 32), torch.randn_like(model.classes.votes.weight)
    for child, place in (((1 * 2 + 0) * 4 + 3, (16, 0)), (16 + (2 * 4 + 3) * 4 + 1, (16, 24))):
        with torch.no_grad():
            model.classes.votes.weight.zero_()
            model.classes.votes.weight[child] = votes[child]
            model.classes.routing.bias.zero_()
        found = attribution_maps(model, image, [Target("classes", 1)], "routes")[0, 0]
        assert found.max() > 0
        assert divmod(int(found.argmax()), 32) == place


def test_the_recipes_are_the_published_ones() -> None:
    first, second = load_config("deepcaps"), load_config("deepcaps-hard")
    training = first.training
    assert (training.optimizer, training.learning_rate, training.batch_size) == ("adam", 1e-3, 256)
    assert training.epochs == 100
    assert (training.schedule, training.decay, training.decay_epochs) == ("steps", 0.5, 10)
    assert second.training.losses["margin"].margins == [0.95, 0.05, 0.8]
    assert second.training.model_copy(update={"losses": training.losses}) == training
    assert second.model_copy(update={"training": training}) == first
    model = DeepCaps.from_preset(first.model.preset, num_classes=3, image_size=first.model.image_size)
    assert sum(weight.numel() for weight in model.parameters()) == 8_769_376 + 67_425


def test_classes_in_another_order_take_what_is_theirs() -> None:
    model, other = tiny(), tiny()
    there, here = {"classes": ["a", "b", "c"]}, {"classes": ["c", "a", "d"]}
    transfer(model, other.state_dict(), there, here)
    torch.testing.assert_close(model.classes.votes.weight[:, :, 0], other.classes.votes.weight[:, :, 2])
    torch.testing.assert_close(model.classes.routing.bias[1], other.classes.routing.bias[0])
    torch.testing.assert_close(model.cells[3].skip.conv.weight, other.cells[3].skip.conv.weight)


DOUBLE = torch.float64


def squashed(s: Tensor) -> Tensor:
    """The formula of Sabour et al. for one vector."""
    square = (s * s).sum()
    return square / (1 + square) * s / square.sqrt()


def routed_by_loops(layer: Routing3D, u: Tensor) -> Tensor:
    """One image (n, d): a 3D convolution over the children's numbers in a row, and the routing pair by pair."""
    width, types, dim = layer.width, layer.types, u.shape[-1]
    children = torch.zeros(types, dim, width, width, dtype=u.dtype)
    for y in range(width):
        for x in range(width):
            for t in range(types):
                children[t, :, y, x] = u[(y * width + x) * types + t]
    depth = children.reshape(1, 1, types * dim, width, width)
    kernel = layer.conv.weight.unsqueeze(1)  # (types * dim, 1, dim, 3, 3)
    votes = F.conv3d(depth, kernel, stride=(dim, 1, 1), padding=(0, 1, 1))[0]  # (types * dim, child, y, x)
    v_hat = torch.zeros(types, types, dim, width, width, dtype=u.dtype)
    for i in range(types):
        for j in range(types):
            v_hat[i, j] = votes[j * dim : (j + 1) * dim, i]
    b = torch.zeros(types, types, width, width, dtype=u.dtype)
    for _ in range(layer.iterations):
        c = torch.stack([b[i].exp() / b[i].exp().sum() for i in range(types)])  # over parent, y and x
        v = torch.zeros(types, dim, width, width, dtype=u.dtype)
        for j in range(types):
            s = sum(c[i, j] * v_hat[i, j] for i in range(types)) + layer.bias[j]
            v[j] = squashed(s)
        for i in range(types):
            for j in range(types):
                b[i, j] += (v_hat[i, j] * v[j]).sum(0)
    found = torch.zeros_like(u)
    for y in range(width):
        for x in range(width):
            for t in range(types):
                found[(y * width + x) * types + t] = v[t, :, y, x]
    return found


@pytest.mark.parametrize("iterations", [1, 3])
def test_routing_is_that_of_the_equations(iterations: int) -> None:
    layer = Routing3D(width=3, types=4, dim=2, iterations=iterations).double()
    with torch.no_grad():
        layer.conv.weight.mul_(8)  # so that the couplings are far from even
        layer.bias.add_(torch.randn_like(layer.bias))
    u = torch.randn(2, 3 * 3 * 4, 2, dtype=DOUBLE)
    expected = torch.stack([routed_by_loops(layer, each) for each in u])
    torch.testing.assert_close(layer(u), expected)


def test_a_child_shares_itself_out_over_parents_and_positions_together() -> None:
    """The same vote everywhere: the sum over all parents and positions of what one child gives is one such vote."""
    layer = Routing3D(width=3, types=2, dim=4, iterations=1)
    with torch.no_grad():
        layer.conv.weight.zero_()
        layer.conv.weight[:, :, 1, 1] = torch.eye(4).repeat(2, 1)  # each child votes for itself, for both parents
        layer.bias.zero_()
    u = torch.zeros(1, 9, 2, 4)
    u[0, :, 0, 0], u[0, :, 1, 1] = 1.0, 1.0
    v = layer(u.view(1, 18, 4)).view(9, 2, 4)
    s = 1 / 18 * torch.tensor([1.0, 1.0, 0.0, 0.0])  # of either child, 1 / (2 parents x 9 positions)
    square = 9 * (s * s).sum()
    torch.testing.assert_close(v, (square / (1 + square) * s / square.sqrt()).expand(9, 2, 4))


def test_children_are_types_and_not_stripes_of_the_map() -> None:
    """What one type says at one place reaches the votes of this child alone, and only around that place."""
    layer = Routing3D(width=5, types=3, dim=2)
    u = torch.zeros(1, 25, 3, 2)
    u[0, 2 * 5 + 1, 1] = 1.0  # y = 2, x = 1, type 1
    votes = layer.votes(u.view(1, 75, 2))[0]
    assert votes.shape == (3, 3, 2, 5, 5)
    assert votes[1, :, :, 1:4, 0:3].abs().min() > 0
    votes[1, :, :, 1:4, 0:3] = 0
    assert votes.abs().max() == 0


def test_lengths() -> None:
    layer = ConvCaps(width=6, in_types=3, in_dim=2, types=4, dim=5, stride=2)
    capsules = layer(5 * torch.randn(2, 6 * 6 * 3, 2))
    maps = layer.conv(torch.zeros(1, 6, 6, 6))
    assert capsules.shape == (2, 3 * 3 * 4, 5)
    assert maps.shape == (1, 20, 3, 3)
    lengths = capsules.norm(dim=-1)
    assert 0 < lengths.min() <= lengths.max() < 1
    routing = Routing3D(width=3, types=4, dim=5)
    whole = routing(capsules).view(2, 9, 4, 5).permute(0, 2, 1, 3).flatten(2).norm(dim=-1)
    assert 0 < whole.min() <= whole.max() < 1  # over numbers and positions, for each parent


def test_a_capsule_is_neighbouring_channels_of_the_convolution() -> None:
    layer = ConvCaps(width=4, in_types=2, in_dim=3, types=2, dim=3)
    u = torch.randn(1, 32, 3)
    maps = layer.conv(u.view(1, 4, 4, 6).permute(0, 3, 1, 2))
    for y, x, t in ((0, 3, 1), (2, 1, 0)):
        s = maps[0, 3 * t : 3 * t + 3, y, x]
        torch.testing.assert_close(layer(u)[0, (y * 4 + x) * 2 + t], squashed(s))


@pytest.mark.parametrize("width", [7, 8])
def test_a_cell_halves_the_grid_and_adds_its_skip(width: int) -> None:
    cell = DeepCapsCell(width=width, in_types=3, in_dim=1, types=2, dim=4, iterations=2)
    u = torch.randn(2, width * width * 3, 1)
    out = cell(u)
    assert out.shape == (2, 2 * 4 * 4, 4)
    a = cell.reduce(u)
    torch.testing.assert_close(out, cell.second(cell.first(a)) + cell.skip(a))
    assert cell.width == halved(width) == 4


@pytest.mark.parametrize(("size", "width"), [(28, 7), (32, 8), (45, 6), (64, 8), (100, 7), (128, 8)])
def test_the_decoder_makes_a_picture_of_any_size(size: int, width: int) -> None:
    decoder = DeconvDecoder(dim=5, channels=2, image_size=size)
    picture = decoder(torch.randn(3, 2, 5), torch.tensor([0, 1, 1]))
    assert decoder.width == width
    assert picture.shape == (3, 2, size, size)
    assert picture.min() >= 0
