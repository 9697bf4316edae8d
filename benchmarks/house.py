"""How large the code is, and how many modules an image passes through: the bars that the design is held to.

    python -m benchmarks house [ROOT]

A module counts for a way through the code when one of its functions runs on that way; `__init__` files and what runs at
import do not count. Both ways are walked in processes of their own, on drawn images, through the command line.
"""

import ast
import inspect
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = "parsecaps"
_SMALL = 60  # lines; a module with one importer and fewer belongs into that importer
# a data set, a model and a verb are each a file of their own, whoever imports it
_ENTRY_POINTS = ("__main__.py", "cli/", "data/sources/", "models/")
_DATA = "phantom:n=48,size=32"
_QUICK = ("model.preset=tiny", "training.epochs=1", "training.batch_size=8")


@dataclass(frozen=True)
class Bar:
    """A number about the code, and the most that it should be; None where there is no such limit."""

    name: str
    value: int
    limit: int | None = None

    @property
    def is_met(self) -> bool:
        return self.limit is None or self.value <= self.limit


@dataclass(frozen=True)
class House:
    """What was measured: the bars, the modules behind each way, the lonely modules, and the largest files."""

    bars: list[Bar]
    ways: dict[str, list[str]]
    lonely: list[str]
    largest: dict[str, int]


def measure_house(root: Path, *, ways: bool = True) -> House:
    """Measure the package of a checkout; without `ways`, only what can be read from its files."""
    source = root / "src" / PACKAGE
    if not source.is_dir():
        raise FileNotFoundError(f"{source} is missing; give the folder of a checkout")
    lines = count_lines(source)
    lonely = lonely_modules(source)
    bars = [Bar("files in src", len(lines), 150), Bar("lines in src", sum(lines.values()), 20_000)]
    walked = walk(root) if ways else {}
    if ways:
        bars += [
            Bar("modules, parsecaps train to the saved model", len(walked["train"]), 40),
            Bar("more of them, to the scores and the page", len(walked["scores"])),
            Bar("modules, parsecaps explain to its answer", len(walked["explain"]), 22),
        ]
    bars.append(Bar(f"modules under {_SMALL} lines with a single importer", len(lonely), 0))
    largest = dict(sorted(lines.items(), key=lambda item: -item[1])[:10])
    return House(bars, walked, lonely, largest)


def count_lines(source: Path) -> dict[str, int]:
    """The lines of each Python file below a folder."""
    return {
        path.relative_to(source).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(source.rglob("*.py"))
    }


def lonely_modules(source: Path) -> list[str]:
    """Modules that are short, are no entry points, and are imported by one other module or none."""
    lines = count_lines(source)
    importers: dict[str, set[str]] = defaultdict(set)
    for file in lines:
        for name in _imported(source / file, PACKAGE, Path(file).parent.parts):
            module = _file_of(source, name)
            if module is not None and module != file:
                importers[module].add(file)
    return [
        file
        for file, length in lines.items()
        if length < _SMALL
        and not file.endswith("__init__.py")
        and not file.startswith(_ENTRY_POINTS)
        and len(importers[file]) < 2
    ]


def _imported(path: Path, package: str, folders: Sequence[str]) -> set[str]:
    """The dotted names that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inside = [package, *folders]
            start = inside[: len(inside) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def _file_of(source: Path, name: str) -> str | None:
    """The file of the longest part of a dotted name that is a module of the package."""
    parts = name.split(".")
    if parts[0] != PACKAGE:
        return None
    for end in range(len(parts), 0, -1):
        place = Path(*parts[1:end])
        for file in (place.with_suffix(".py") if end > 1 else None, place / "__init__.py"):
            if file is not None and (source / file).is_file():
                return file.as_posix()
    return None


def walk(root: Path) -> dict[str, list[str]]:
    """The modules that run while a model is trained and saved, then scored, and while one image is explained."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"PYTHONPATH": str((root / "src").resolve()), "PARSECAPS_CACHE": str(Path(folder) / "cache")}
        source = str((root / "src" / PACKAGE).resolve())
        done = subprocess.run(  # -P: not the modules beside this file
            [sys.executable, "-P", str(Path(__file__).resolve()), source, "ways.json"],
            cwd=folder,
            env=os.environ | places,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise OSError(f"{root} could not be walked: {reason}")
        ways: dict[str, list[str]] = json.loads((Path(folder) / "ways.json").read_text(encoding="utf-8"))
    return ways


def trace(command: Callable[[], Any], source: str, is_over: Callable[[], bool]) -> tuple[list[str], list[str]]:
    """The files below `source` whose functions a command calls: those before a moment, and those after it alone."""
    before: set[str] = set()
    after: set[str] = set()
    start = source + os.sep

    def note(frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        file = code.co_filename
        if event != "call" or file in before or file in after or not (file.startswith(start) and file.endswith(".py")):
            return
        if code.co_flags & inspect.CO_OPTIMIZED and not file.endswith("__init__.py"):  # no module or class body
            (after if is_over() else before).add(file)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        command()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    first, second = (sorted(Path(file).relative_to(source).as_posix() for file in files) for files in (before, after))
    return first, second


def _walk_here(source: str) -> dict[str, list[str]]:
    """Train and explain in this folder, after all modules are imported."""
    import importlib
    import pkgutil

    import parsecaps

    assert Path(parsecaps.__file__).parent == Path(source)
    for module in pkgutil.walk_packages(parsecaps.__path__, "parsecaps."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    from PIL import Image

    from parsecaps.cli import app
    from parsecaps.data.phantom import draw

    settings = [word for line in _QUICK for word in ("--set", line)]
    train = ["train", _DATA, "--out", "run", *settings]
    saved, scored = trace(lambda: app(train, standalone_mode=False), source, Path("run/bundle").is_dir)
    Image.fromarray(draw([0], size=32).image[0].transpose(1, 2, 0)).save("image.png")
    explain, _ = trace(lambda: app(["explain", "run", "image.png"], standalone_mode=False), source, lambda: False)
    return {"train": saved, "scores": scored, "explain": explain}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(_walk_here(sys.argv[1])), encoding="utf-8")
