"""Every variant of the cell study builds, and its runs train on the folds that they are told."""

import json
import sys
from pathlib import Path

import pytest

from parsecaps.models import find_model
from parsecaps.run import Run
from studies import cell_study
from studies.cell_study import VARIANTS, variant_config
from tests.studies.cemri import write_cemri


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_builds(variant: str) -> None:
    config = variant_config(variant, [])
    assert (config == variant_config("tree", [])) == (variant == "tree")
    settings = {"num_classes": 3, "num_concepts": 0, "image_size": 112} | config.model.settings
    assert find_model(config.model.kind).from_preset(config.model.preset, **settings).num_classes == 3


@pytest.mark.parametrize("more", [["--as-published", "--around-tumour"], ["--patients", "0.5"]])
def test_runs_are_trained_on_folds(
    more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twelve patients of two slices in each of three folds; one of them is in folds 1 and 3."""
    slices = [(f"MR{100 * fold + i // 2}", i // 2 % 3 + 1, fold) for fold in (1, 2, 3) for i in range(24)]
    slices[-1] = ("MR100B", 1, 3)
    data = write_cemri(tmp_path / "cemri", slices)
    small = ["model.preset=tiny", "model.image_size=32", "training.epochs=1", "training.batch_size=8"]
    settings = [word for line in small for word in ("--set", line)]
    out = tmp_path / "out"
    arguments = ["study", str(data), "--protocol", "test", "--threads", "1", "--out", str(out), *settings, *more]
    monkeypatch.setattr(sys, "argv", arguments)
    cell_study.main()
    row = json.loads(capsys.readouterr().out.splitlines()[-1])
    trained = 48 if "--as-published" in more else 24
    assert (row["slices"], row["n"], row["test_folds"]) == (trained, 24, [3])
    assert row["epochs"] == (2 if "--patients" in more else 1)
    assert {"uniform", "strongest_1", "strongest_4"} <= set(row)
    (folder,) = (path for path in out.iterdir() if Run(path).is_there)
    assert Run(folder).data.source == ("manifest" if "--around-tumour" in more else "cemri")
    assert [word in folder.name for word in ("as_published", "around_tumour", "share")] == [
        option in more for option in ("--as-published", "--around-tumour", "--patients")
    ]
    cell_study.main()
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == row  # read, not trained
