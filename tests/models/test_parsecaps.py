"""ParseCaps and its variants: the contract, the paper's tables, and errors that say what to do."""

import shutil
from typing import Any

import pytest
import torch

from parsecaps.models import FlatCaps, ParseCaps
from parsecaps.models.parsecaps import PRESETS
from parsecaps.models.summary import summarize
from parsecaps.nn import replace_couplings
from parsecaps.nn.couplings import uniform
from tests.messages import refused
from tests.models.contract import (
    CompileContract,
    ExportContract,
    RoutingContract,
    SparseContract,
    assert_same,
    capsule_shapes,
    warmed_up,
)


def tiny(**changes: Any) -> ParseCaps:
    return ParseCaps.from_preset("tiny", **{"num_classes": 4, **changes})


TWO_CELLS = {"dims": (4, 8), "cells": (2,), "heads": (2,), "radius": (1,)}


class TestParallel(SparseContract, CompileContract, ExportContract):
    def build(self) -> ParseCaps:
        return tiny()

    def build_to_compile(self) -> ParseCaps:
        return tiny(**TWO_CELLS)


class TestOneBlock(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(dims=(4, 8), cells=(1,), heads=(2,), radius=(1,))


class TestBottleneck(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(head="bottleneck")

    def test_contributions_and_bias_add_up_to_the_logits(self) -> None:
        model = warmed_up(self.build())
        output = model(self.images(model))
        assert output.class_capsules.shape == (3, 4, model.num_concepts)
        torch.testing.assert_close(output.class_capsules.sum(-1) + model.classes.bias, output.logits)

    def test_the_logits_follow_from_the_presences_alone(self) -> None:
        model = warmed_up(self.build())
        output = model(self.images(model))
        logits, _ = model.classes(output.presence)
        torch.testing.assert_close(logits, output.logits)


class TestWithoutConcepts(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(num_concepts=0)


class TestColour(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(in_channels=3)


class TestLayerNorm(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(normalisation="layer")


class TestQuadraticSquash(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(squash_form="quadratic")


class TestOverParents(SparseContract):
    over = "parents"

    def build(self) -> ParseCaps:
        return tiny(over="parents")


class TestLearnedAlpha(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(learn_alpha=True)


class TestSoftmax(RoutingContract):
    def build(self) -> ParseCaps:
        return tiny(alpha=1.0)


class TestSparsemax(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(alpha=2.0)


class TestOtherAlpha(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(alpha=1.3)


class TestDynamic(RoutingContract, CompileContract, ExportContract):
    branches = frozenset({"agreement"})
    over = "parents"

    def build(self) -> ParseCaps:
        return tiny(routing="dynamic")

    def build_to_compile(self) -> ParseCaps:
        return tiny(routing="dynamic", **TWO_CELLS)


class TestDynamicBottleneck(RoutingContract):
    branches = frozenset({"agreement"})
    over = "parents"

    def build(self) -> ParseCaps:
        return tiny(routing="dynamic", head="bottleneck", iterations=2, squash_form="quadratic")


class TestWithoutLocality(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(locality=False)


class TestWithoutWindow(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(radius=(-1, -1, -1))


class TestAsPrinted(RoutingContract):
    """One head, no sense of place, raw queries and keys: sparse only where training makes it so."""

    def build(self) -> ParseCaps:
        as_printed = {**PRESETS["digits-paper"], **PRESETS["tiny"]}
        return ParseCaps(**{**as_printed, "heads": (1, 1, 1), "radius": (-1, -1, -1), "num_classes": 4})


class TestSize45(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(image_size=45)


class TestSize28(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(image_size=28)


class TestSize100(SparseContract):
    def build(self) -> ParseCaps:
        return tiny(image_size=100)


def on_trunk(trunk: str = "PlainCNN", **changes: Any) -> ParseCaps:
    """Evidence from four tiles, chosen by the whole image."""
    small = {"dims": (4, 8, 12), "cells": (1, 2), "heads": (2, 2), "radius": (1, 1), "num_concepts": 3}
    return ParseCaps.from_preset("trunk", **{"num_classes": 2, "image_size": 64, "trunk": trunk, **small, **changes})


class TestTrunk(SparseContract):
    cancelled = ("project.norm.bias",)
    wrong = (
        {"trunk": "none"},
        {"trunk": "none", "tile": 0},
        {"trunk": "lite1"},
        {"image_size": 31},
        {"context_cells": 0},
        {"routing": "dynamic", "whole_values": False},
    )

    def build(self) -> ParseCaps:
        model = on_trunk("lite0")
        model.load_trunks()
        return model


class TestTrunkOfWholeImage(SparseContract, CompileContract, ExportContract):
    """One stream, at an odd size."""

    def build(self) -> ParseCaps:
        block = {"dims": (4, 8), "cells": (1,), "heads": (2,), "radius": (1,)}
        return on_trunk(image_size=45, tile=0, context="none", in_channels=2, **block)


class TestTrunkBottleneck(SparseContract):
    """With a margin around tiles, and the context in all cells."""

    def build(self) -> ParseCaps:
        return on_trunk(head="bottleneck", in_channels=3, margin=16, context_cells=3)


class TestTrunkOverParents(SparseContract):
    over = "parents"

    def build(self) -> ParseCaps:
        return on_trunk(over="parents")


class TestTrunkDynamic(RoutingContract):
    branches = frozenset({"agreement"})
    over = "parents"

    def build(self) -> ParseCaps:
        return on_trunk(routing="dynamic", context="none", whole_values=False)


@pytest.mark.parametrize("cells", [1, 2, 3, 5])
def test_the_context_chooses_in_the_first_cells(cells: int) -> None:
    model = on_trunk(context_cells=cells)
    assert [cell.by_context for cell in model.cells] == [i < cells for i in range(3)]


def test_the_same_network_with_and_without_a_trunk() -> None:
    """Settings of a trunk at their defaults change nothing."""
    named = {"trunk": "none", "tile": 0, "margin": 0, "context": "none", "context_cells": 1}
    torch.manual_seed(0)
    plain = tiny()
    torch.manual_seed(0)
    other = tiny(**named)
    assert plain.config == other.config
    assert plain.state_dict().keys() == other.state_dict().keys()
    assert plain.evidence is None
    assert FlatCaps.from_preset("tiny", num_classes=2).evidence is None


def test_the_summary_counts_both_streams() -> None:
    model = on_trunk()
    rows = {row.name: row for row in summarize(model)}
    assert rows["initial block"].parameters == rows["context"].parameters > 0
    assert rows["initial block"].flops > 0
    assert rows["context"].flops > 0
    assert (rows["primary capsules"].n, rows["primary capsules"].d) == (64, 4)


@pytest.mark.parametrize(
    ("preset", "counts", "dims"),
    [("medical", [784, 196, 49, 16], [8, 16, 36, 64]), ("digits", [196, 49, 16, 4], [2, 4, 8, 16])],
)
def test_capsule_table_of_the_paper(preset: str, counts: list[int], dims: list[int]) -> None:
    model = ParseCaps.from_preset(preset, num_classes=3).eval()
    assert [len(block) for block in model.blocks] == [1, 2, 5]
    image = torch.rand(2, 1, model.image_size, model.image_size)
    with torch.no_grad():
        assert capsule_shapes(model, image) == list(zip(counts, dims, strict=True))
        output = model(image, reconstruct=True)
    assert output.reconstruction is not None
    assert output.reconstruction.shape == image.shape


@pytest.mark.parametrize("whole_values", [False, True])
def test_medical_is_as_small_as_the_paper_says(whole_values: bool) -> None:
    model = ParseCaps.from_preset("medical", num_classes=3, whole_values=whole_values)
    assert model.image_size == 224
    assert model.decoder is not None
    total = sum(p.numel() for p in model.parameters())
    assert total - sum(p.numel() for p in model.decoder.parameters()) <= 490_000
    assert total <= 3_600_000


@pytest.mark.parametrize("routing", ["saa", "dynamic"])
@pytest.mark.parametrize("preset", ["medical", "digits"])
def test_presets_learn_a_step(preset: str, routing: str) -> None:
    size = 56 if preset == "medical" else 28
    model = ParseCaps.from_preset(preset, num_classes=2, image_size=size, routing=routing)
    image, label = torch.rand(2, 1, size, size), torch.tensor([0, 1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(4):
        loss = torch.nn.functional.cross_entropy(model(image).logits, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_tiny_learns_to_tell_images_apart() -> None:
    model = ParseCaps.from_preset("tiny", num_classes=2, dropout=0.0)
    image = torch.rand(8, 1, 32, 32) * 0.2
    label = torch.arange(8) % 2
    image[label == 1, :, 8:20, 8:20] += 0.8
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(25):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(image).logits, label).backward()
        optimizer.step()
    assert (model(image).logits.argmax(1) == label).all()


def test_bfloat16_autocast() -> None:
    model = warmed_up(ParseCaps.from_preset("tiny", num_classes=3))
    image = torch.rand(2, 1, 32, 32)
    expected = model(image, reconstruct=True)
    with torch.autocast("cpu", torch.bfloat16):
        output = model(image, reconstruct=True)
    sum(part.float().sum() for part in output if part is not None).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    half = type(output)(*(None if part is None else part.float() for part in output))
    assert_same(half, expected, rtol=0.1, atol=0.1)


@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler needs g++")
def test_inductor() -> None:
    model = warmed_up(tiny(dims=(4, 8), cells=(1,), heads=(2,), radius=(1,), num_concepts=0))
    image = torch.rand(2, 1, 32, 32)
    with torch.no_grad():
        output = torch.compile(model, fullgraph=True)(image)
        assert_same(output, model(image), rtol=1e-4, atol=1e-4)


class TestRoutesCarryTheDecision:
    def test_without_values_the_image_is_lost(self) -> None:
        """Nothing climbs from the children to the parents of a block but what the couplings weigh."""
        model = warmed_up(ParseCaps.from_preset("tiny", num_classes=3))
        first = model.blocks[1][0].routing
        with torch.no_grad():
            first.sparse.value.weight.zero_()
            first.axial.value.weight.zero_()
        output = model(torch.rand(3, 1, 32, 32))
        torch.testing.assert_close(output.logits, output.logits[:1].expand(3, -1))
        torch.testing.assert_close(output.presence, output.presence[:1].expand(3, -1))

    def test_with_fixed_couplings_predictions_and_keys_do_not_matter(self) -> None:
        model = warmed_up(ParseCaps.from_preset("tiny", num_classes=3))
        image = torch.rand(3, 1, 32, 32)
        with replace_couplings(model, uniform):
            before = model(image)
        with torch.no_grad():
            for name, p in model.named_parameters():
                if any(word in name for word in ("predict", "query_norm", ".key")):
                    p.normal_()
        with replace_couplings(model, uniform):
            assert_same(model(image), before, rtol=0, atol=0)
        assert not torch.allclose(model(image).logits, before.logits)


BAD_ARGUMENTS: list[dict[str, Any]] = [
    {"num_classes": 0},
    {"num_classes": -3},
    {"num_concepts": -1},
    {"in_channels": 0},
    {"image_size": 27},
    {"alpha": 0.9},
    {"alpha": 2.1},
    {"alpha": float("nan")},
    {"head": "both"},
    {"head": "bottleneck", "num_concepts": 0},
    {"dims": (4, 8, 12)},
    {"cells": (1, 1)},
    {"heads": (2, 2, 4, 4)},
    {"radius": (1,)},
    {"heads": (3, 2, 4)},
    {"stem_channels": (8, 8, 8)},
    {"decoder_channels": (8,)},
    {"over": "both"},
    {"squash_form": "linear"},
    {"cells": (0, 1, 2)},
    {"heads": (0, 2, 4)},
    {"normalisation": "group"},
    {"numclasses": 3},
    {"whole_value": True},
    {"routing": "dynamics"},
    {"preset": "tinny"},
]


@pytest.mark.parametrize("changes", BAD_ARGUMENTS, ids=lambda value: str(value)[:40])
def test_bad_arguments_get_a_line_with_the_value_and_the_fix(changes: dict[str, Any]) -> None:
    arguments = {"preset": "tiny", "num_classes": 3, **changes}
    with refused(ValueError):
        ParseCaps.from_preset(**arguments)


nan_image = torch.rand(2, 1, 32, 32)
nan_image[1, 0, 3, 4:6] = float("nan")


@pytest.mark.parametrize(
    "image",
    [
        torch.rand(1, 32, 32),
        torch.rand(2, 2, 1, 32, 32),
        torch.rand(2, 3, 32, 32),
        torch.rand(2, 1, 32, 40),
        torch.zeros(2, 1, 32, 32, dtype=torch.uint8),
        nan_image,
        torch.full((1, 1, 32, 32), float("inf")),
    ],
    ids=["no batch axis", "five axes", "channels", "size", "dtype", "nan", "infinity"],
)
def test_bad_images_get_a_line_with_the_value_and_the_fix(image: torch.Tensor) -> None:
    model = ParseCaps.from_preset("tiny", num_classes=3).eval()
    with refused(ValueError):
        model(image)


def test_nothing_to_reconstruct_from() -> None:
    model = ParseCaps.from_preset("tiny", num_classes=3, num_concepts=0)
    with refused(ValueError):
        model(torch.rand(1, 1, 32, 32), reconstruct=True)


def test_settings_have_names() -> None:
    with pytest.raises(TypeError):
        ParseCaps(3)  # type: ignore[misc]
