"""The contact sheet in the docs: its outlines, its size, and that the file in the repository is what the code draws."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from parsecaps.data.phantom import draw
from studies import phantom_sheet

DOCS = Path(__file__).parents[2] / "docs" / "phantom.jpg"


def test_outlines_follow_the_masks() -> None:
    batch = draw([4], size=64, force={"regular dots and globules": True})
    image = phantom_sheet.outlined(batch, 5)
    green = (image == np.array([60, 255, 90])[:, None, None]).all(0)
    mask = batch.concept_masks[0, 5]
    assert green.any()
    assert not (green & ~mask).any()
    changed = (image != batch.image[0]).any(0)
    assert changed.mean() < 0.25
    assert not (changed & ~mask & ~batch.lesion[0]).any()


def test_command_draws_the_sheet_of_the_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "phantom.jpg"
    monkeypatch.setattr("sys.argv", ["phantom_sheet", str(out)])
    phantom_sheet.main()
    assert "1376 x 1288 px" in capsys.readouterr().out
    assert out.stat().st_size < 4e5
    with Image.open(out) as drawn, Image.open(DOCS) as kept:
        assert drawn.size == kept.size
        difference = np.asarray(drawn.convert("RGB")).astype(int) - np.asarray(kept.convert("RGB"))
    assert np.abs(difference).mean() < 2  # JPEG is not the same to the last bit everywhere
