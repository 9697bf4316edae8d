"""The Python in README.md runs as it stands."""

import re
from pathlib import Path

import pytest
from PIL import Image

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (90, 70), (200, 150, 120)).save("image.png")
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    scores, run = names["scores"], names["run"]
    assert scores == run.scores
    assert scores["accuracy"].n == 40
    assert (run.folder / "scores.html").is_file()
    assert (tmp_path / "my-model" / "model.safetensors").is_file()
    assert tuple(names["couplings"][0].coupling.shape) == (2, 4, 196, 784)
    assert tuple(names["output"].presence.shape) == (2, 7)
