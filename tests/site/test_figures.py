"""The figures of the docs show the network that the code builds."""

import re

import torch

from docs.site import cell_figures, network_figure
from parsecaps.explain.attribution_path import trace
from parsecaps.models import ParseCaps


def test_figures_of_the_cell_are_those_of_the_code() -> None:
    for name, drawn in cell_figures.draw_all().items():
        assert (cell_figures.ASSETS / name).read_text(encoding="utf-8") == drawn, "python -m docs.site.cell_figures"


def test_the_figure_of_the_network_has_the_sizes_of_the_preset() -> None:
    drawn = network_figure.draw()
    assert network_figure.TARGET.read_text(encoding="utf-8") == drawn, "python -m docs.site.network_figure"
    model = ParseCaps.from_preset("medical", num_classes=3, num_concepts=7).eval()
    size = model.config["image_size"]
    layers = trace(model, torch.zeros(1, model.config["in_channels"], size, size)).layers
    sizes = list(dict.fromkeys(tuple(layer.shape[1:]) for layer in layers))[:4]
    assert [*re.findall(r"(\d+)(?: capsules)? of (\d+)", drawn)] == [(str(n), str(d)) for n, d in sizes]
    assert f"{size} x {size}" in drawn
