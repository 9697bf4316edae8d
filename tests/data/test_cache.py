import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file

from parsecaps.data.cache import BadDataError, cache_folder, prepare_all
from parsecaps.data.case_set import prepared_masks
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import read_image
from tests.data.make import folder_of_pictures, picture
from tests.messages import refused

PREPARATION = Preparation(size=32, channels=3)


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    return folder_of_pictures(tmp_path / "pictures")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_images_are_those_a_single_prediction_sees(data: DataSet, cache: Path) -> None:
    prepared = prepare_all(data, PREPARATION, folder=cache)
    assert prepared.images.shape == (12, 3, 32, 32)
    assert prepared.sizes == [(48, 48)] * 12
    for case, image in zip(data.cases, prepared.images, strict=True):
        alone = PREPARATION.levels(read_image(case.image))
        assert torch.equal(alone, torch.from_numpy(np.array(image)))


def test_the_second_time_nothing_is_decoded(data: DataSet, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = prepare_all(data, PREPARATION, folder=cache)

    def refuse(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("parsecaps.data.cache.prepare_image", refuse)
    second = prepare_all(data, PREPARATION, folder=cache)
    assert np.array_equal(first.images, second.images)
    assert np.array_equal(first.fingerprints.bits, second.fingerprints.bits)


def test_other_content_or_preparation_is_another_cache(data: DataSet, cache: Path) -> None:
    before = np.array(prepare_all(data, PREPARATION, folder=cache).images)
    assert prepare_all(data, Preparation(size=40, channels=1), folder=cache).images.shape == (12, 1, 40, 40)
    Image.fromarray(picture(99)).save(data.cases[4].image)
    after = prepare_all(data, PREPARATION, folder=cache).images
    differs = [i for i in range(12) if not np.array_equal(before[i], after[i])]
    assert differs == [4]


def test_a_moved_data_set_finds_its_cache(data: DataSet, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare_all(data, PREPARATION, folder=cache)
    moved = data.root.rename(data.root.with_name("elsewhere"))
    cases = [replace(case, image=moved / case.image.relative_to(data.root)) for case in data.cases]
    files = {path for path in cache.iterdir() if path.suffix == ".safetensors"}
    prepare_all(replace(data, root=moved, cases=cases), PREPARATION, folder=cache)
    assert {path for path in cache.iterdir() if path.suffix == ".safetensors"} == files


def test_bad_files_are_refused_together_or_skipped_by_name(data: DataSet, cache: Path) -> None:
    data.cases[2].image.write_bytes(b"not an image")
    data.cases[7].image.unlink()
    with refused(BadDataError) as error:
        prepare_all(data, PREPARATION, folder=cache)
    assert len(error.value.problems) == 2
    prepared = prepare_all(data, PREPARATION, folder=cache, skip_bad=True)
    assert prepared.good == [i for i in range(12) if i not in (2, 7)]
    assert not prepared.images[2].any()
    assert {problem.file for problem in prepared.problems} == {str(data.cases[2].image), str(data.cases[7].image)}


def test_a_file_that_can_be_read_again_is(data: DataSet, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing_plugin(*_: object) -> None:
        raise ValueError("no plugin")

    with monkeypatch.context() as patch:
        patch.setattr("parsecaps.data.cache.prepare_image", missing_plugin)
        assert prepare_all(data, PREPARATION, folder=cache, skip_bad=True).good == []
    assert len(prepare_all(data, PREPARATION, folder=cache).good) == 12


def test_drawn_images_need_no_files(cache: Path, tmp_path: Path) -> None:
    data = folder_of_pictures(tmp_path / "pictures")
    drawn = np.stack([np.asarray(Image.open(case.image)).transpose(2, 0, 1) for case in data.cases])
    source = replace(data, draw=lambda rows: drawn[rows])
    expected = prepare_all(data, PREPARATION, folder=cache / "files").images
    assert np.array_equal(prepare_all(source, PREPARATION, folder=cache / "drawn").images, expected)
    part = source.subset([5, 2])
    assert np.array_equal(prepare_all(part, PREPARATION, folder=cache / "part").images, expected[[5, 2]])


BUILD = """
import sys
from pathlib import Path
from dataclasses import replace
import parsecaps.data.cache as cache
from parsecaps.data.cases import Case, DataSet
from parsecaps.data.preparation import Preparation
root, folder, slow = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
if slow:
    import time
    read = cache.prepare_image
    def slowly(*args):
        (folder.parent / "started").touch()
        (folder.parent / f"reads-{time.time_ns()}").touch()
        time.sleep(slow)
        return read(*args)
    cache.prepare_image = slowly
cases = [Case(path, i % 2, path.stem) for i, path in enumerate(sorted(root.rglob("*.png")))]
data = DataSet("folder", root, ("a", "b"), (), cases)
print(cache.prepare_all(data, Preparation(size=32, channels=3), folder=folder).images.sum())
"""


def build(data: DataSet, cache: Path, slow: float) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", BUILD, str(data.root), str(cache), str(slow)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)


def test_a_killed_run_leaves_no_broken_cache(data: DataSet, cache: Path) -> None:
    process = build(data, cache, 0.3)
    for _ in range(600):
        if (cache.parent / "started").exists():
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert list(cache.glob("*.tmp"))
    assert not list(cache.glob("*.safetensors"))
    prepared = prepare_all(data, PREPARATION, folder=cache)
    assert all(image.any() for image in prepared.images)
    assert not list(cache.glob("*.tmp"))


def test_two_processes_at_once_build_one_cache(data: DataSet, cache: Path) -> None:
    both = [build(data, cache, 0.02) for _ in range(2)]
    answers = [process.communicate(timeout=120) for process in both]
    assert answers[0][0] == answers[1][0] != ""
    assert len(list(cache.parent.glob("reads-*"))) == 12


def test_the_place_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PARSECAPS_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    monkeypatch.delenv("PARSECAPS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "parsecaps"


def change(cache: Path, edit: Callable[[bytearray], object]) -> None:
    path = next(cache.glob("*.safetensors"))
    content = bytearray(path.read_bytes())
    edit(content)
    path.write_bytes(content)


def cut_the_header(cache: Path) -> None:
    change(cache, lambda content: content.__delitem__(slice(262, None)))


def change_the_header(cache: Path) -> None:
    change(cache, lambda content: content.__setitem__(slice(0, 1024), content[:1024].replace(b"[12, 3,", b"[36, 1,")))


def change_a_pixel(cache: Path) -> None:
    change(cache, lambda content: content.__setitem__(5000, content[5000] ^ 1))


def change_a_size(cache: Path) -> None:
    change(cache, lambda content: content.__setitem__(slice(None), content.replace(b"[48, 48]", b"[48, 49]", 1)))


def cut_the_end(cache: Path) -> None:
    change(cache, lambda content: content.pop())


def empty(cache: Path) -> None:
    change(cache, lambda content: content.clear())


def empty_digests(cache: Path) -> None:
    next(cache.glob("digests-*.json")).write_bytes(b"")


@pytest.mark.parametrize(
    "damage", [cut_the_header, change_the_header, change_a_pixel, change_a_size, cut_the_end, empty, empty_digests]
)
def test_a_damaged_cache_is_named_and_made_anew(
    damage: Callable[[Path], None], data: DataSet, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = prepare_all(data, PREPARATION, folder=cache)
    pixels, bits = np.array(before.images), np.array(before.fingerprints.bits)
    damage(cache)
    after = prepare_all(data, PREPARATION, folder=cache)
    assert np.array_equal(after.images, pixels)
    assert np.array_equal(after.fingerprints.bits, bits)
    assert after.sizes == before.sizes
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"the cache is damaged: {cache}")
    prepare_all(data, PREPARATION, folder=cache)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("reserves", [True, False], ids=["fallocate", "write"])
def test_a_full_disk_is_one_line(reserves: bool, data: DataSet, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if reserves:
        monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    else:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
        monkeypatch.setattr("parsecaps.data.cache._header", full)
    with refused(OSError, hide=r"[\d,.]+ MB are free"):
        prepare_all(data, PREPARATION, folder=cache)
    assert not [path for path in cache.iterdir() if path.suffix in (".tmp", ".safetensors")]
    monkeypatch.undo()
    assert len(prepare_all(data, PREPARATION, folder=cache).good) == 12


def test_a_cache_is_a_safetensors_file_for_this_user_alone(data: DataSet, cache: Path) -> None:
    prepared = prepare_all(data, PREPARATION, folder=cache)
    (path,) = cache.glob("*.safetensors")
    assert path.stat().st_mode & 0o077 == 0
    stored = load_file(path)
    assert np.array_equal(stored["images"], prepared.images)
    assert np.array_equal(stored["thumbnails"], prepared.fingerprints.thumbnails)


def no_home(*_: object) -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PARSECAPS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    folder = tmp_path / f"parsecaps-{os.getuid()}"
    assert cache_folder() == cache_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with refused(OSError, hide=r"(?<=parsecaps-)\d+"):
        cache_folder()
    folder.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with refused(OSError, hide=r"(?<=parsecaps-)\d+"):
        cache_folder()


def test_a_folder_that_may_not_be_written_says_what_to_do(
    data: DataSet, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(cache))

    monkeypatch.setattr("parsecaps.data.cache.make_private_folder", refuse)
    with refused(OSError):
        prepare_all(data, PREPARATION, folder=cache)


def test_masks_are_prepared_as_the_images(tmp_path: Path) -> None:
    data = folder_of_pictures(tmp_path, per_class=1, side=40)
    drawn = np.zeros((40, 40), np.uint8)
    drawn[:10] = 255
    Image.fromarray(drawn).save(tmp_path / "mask.png")
    data = replace(data, cases=[replace(data.cases[0], mask=tmp_path / "mask.png"), data.cases[1]])
    masks = prepared_masks(data, Preparation(size=20), [1, 0])
    assert masks.sum((1, 2)).tolist() == [0, pytest.approx(100, abs=2)]
    assert masks[1, :4].min() == 1
