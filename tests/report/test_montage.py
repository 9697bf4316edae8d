"""The picture of an explanation: what is in it, and names that do not fit."""

from dataclasses import replace

import numpy as np
import torch

from parsecaps.data.sources import open_data
from parsecaps.report.montage import draw_montage
from parsecaps.report.pictures import overlay_picture
from tests.explain.make_explained import DATA, make_model

PANEL, GAP = 320, 12


def test_a_montage_has_a_panel_for_the_image_the_diagnosis_and_each_concept_seen() -> None:
    model = make_model(open_data(DATA), "bottleneck")
    said = model.explain(torch.rand(3, 32, 32), trees=0)
    for count, columns, rows in ((0, 3, 1), (2, 4, 1), (3, 4, 2), (7, 4, 3)):
        concepts = tuple(replace(each, seen=i < count) for i, each in enumerate(said.concepts))
        picture = draw_montage(replace(said, concepts=concepts), "footer")
        assert picture.width == columns * (PANEL + GAP) + GAP
        assert picture.height // (PANEL + 62) == rows  # with captions
    levels = np.asarray(picture)
    shown = np.asarray(overlay_picture(said.image, said.class_map).resize((PANEL, PANEL), resample=1))
    left = GAP + PANEL + GAP  # the second panel is the diagnosis
    assert any(np.array_equal(levels[y : y + PANEL, left : left + PANEL], shown) for y in range(20, 140))


def test_names_that_do_not_fit_are_shortened_and_odd_ones_drawn() -> None:
    model = make_model(open_data(DATA), "parallel")
    said = model.explain(torch.rand(3, 32, 32), trees=0)
    names = ("x" * 300, "黑色素 \x07", "tab\tand\nline", "עברית", "", "[/b]", "naïve Ψ")
    concepts = tuple(replace(each, name=n, seen=True) for n, each in zip(names, said.concepts, strict=True))
    picture = draw_montage(replace(said, concepts=concepts, diagnosis="y" * 500, probabilities={"y" * 500: 1.0}), "")
    assert picture.width == 4 * (PANEL + GAP) + GAP
    abstained = draw_montage(replace(said, abstain=True, possible=["nevus", "melanoma"]), "footer")
    assert not np.array_equal(np.asarray(abstained), np.asarray(draw_montage(said, "footer")))
