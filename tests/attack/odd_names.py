"""Names that break output, and things in a folder that are no files."""

import os
import shutil
import stat
from pathlib import Path

import numpy as np
from PIL import Image

NAMES = (
    b"latin-\xe9.png",
    b"broken-\xff\xfe.png",
    b"line\nend.png",
    b"return\rend.png",
    b"tab\tend.png",
    b"bell\x07.png",
    b"red \x1b[31m.png",
    b"=cmd.png",
    b"+1.png",
    b"@sum.png",
    b"-x.png",
    b"--out.png",
    b"[/b].png",  # in a folder called [
    b"[red].png",
    b'quote".png',
    b"comma,semicolon;.png",
    b"percent%s{0}.png",
    b"hash#0.png",
    b" spaces .png",
    b"*.png",
    "ünïcödé 画像.png".encode(),
    "right \u202e to left.png".encode(),
    b"a" * 251 + b".png",
    b"UPPER.PNG",
)
ENDINGS = (b"notes.txt", b"archive.zip", b"no ending", b"picture.png.bak", b"Thumbs.db", b".hidden.png", b"virus.exe")
_LINKS = {
    "device zero.png": "/dev/zero",
    "device random.dcm": "/dev/urandom",
    "device stdin.png": "/dev/stdin",
    "device null.tif": "/dev/null",
    "dangling.png": "nothing-there.png",
    "itself.png": "itself.png",
    "there.png": "and back.png",
    "and back.png": "there.png",
    "through a file.png": "empty.png/x.png",
    "memory.dcm": "/proc/self/mem",
}


def write_odd_names(folder: Path) -> list[Path]:
    """Good images whose paths are the attack; one that is not possible on this file system is left out."""
    good = folder.parent / "good.png"
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(good)
    written = []
    for name in NAMES:
        path = folder / os.fsdecode(name)
        try:
            path.parent.mkdir(exist_ok=True)
            shutil.copy(good, path)
        except OSError:
            continue
        written.append(path)
    return written


def write_no_images(folder: Path) -> list[Path]:
    """Files whose endings are none of an image: each is counted, none is read."""
    for name in ENDINGS:
        (folder / os.fsdecode(name)).write_bytes(b"nothing to see")
    return [folder / os.fsdecode(name) for name in ENDINGS]


def write_no_files(folder: Path) -> list[Path]:
    """Empty files, folders, pipes, sockets, links to devices, to nothing and in circles."""
    for name in ("empty.png", "empty.dcm", "empty.nii.gz", "empty-ubyte", "empty.mat"):
        (folder / name).touch()
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    os.mkfifo(folder / "pipe.csv")
    os.mknod(folder / "socket.png", stat.S_IFSOCK | 0o600)
    for name, target in _LINKS.items():
        (folder / name).symlink_to(target)
    written = sorted(folder.iterdir())
    (folder / "up").symlink_to("..")  # for who walks through the folder: it is found again within itself
    return written
