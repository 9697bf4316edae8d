"""How large the code is and how much of it a command runs, each beside its bar; a test keeps every bar.

    python -m benchmarks house [ROOT]

Each command is run in a process of its own, on drawn images. A file counts as run when a function or a class body of it
is executed before the first capsule cell, imports included.
"""

import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = "parsecaps"
BARS = {  # the goal is 36,500 lines, and 29,500 of the core: these two only fall
    "files": 235,
    "lines": 37_800,
    "lines of the core": 30_500,
    "lines of templates, YAML and JSON": 1_780,
    "files run by train": 100,
    "files run by predict": 70,
    "files run by explain": 100,
    "stack depth of train": 12,
    "equal runs of 12 lines": 0,
}
_BESIDE_THE_CORE = ("rivals", "paper", "text")
_OTHER_TEXTS = {".html", ".css", ".md", ".yaml", ".json"}
_EQUAL_LINES = 12
_THIN = ("import ", "from ", "#", "@")  # lines that do not count as equal
_CELL = ("nn/cell.py", "CapsuleCell.forward")
_QUICK = ("model.preset=tiny", "training.epochs=1", "training.batch_size=8")
_COMMANDS = {
    "train": ["train", "phantom:n=48,size=32", "--out", "run", *(word for line in _QUICK for word in ("--set", line))],
    "predict": ["predict", "run", "image.png", "--out", "answers.csv"],
    "explain": ["explain", "run", "image.png"],
}


@dataclass(frozen=True)
class Bar:
    """A number about the code, and the most that it may be; None where there is no such limit."""

    name: str
    value: int
    limit: int | None = None

    @property
    def is_met(self) -> bool:
        return self.limit is None or self.value <= self.limit


@dataclass(frozen=True)
class Way:
    """What a command runs before the first capsule cell: our files, and our frames there, the innermost first."""

    files: list[str]
    frames: list[str]


@dataclass(frozen=True)
class House:
    """The bars, what each command runs, places with equal lines, and the largest files."""

    bars: list[Bar]
    ways: dict[str, Way]
    equal: list[str]
    largest: dict[str, int]


def measure_house(root: Path) -> House:
    """Measure the package of a checkout."""
    source = root / "src" / PACKAGE
    if not source.is_dir():
        raise FileNotFoundError(f"{source} is missing; give the folder of a checkout")
    lines, others, equal, ways = count_lines(source), _other_lines(source), equal_lines(source), walk(root)
    values = {
        "files": len(lines),
        "lines": sum(lines.values()),
        "lines of the core": sum(n for file, n in lines.items() if not file.startswith(_BESIDE_THE_CORE)),
        "lines of templates, YAML and JSON": others,
        **{f"files run by {command}": len(way.files) for command, way in ways.items()},
        "stack depth of train": len(ways["train"].frames),
        "equal runs of 12 lines": len(equal),
    }
    largest = dict(sorted(lines.items(), key=lambda item: -item[1])[:10])
    return House([Bar(name, value, BARS[name]) for name, value in values.items()], ways, equal, largest)


def count_lines(source: Path) -> dict[str, int]:
    """The lines of each Python file below a folder."""
    return {
        path.relative_to(source).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(source.rglob("*.py"))
    }


def _other_lines(source: Path) -> int:
    paths = [path for path in source.rglob("*") if path.suffix in _OTHER_TEXTS]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def equal_lines(source: Path, number: int = _EQUAL_LINES) -> list[str]:
    """Pairs of places that share so many lines of code, without blank lines, comments, imports and lone punctuation."""
    places: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        file, code = path.relative_to(source).as_posix(), []
        for row, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            text = line.strip()
            if any(map(str.isalnum, text)) and not text.startswith(_THIN):
                code.append((text, row))
        for i in range(len(code) - number + 1):
            places[tuple(text for text, _ in code[i : i + number])].append((file, code[i][1]))
    found: dict[tuple[str, str], str] = {}  # the first run of each pair of files
    for first, *rest in places.values():
        for other in rest:
            found.setdefault((first[0], other[0]), f"{first[0]}:{first[1]} ~ {other[0]}:{other[1]}")
    return list(found.values())


def walk(root: Path) -> dict[str, Way]:
    """What each command runs, each in a process of its own: a run is trained, then asked about an image."""
    found = {}
    source = (root / "src").resolve()
    with tempfile.TemporaryDirectory() as folder:
        places = {"PYTHONPATH": str(source), "PARSECAPS_CACHE": str(Path(folder) / "cache")}
        for command, words in _COMMANDS.items():
            done = subprocess.run(  # -P: not the modules beside this file
                [sys.executable, "-P", str(Path(__file__).resolve()), str(source / PACKAGE), *words],
                cwd=folder,
                env=os.environ | places,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
                raise OSError(f"{root} could not be walked: {reason}")
            found[command] = Way(**json.loads((Path(folder) / "way.json").read_text(encoding="utf-8")))
    return found


class Recorder:
    """Notes the files below a folder of which a function or class body runs, until a certain function is called."""

    def __init__(self, source: str, until: tuple[str, str]) -> None:
        self.start, self.until = source + os.sep, until
        self.files: set[str] = set()
        self.frames: list[str] = []

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event != "call" or self.frames:
            return
        file = self._file(frame)
        if not file or frame.f_code.co_name == "<module>":
            return
        if (file, frame.f_code.co_qualname) == self.until:
            while frame is not None:
                if self._file(frame) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a function
                    self.frames.append(frame.f_code.co_qualname)
                frame = frame.f_back
            sys.setprofile(None)
            return
        self.files.add(file)

    def _file(self, frame: Any) -> str:
        path = frame.f_code.co_filename
        return Path(path.removeprefix(self.start)).as_posix() if path.startswith(self.start) else ""

    def record(self, command: Any) -> Way:
        """Call a command, and return what it ran."""
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            command()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        return Way(sorted(self.files), self.frames)


def _run(words: Sequence[str]) -> None:
    from parsecaps.cli import app

    app(words, standalone_mode=False)


def _walk_here(source: str, words: Sequence[str]) -> None:
    import torch  # noqa: F401 - loaded before the recorder, which would slow it

    way = Recorder(source, _CELL).record(lambda: _run(words))
    Path("way.json").write_text(json.dumps({"files": way.files, "frames": way.frames}), encoding="utf-8")
    if words[0] == "train":
        from PIL import Image

        from parsecaps.data.phantom import draw

        Image.fromarray(draw([0], size=32).image[0].transpose(1, 2, 0)).save("image.png")


if __name__ == "__main__":
    _walk_here(sys.argv[1], sys.argv[2:])
