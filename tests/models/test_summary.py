"""The layer table against numbers worked out by hand."""

import pytest
import torch

from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.models.summary import count_flops, format_summary, summarize


def test_capsules_are_those_of_the_paper() -> None:
    rows = summarize(ParseCaps.from_preset("medical", num_classes=3))
    capsules = {row.name: (row.n, row.d) for row in rows}
    assert capsules["primary capsules"] == (784, 8)
    assert capsules["block 1 cell 1"] == (196, 16)
    assert capsules["block 2 cell 2"] == (49, 36)
    assert capsules["block 3 cell 5"] == (16, 64)
    assert capsules["initial block"] == capsules["decoder"] == (None, None)


@pytest.mark.parametrize("head", ["parallel", "bottleneck"])
def test_every_parameter_is_in_one_row(head: str) -> None:
    model = ParseCaps.from_preset("tiny", num_classes=3, head=head)
    *layers, lean, total = summarize(model)
    assert total.parameters == sum(p.numel() for p in model.parameters()) == sum(r.parameters for r in layers)
    assert model.decoder is not None
    assert total.parameters - lean.parameters == sum(p.numel() for p in model.decoder.parameters())
    assert layers[-1].name == "decoder"


def test_without_concepts_there_is_one_total() -> None:
    rows = summarize(ParseCaps.from_preset("tiny", num_classes=3, num_concepts=0))
    assert [row.name for row in rows if "total" in row.name] == ["total"]
    assert "decoder" not in [row.name for row in rows]


def test_flops_of_convolutions_and_linear_layers() -> None:
    model = PlainCNN(num_classes=3, image_size=32, grid_width=16, stem_channels=(2, 3, 4, 5), channels=(6, 7, 8))
    stem = 32 * 32 * 9 * 1 * 2 + 16 * 16 * 9 * (2 * 3 + 3 * 4 + 4 * 5)  # the second convolution halves
    layers = 9 * (8 * 8 * 5 * 6 + 4 * 4 * 6 * 7 + 2 * 2 * 7 * 8)
    assert count_flops(model) == 2 * (stem + layers + 8 * 3)


def test_the_bottleneck_counts_its_products() -> None:
    rows = summarize(ParseCaps.from_preset("tiny", num_classes=4, num_concepts=5, head="bottleneck"))
    assert next(row for row in rows if row.name == "Bottleneck").flops == 2 * 4 * 5


def test_the_model_stays_as_it_was() -> None:
    model = ParseCaps.from_preset("tiny", num_classes=3).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    summarize(model)
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())


def test_plain_text_has_a_line_per_row() -> None:
    rows = summarize(ParseCaps.from_preset("tiny", num_classes=3))
    lines = format_summary(rows).splitlines()
    assert len(lines) == len(rows) + 1
    assert len({len(line) for line in lines}) == 1


def test_the_method_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    model = ParseCaps.from_preset("tiny", num_classes=3)
    model.summary()
    assert capsys.readouterr().out == format_summary(summarize(model)) + "\n"
