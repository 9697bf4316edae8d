"""The pretrain command, as a user types it."""

from pathlib import Path

import pytest

from parsecaps.run import Run
from tests.command import fails, run
from tests.messages import message
from tests.training.test_pretrain import write_sets

SMALL = ["--set", "model.preset=tiny", "--set", "training.epochs=1", "--set", "training.batch_size=8"]


def test_weights_are_learned_and_then_started_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_sets(tmp_path)
    licences = ["--licence", "CC0", "--licence", "CC BY 4.0", "--licence", "in-house"]
    result = run("pretrain", "skin/cases.csv", "breast", "ward", "--out", "trunk", *licences, *SMALL)
    assert result.exit_code == 0, result.output
    message(result.stderr, containing="class_balance")
    message(result.stdout)
    trunk = Run("trunk")
    assert trunk.config.data.licences == ("CC0", "CC BY 4.0", "in-house")
    assert (trunk.config.data.val, trunk.config.training.keep) == (0.05, "last")
    again = run("train", "--resume", "trunk")
    assert again.exit_code == 0, again.output
    settings = [*SMALL[2:], "--out", "fine"]  # the network of the weights, as no preset is named
    fine = run("train", "breast", "--start", "trunk", *settings)
    assert fine.exit_code == 0, fine.output
    message(fine.stderr, containing="weights")
    assert "test part: 6 images" in fine.stdout
    more = run("pretrain", "breast", "ward", "--start", "fine", "--out", "more", *SMALL)
    assert more.exit_code == 0, more.output
    assert "| started from | fine (" in Run("more").card_file.read_text(encoding="utf-8")


def test_drawn_images_and_files_are_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_sets(tmp_path)
    fails("pretrain", "phantom:n=36,size=32", "ward", "--out", "weights", *SMALL)
    assert not Path("weights").exists()
