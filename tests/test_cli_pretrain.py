"""The pretrain command, as a user types it."""

from pathlib import Path

import pytest

from parsecaps.run import Run
from tests.command import run
from tests.training.test_pretrain import write_sets

SMALL = ["--set", "model.preset=tiny", "--set", "training.epochs=1", "--set", "training.batch_size=8"]


def test_weights_are_learned_and_then_started_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_sets(tmp_path)
    licences = ["--licence", "CC0", "--licence", "CC BY 4.0", "--licence", "in-house"]
    result = run("pretrain", "skin/cases.csv", "breast", "ward", "--out", "trunk", *licences, *SMALL)
    assert result.exit_code == 0, result.output
    assert "training.class_balance: sampling (3 data sets, each class drawn as often as any other)" in result.stderr
    assert result.stdout.splitlines() == [
        "weights: trunk",
        "card: trunk/bundle/README.md",
        "start from them: parsecaps train DATA --start trunk",
    ]
    trunk = Run("trunk")
    assert trunk.config.data.licences == ("CC0", "CC BY 4.0", "in-house")
    assert (trunk.config.data.val, trunk.config.training.keep) == (0.05, "last")
    again = run("train", "--resume", "trunk")
    assert again.exit_code == 0, again.output
    settings = [*SMALL[2:], "--out", "fine"]  # the network of the weights, as no preset is named
    fine = run("train", "breast", "--start", "trunk", *settings)
    assert fine.exit_code == 0, fine.output
    assert f"weights are those of {tmp_path / 'trunk'}" in fine.stderr
    assert f"model.settings: those of the weights (started from {tmp_path / 'trunk'})" in fine.stderr
    assert "test part: 6 images" in fine.stdout
    more = run("pretrain", "breast", "ward", "--start", "fine", "--out", "more", *SMALL)
    assert more.exit_code == 0, more.output
    assert "| started from | fine (" in Run("more").card_file.read_text(encoding="utf-8")


def test_drawn_images_and_files_are_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_sets(tmp_path)
    result = run("pretrain", "phantom:n=36,size=32", "ward", "--out", "weights", *SMALL)
    assert result.exit_code == 2
    assert "phantom is drawn and others are files, which cannot be joined" in result.stderr
    assert not Path("weights").exists()
