"""DeepCaps keeps the contract of every model and has as many weights as the published one."""

from typing import Any

import pytest
import torch

from parsecaps import load_config
from parsecaps.audit.redundancy import capsule_similarity
from parsecaps.explain.attribution import Target, attribution_maps, grad_cam, has_routes
from parsecaps.models.summary import summarize
from parsecaps.models.transfer import transfer
from parsecaps.nn.capsules import CapsuleLayer
from parsecaps.rivals import DeepCaps
from parsecaps.rivals.deepcaps import Routing3D
from tests.models.contract import CompileContract, ExportContract, ModelContract


def tiny(**changes: Any) -> DeepCaps:
    return DeepCaps.from_preset("tiny", **{"num_classes": 3, **changes})


class TestDeepCaps(CompileContract, ExportContract):
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
    assert (training.optimizer, training.learning_rate, training.batch_size, training.epochs) == (
        "adam",
        1e-3,
        256,
        100,
    )
    assert (training.schedule, training.decay, training.decay_epochs) == ("steps", 0.5, 10)
    assert (training.margins, second.training.margins) == ((0.9, 0.1, 0.5), (0.95, 0.05, 0.8))
    assert second.change("training", margins=training.margins) == first
    model = DeepCaps.from_preset(first.model.preset, num_classes=3, image_size=first.model.image_size)
    assert sum(weight.numel() for weight in model.parameters()) == 8_769_376 + 67_425


def test_classes_in_another_order_take_what_is_theirs() -> None:
    model, other = tiny(), tiny()
    there, here = {"classes": ["a", "b", "c"]}, {"classes": ["c", "a", "d"]}
    transfer(model, other.state_dict(), there, here)
    torch.testing.assert_close(model.classes.votes.weight[:, :, 0], other.classes.votes.weight[:, :, 2])
    torch.testing.assert_close(model.classes.routing.bias[1], other.classes.routing.bias[0])
    torch.testing.assert_close(model.cells[3].skip.conv.weight, other.cells[3].skip.conv.weight)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 224}, r"image_size is 224, but DeepCaps has too many weights.*give at most 128"),
        ({"num_concepts": 2}, r"DeepCaps has no place for concepts.*give 0"),
        ({"types": 0}, r"types is 0; give whole numbers from 1"),
        ({"dims": (4, 0, 8, 8)}, r"dims is .*; give whole numbers from 1"),
        ({"dims": (4, 8)}, r"dims is \[4, 8\]; give at least two, of which the last two .* the same"),
        ({"iterations": 0}, r"iterations is 0; give at least 1"),
    ],
)
def test_bad_arguments(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        DeepCaps(**{"num_classes": 3, "image_size": 32, **changes})
    assert "\n" not in str(error.value)


def test_without_a_decoder_there_is_no_picture() -> None:
    with pytest.raises(ValueError, match=r"DeepCaps has no decoder; build it with decoder=True"):
        tiny(decoder=False)(torch.rand(1, 1, 32, 32), reconstruct=True)
