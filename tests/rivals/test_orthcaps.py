"""OrthCaps, after the paper's description, keeps the contract of every model."""

from typing import Any

import pytest
import torch

from parsecaps import load_config
from parsecaps.audit.redundancy import capsule_similarity
from parsecaps.explain.attribution import Target, grad_cam, has_routes
from parsecaps.models.summary import summarize
from parsecaps.models.transfer import transfer
from parsecaps.nn.capsules import CapsuleLayer
from parsecaps.rivals import OrthCaps
from parsecaps.rivals.orthcaps import OrthogonalAttention
from tests.models.contract import CompileContract, ExportContract, ModelContract


def tiny(**changes: Any) -> OrthCaps:
    return OrthCaps.from_preset("tiny", **{"num_classes": 3, **changes})


class TestOrthCaps(CompileContract, ExportContract):
    def build(self) -> OrthCaps:
        return tiny(dropout=0.0)


class TestInColour(ModelContract):
    def build(self) -> OrthCaps:
        return tiny(num_classes=2, in_channels=3, image_size=50, theta=1.0, dropout=0.0)


def test_the_number_of_weights_against_the_later_code_of_the_authors() -> None:
    """Theirs has 422,752 at 224 pixels and three classes; what is missing here does nothing there."""
    matrices = 16 * 16 * 8 * 8 + 16 * 16 * 16 * 16 + 2 * 16 * 8 * 8 * 8  # of an older attention, never called
    layers = 2 * (16 * 9 + 16 + 16 * 128 + 128)  # two capsule layers that are never called
    attentions = (16 * 8 * 8 + 16 * 8) + sum(16 * n * m + 16 * n + 16 for m, n in ((8, 8), (8, 16), (16, 16)))
    repeated = 2 * (16 * 9 + 16)  # two of three convolutions whose output is overwritten
    biases = 32 + 64 + 128 + 128 + 256  # in front of a batch normalisation, which takes them out
    unused = matrices + layers + attentions + repeated + biases
    count = sum(weight.numel() for weight in OrthCaps(num_classes=3).parameters())
    assert count == 309_840
    assert count + unused == 422_752


def test_the_table_has_the_capsules_of_every_layer() -> None:
    rows = {row.name: (row.n, row.d) for row in summarize(OrthCaps(num_classes=3, image_size=112))}
    assert rows["primary capsules"] == (8 * 14 * 14, 16)
    assert rows["block"] == (16 * 7 * 7, 16)
    assert rows["class capsules"] == (3, 16)


@pytest.mark.parametrize(
    ("size", "stem", "top"), [(28, 28, 7), (32, 32, 8), (45, 23, 6), (64, 32, 8), (100, 25, 7), (224, 28, 7)]
)
def test_smaller_images_are_halved_less_often(size: int, stem: int, top: int) -> None:
    model = tiny(image_size=size).eval()
    seen = []
    model.stem.register_forward_hook(lambda module, given, out: seen.append(out.shape[-1]))
    assert model(torch.rand(1, 1, size, size)).logits.shape == (1, 3)
    assert seen == [stem]
    assert model.classes.width == top


def test_the_score_is_the_length_of_the_class_capsule() -> None:
    output = tiny().eval()(torch.rand(4, 1, 32, 32))
    torch.testing.assert_close(output.logits, output.class_capsules.norm(dim=-1))
    assert output.logits.max() < 1


def test_pruning_changes_the_answer_and_the_routing_weights_are_trained() -> None:
    model = tiny().eval()
    image = torch.rand(4, 1, 32, 32)
    answers = []
    for theta in (1.0, -1.0):  # nothing goes; all but the longest go
        model.pruning.theta = theta
        answers.append(model(image).logits)
    assert not torch.allclose(*answers)
    routing = [module for module in model.modules() if isinstance(module, OrthogonalAttention)]
    trained = {id(weight) for weight in model.parameters()}
    assert len(routing) == 3
    assert all({id(each.choose), id(each.turn)} <= trained for each in routing)


def test_dropout_is_off_when_it_answers() -> None:
    model = tiny(dropout=0.5).eval()
    image = torch.rand(2, 1, 32, 32)
    assert torch.equal(model(image).logits, model(image).logits)
    model.classes.train()
    assert not torch.equal(model(image).logits, model(image).logits)


def test_layers_of_capsules_are_marked_and_gradient_maps_work() -> None:
    model = tiny().eval()
    marked = [name for name, module in model.named_modules() if isinstance(module, CapsuleLayer)]
    assert marked == ["primary", "pruning", "block", "classes"]
    assert [each.layer for each in capsule_similarity(model, [torch.rand(2, 1, 32, 32)])] == marked
    assert not has_routes(model)  # a child of its class capsules is a whole map, without a place
    assert grad_cam(model, torch.rand(2, 1, 32, 32), [Target("classes", 1)]).shape == (2, 1, 32, 32)


def test_classes_in_another_order_take_what_is_theirs() -> None:
    model, other = tiny(), tiny()
    transfer(model, other.state_dict(), {"classes": ["a", "b", "c"]}, {"classes": ["c", "a", "d"]})
    for name in ("weight", "bias"):
        torch.testing.assert_close(getattr(model.classes, name)[0], getattr(other.classes, name)[2])
    torch.testing.assert_close(model.classes.attention.choose[:, 1], other.classes.attention.choose[:, 0])
    torch.testing.assert_close(model.classes.attention.turn[1], other.classes.attention.turn[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_concepts": 2}, r"OrthCaps has no place for concepts.*give 0"),
        ({"theta": 2.0}, r"theta is 2.0; give a cosine similarity"),
        ({"stem_channels": (8, 8)}, r"stem_channels has 2 numbers; give 4"),
        ({"dim": 0}, r"dim is 0; give whole numbers from 1"),
        ({"dropout": 1.5}, r"dropout is 1.5; give a number from 0 to below 1"),
    ],
)
def test_bad_arguments(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        tiny(**changes)
    assert "\n" not in str(error.value)


def test_the_recipe_can_be_read() -> None:
    config = load_config("orthcaps")
    assert config.model.kind == "OrthCaps"
    assert (config.training.optimizer, config.training.learning_rate, config.training.epochs) == ("adamw", 5e-3, 300)


def test_it_has_no_decoder() -> None:
    with pytest.raises(ValueError, match=r"OrthCaps has no decoder; call it without reconstruct"):
        tiny()(torch.rand(1, 1, 32, 32), reconstruct=True)
