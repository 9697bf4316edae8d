"""What a network takes from another one: by name, whatever the order, the grid, the colour or the image size."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from parsecaps.models import ParseCaps, PlainCNN, PretrainedModel
from parsecaps.models.transfer import Transfer, transfer, trunk_settings
from parsecaps.rivals import CapsNet

CLASSES = ("nevus", "melanoma")
CONCEPTS = ("veil", "streaks", "dots")


def network(classes: Sequence[str] = CLASSES, concepts: Sequence[str] = CONCEPTS, **changes: Any) -> PretrainedModel:
    """A tiny network in evaluation mode, with running statistics that are not those of a new one."""
    kind = changes.pop("kind", ParseCaps)
    model: PretrainedModel = kind.from_preset(
        "tiny", num_classes=len(classes), num_concepts=len(concepts), **changes
    ).eval()
    for name, tensor in model.state_dict().items():
        if name.endswith("running_mean"):
            tensor.copy_(0.02 * torch.randn_like(tensor))
        if name.endswith("running_var"):
            tensor.copy_(0.02 + 0.05 * torch.rand_like(tensor))
    return model


def names(classes: Sequence[str] = CLASSES, concepts: Sequence[str] = CONCEPTS) -> dict[str, Sequence[str]]:
    return {"classes": classes, "concepts": concepts}


def take(
    target: PretrainedModel, source: PretrainedModel, there: dict[str, Sequence[str]], here: dict[str, Sequence[str]]
) -> Transfer:
    return transfer(target, source.state_dict(), there, here)


def copied(model: PretrainedModel) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def pictures(model: PretrainedModel, count: int = 4) -> Tensor:
    return torch.rand(count, model.in_channels, model.image_size, model.image_size)


def changed(before: dict[str, Tensor], model: PretrainedModel) -> set[str]:
    return {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}


def test_the_same_network_takes_all_but_the_scale_of_the_pixels() -> None:
    source, target = network(), network()
    source.standardise.use([0.3], [0.2])
    target.standardise.use([0.6], [0.1])
    moved = take(target, source, names(), names())
    own = source.state_dict()
    for name, tensor in target.state_dict().items():
        if not name.startswith("standardise."):
            assert torch.equal(tensor, own[name]), name
    assert target.standardise.mean.item() == pytest.approx(0.6)
    assert target.standardise.std.item() == pytest.approx(0.1)
    assert set(moved.taken) == {name for name in own if not name.startswith("standardise.")}
    assert (moved.adapted, moved.new) == ({}, ())
    image = pictures(source)
    target.standardise.use([0.3], [0.2])
    with torch.no_grad():
        one, other = source(image, reconstruct=True), target(image, reconstruct=True)
    assert torch.equal(one.logits, other.logits)
    assert torch.equal(one.reconstruction, other.reconstruction)


@pytest.mark.parametrize(("before", "after", "how"), [(3, 1, "grey from colour"), (1, 3, "colour from grey")])
def test_a_grey_image_has_the_same_features_in_colour_and_in_grey(before: int, after: int, how: str) -> None:
    source, target = network(in_channels=before), network(in_channels=after)
    moved = take(target, source, names(), names())
    assert moved.adapted == {"initial.layers.0.weight": how}
    assert {name.partition(".")[0] for name in moved.new} == {"decoder"}  # it draws in the other colours
    grey = torch.rand(4, 1, 32, 32)
    with torch.no_grad():
        one = source.initial(grey.expand(-1, before, -1, -1))  # type: ignore[operator]
        other = target.initial(grey.expand(-1, after, -1, -1))  # type: ignore[operator]
    assert one.std() > 0.1
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"image_size": 40}),
        ({"image_size": 40}, {}),
        ({}, {"grid_width": 28}),
        ({"image_size": 40}, {"grid_width": 28}),
    ],
    ids=["2 to 3", "3 to 2", "2 to 4", "3 to 4"],
)
def test_equal_top_capsules_are_read_alike_on_another_grid(before: dict[str, int], after: dict[str, int]) -> None:
    source, target = network(**before), network(**after)
    assert isinstance(source, ParseCaps)
    assert isinstance(target, ParseCaps)
    here, there = target.widths[-1], source.widths[-1]
    assert here != there
    moved = take(target, source, names(), names())
    how = f"top capsules {here} x {here} from {there} x {there}"
    assert moved.adapted == {f"{head}.readout.over_capsules": how for head in ("classes", "concepts")}
    capsule = torch.randn(3, 1, 16)
    with torch.no_grad():
        for head in ("classes", "concepts"):
            one = getattr(source, head)(capsule.expand(-1, there**2, -1))
            other = getattr(target, head)(capsule.expand(-1, here**2, -1))
            for mine, theirs in zip(one, other, strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_classes_in_another_order_are_matched_by_name() -> None:
    source, target = network(("a", "b", "c")), network(("c", "a", "b"))
    moved = take(target, source, names(("a", "b", "c")), names(("c", "a", "b")))
    image = pictures(source)
    with torch.no_grad():
        one, other = source(image), target(image)
    assert not torch.equal(one.logits[:, 0], one.logits[:, 1])
    torch.testing.assert_close(other.logits, one.logits[:, [2, 0, 1]], rtol=0, atol=1e-6)
    assert set(moved.adapted.values()) == {"3 of 3 classes by name"}
    assert moved.new == ()


def test_classes_that_are_partly_shared() -> None:
    source, target = network(("a", "b", "c")), network(("new", "b"))
    before = copied(target)
    moved = take(target, source, names(("a", "b", "c")), names(("new", "b")))
    image = pictures(source)
    with torch.no_grad():
        one, other = source(image), target(image)
    torch.testing.assert_close(other.logits[:, 1], one.logits[:, 1], rtol=0, atol=1e-6)
    after = target.state_dict()
    for name in ("classes.readout.over_capsules", "classes.readout.bias"):
        assert torch.equal(after[name][0], before[name][0])
        assert torch.equal(after[name][1], source.state_dict()[name][1])
        assert moved.adapted[name] == "1 of 2 classes by name"


def test_concepts_are_matched_by_name_and_with_them_what_makes_the_global_capsule() -> None:
    source, target = network(concepts=("veil", "streaks", "dots")), network(concepts=("dots", "veil"))
    before = copied(target)
    moved = take(target, source, names(), names(concepts=("dots", "veil")))
    image = pictures(source)
    with torch.no_grad():
        one, other = source(image), target(image)
    torch.testing.assert_close(other.presence, one.presence[:, [2, 0]], rtol=0, atol=1e-6)
    torch.testing.assert_close(other.concept_capsules, one.concept_capsules[:, [2, 0]], rtol=0, atol=1e-6)
    assert torch.equal(target.state_dict()["concepts.to_global"], source.state_dict()["concepts.to_global"][[2, 0]])
    ratio = one.global_capsule[:, :, 2] / one.global_capsule[:, :, 0]  # a softmax, of which one number is left out
    torch.testing.assert_close(other.global_capsule[:, :, 0] / other.global_capsule[:, :, 1], ratio)
    assert moved.adapted["concepts.to_global"] == "2 of 2 concepts by name"
    assert not {name for name in changed(before, target) if name.startswith("decoder.")}


@pytest.mark.parametrize("concepts", [("dots", "spots", "veil"), ("dots", "veil"), ("dots", "spots", "veil", "rim")])
@pytest.mark.parametrize("kind", [ParseCaps, PlainCNN])
def test_a_bottleneck_is_matched_by_class_and_by_concept(
    kind: type[PretrainedModel], concepts: tuple[str, ...]
) -> None:
    source, target = (network(c, m, head="bottleneck", kind=kind) for c, m in ((CLASSES, CONCEPTS), ("ba", concepts)))
    here = ("melanoma", "new")
    before = copied(target)
    moved = take(target, source, names(), names(here, concepts))
    weight, theirs = target.state_dict()["classes.weight"], source.state_dict()["classes.weight"]
    for j, concept in enumerate(concepts):
        if concept in CONCEPTS:
            assert weight[0, j] == theirs[1, CONCEPTS.index(concept)]
        else:
            assert weight[0, j] == before["classes.weight"][0, j]
    assert target.state_dict()["classes.bias"][0] == source.state_dict()["classes.bias"][1]
    assert moved.adapted["classes.weight"] == f"1 of 2 classes by name, 2 of {len(concepts)} concepts by name"


def test_a_bottleneck_of_other_concepts_alone_is_new_but_for_its_bias() -> None:
    source, target = (network(head="bottleneck") for _ in range(2))
    before = copied(target)
    moved = take(target, source, names(), names(CLASSES, ("x", "y", "z")))
    assert "classes.weight" in moved.new
    assert "classes.bias" in moved.taken
    assert torch.equal(target.state_dict()["classes.weight"], before["classes.weight"])


def test_the_heads_of_a_network_without_capsules_are_matched_by_name() -> None:
    source = network(("a", "b", "c"), ("veil", "dots"), kind=PlainCNN)
    target = network(("c", "new", "a"), ("dots", "rim"), kind=PlainCNN)
    before = copied(target)
    take(target, source, names(("a", "b", "c"), ("veil", "dots")), names(("c", "new", "a"), ("dots", "rim")))
    image = pictures(source)
    with torch.no_grad():
        one, other = source(image), target(image)
    torch.testing.assert_close(other.logits[:, [0, 2]], one.logits[:, [2, 0]], rtol=0, atol=1e-6)
    torch.testing.assert_close(other.presence[:, 0], one.presence[:, 1], rtol=0, atol=1e-6)
    after = target.state_dict()
    assert torch.equal(after["classes.weight"][1], before["classes.weight"][1])
    assert torch.equal(after["concepts.linear.bias"][1], before["concepts.linear.bias"][1])


@pytest.mark.parametrize("kind", [ParseCaps, PlainCNN])
@pytest.mark.parametrize("there", [names(), {}, names((), ())], ids=["others", "no key", "unknown"])
def test_without_a_shared_name_the_heads_stay_new(kind: type[PretrainedModel], there: dict[str, Sequence[str]]) -> None:
    source, target = network(kind=kind), network(kind=kind)
    before = copied(target)
    moved = take(target, source, there, names(("benign", "malignant"), ("x", "y", "z")))
    heads = {name for name in before if name.startswith(("classes.", "concepts.", "decoder."))}
    assert set(moved.new) == heads
    assert not heads & changed(before, target)
    rest = before.keys() - heads - {"standardise.mean", "standardise.std"}
    assert set(moved.taken) == rest
    assert all(torch.equal(target.state_dict()[name], source.state_dict()[name]) for name in rest)


@pytest.mark.parametrize(
    ("changes", "concepts"),
    [({}, ("dots", "streaks", "veil")), ({"image_size": 48}, CONCEPTS), ({"in_channels": 3}, CONCEPTS)],
    ids=["order of concepts", "image size", "colour"],
)
def test_a_decoder_for_something_else_stays_as_it_is(changes: dict[str, Any], concepts: tuple[str, ...]) -> None:
    source, target = network(), network(concepts=concepts, **changes)
    before = copied(target)
    moved = take(target, source, names(), names(concepts=concepts))
    decoder = {name for name in before if name.startswith("decoder.")}
    assert not changed(before, target) & decoder
    assert set(moved.new) == decoder


def test_an_initial_block_that_averages_first_has_the_same_convolutions() -> None:
    """The averaging is one more layer, so the numbers of all others move."""
    source, target = network(grid_width=4, image_size=64), network(grid_width=4, image_size=224)
    kernels = [name for name in target.state_dict() if name.startswith("initial.") and target.state_dict()[name].dim()]
    assert "initial.layers.0.weight" in source.state_dict()
    assert "initial.layers.0.weight" not in target.state_dict()
    moved = take(target, source, names(), names())
    assert set(kernels) <= set(moved.taken)
    for name in kernels:
        _, _, number, kind = name.split(".")
        there = source.state_dict()[f"initial.layers.{int(number) - 1}.{kind}"]
        assert torch.equal(target.state_dict()[name], there), name
    back = network(grid_width=4, image_size=64)
    take(back, target, names(), names())
    assert torch.equal(back.state_dict()["initial.layers.9.weight"], source.state_dict()["initial.layers.9.weight"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_taken_as_single(dtype: torch.dtype) -> None:
    source, target = network(("a", "b")), network(("b", "a"), image_size=40)
    halves = {name: t.to(dtype) if t.is_floating_point() else t for name, t in source.state_dict().items()}
    moved = transfer(target, halves, names(("a", "b")), names(("b", "a")))
    assert {t.dtype for t in target.state_dict().values() if t.is_floating_point()} == {torch.float32}
    for name in moved.taken:
        assert torch.equal(target.state_dict()[name], halves[name].to(target.state_dict()[name].dtype)), name
    bias = target.state_dict()["classes.readout.bias"]
    assert torch.equal(bias, halves["classes.readout.bias"].float().flip(0))
    with torch.no_grad():
        assert target(pictures(target)).logits.isfinite().all()


def test_a_network_of_other_sizes_takes_no_layer() -> None:
    source = network()
    target = network(
        dims=(6, 10, 14, 18),
        stem_channels=(5, 6, 7, 9),
        heads=(1, 1, 1),
        class_dim=9,
        concept_dim=9,
        decoder_channels=(9, 9, 9, 9),
    )
    before = copied(target)
    moved = take(target, source, names(("x", "y"), ("u", "v", "w")), names())
    weights = {name for name, _ in target.named_parameters()}
    assert not weights & {*moved.taken, *moved.adapted}
    assert not weights & changed(before, target)


def test_tensors_that_have_no_place_are_no_error() -> None:
    source, target = network(), network(cells=(1, 1, 1))
    moved = take(target, source, names(), names())
    assert moved.new == ()
    strange = transfer(network(), {"x": torch.ones(2), "classes.scale": torch.ones(2, 2)}, names(), names())
    assert (strange.taken, strange.adapted) == ((), {})


def test_the_settings_of_the_trunk_leave_the_task_out() -> None:
    model = network(head="bottleneck", in_channels=3)
    kept = trunk_settings(model.config)
    assert not kept.keys() & {"num_classes", "num_concepts", "in_channels", "image_size", "head", "dropout"}
    assert kept["dims"] == [4, 8, 12, 16]
    task = {"num_classes": 5, "num_concepts": 0, "image_size": 64}
    assert trunk_settings(ParseCaps.from_config({**kept, **task}).config) == kept


words = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=5, unique=True)


@given(words, words, words, words)
def test_whoever_is_shared_answers_as_before_and_nobody_else_is_touched(
    classes: list[str], others: list[str], concepts: list[str], other_concepts: list[str]
) -> None:
    source = network(classes, concepts, kind=PlainCNN)
    target = network(others, other_concepts, kind=PlainCNN)
    before = copied(target)
    take(target, source, names(classes, concepts), names(others, other_concepts))
    for head, there, here in (
        ("classes", classes, others),
        ("concepts.linear", concepts, other_concepts),
    ):
        for kind in ("weight", "bias"):
            name = f"{head}.{kind}"
            mine, theirs = target.state_dict()[name], source.state_dict()[name]
            for row, word in enumerate(here):
                want = theirs[there.index(word)] if word in there else before[name][row]
                assert torch.equal(mine[row], want), (name, word)


def test_class_capsules_are_taken_by_name_and_a_decoder_of_other_classes_is_not() -> None:
    first, second = (CapsNet.from_preset("tiny", num_classes=n) for n in (3, 2))
    names = {"classes": ("a", "b", "c")}, {"classes": ("c", "a")}
    found = transfer(second, first.state_dict(), *names)
    assert found.adapted == {"classes.votes.weight": "2 of 2 classes by name"}
    torch.testing.assert_close(second.classes.votes.weight, first.classes.votes.weight[:, :, [2, 0]])
    torch.testing.assert_close(second.primary.convolution.weight, first.primary.convolution.weight)
    assert {name for name in found.new if name.startswith("decoder.")} == {
        name for name in second.state_dict() if name.startswith("decoder.")
    }
    third = CapsNet.from_preset("tiny", num_classes=3)
    other = {"classes": ("x", "y", "z")}
    assert any(name.startswith("decoder.") for name in transfer(third, first.state_dict(), names[0], other).new)
    assert not transfer(third, first.state_dict(), names[0], names[0]).new
