"""A split with a leak: both ways out are named, and scores of one that was allowed say so."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parsecaps.cli import app
from parsecaps.config import load_config
from parsecaps.training import Callbacks
from parsecaps.training.fit import fit
from tests.data.make import folder_of_pictures
from tests.messages import refused


@pytest.fixture
def leaking(tmp_path: Path) -> list[str]:
    """Settings for a manifest in which one test image is a copy of one to train on."""
    folder_of_pictures(tmp_path / "pictures", per_class=8, side=32)
    shutil.copy(tmp_path / "pictures" / "a" / "0.png", tmp_path / "pictures" / "a" / "7.png")
    rows = ["image,label,patient,split"]
    for name in "ab":
        parts = ["train"] * 4 + ["val"] * 2 + ["test"] * 2
        rows += [f"pictures/{name}/{i}.png,{name},{name}{i},{part}" for i, part in enumerate(parts)]
    (tmp_path / "cases.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return [f"data.path={tmp_path / 'cases.csv'}", "model.preset=tiny", "training.epochs=1"]


def test_a_refusal_names_both_ways_out(leaking: list[str], tmp_path: Path) -> None:
    with refused(ValueError):
        fit(load_config(None, leaking), run_folder=tmp_path / "run", callbacks=Callbacks())


def test_scores_of_a_split_with_allowed_leaks_say_so(leaking: list[str], tmp_path: Path) -> None:
    config = load_config(None, [*leaking, "data.allow_leaks=true"])
    run = fit(config, run_folder=tmp_path / "run", callbacks=Callbacks())
    assert run.scores is not None
    assert [note for note in run.scores.notes if "leaks between the parts (1) were allowed" in note]
    page = run.page_file.read_text(encoding="utf-8")
    assert "leaks between the parts (1) were allowed" in page


def test_a_file_called_like_settings_of_the_package_is_read_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cemri").write_text("training: {epochs: 0}", encoding="utf-8")
    done = CliRunner().invoke(app, ["train", "phantom:n=20,size=32", "--config", "cemri"])
    assert "--config cemri: the file of that name here" in done.stderr
    assert "training.epochs is 0" in done.stderr
