"""The shape of the code: who imports whom, how long files are, and that nothing happens on import.

`violations` reads the source with `ast` and imports nothing, so a broken layer shows even in a module that
cannot be imported. Imports inside functions and under TYPE_CHECKING count like any other.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import matplotlib.font_manager
import pytest

import parsecaps

PACKAGE = "parsecaps"
SOURCE = Path(parsecaps.__file__).parent
MAX_LINES = 450
VAGUE_NAMES = {"common", "helper", "helpers", "misc", "util", "utils"}

# A unit is a direct child of the package: a folder or a single module. Each may import only what stands before it.
FLOW = [
    *("system", "files", "types", "config", "functional", "nn", "models", "data", "text"),
    *("metrics", "model", "prediction", "run", "explain", "audit", "report"),
    *("evaluation", "discovery", "training", "rivals", "export", "paper", "serve"),
]
MAY_NOT_IMPORT = {unit: set(FLOW[i + 1 :]) for i, unit in enumerate(FLOW)}
# The mathematics and the data stand alone, and `explain` works on any model through its output and a recorder.
MAY_NOT_IMPORT["functional"] |= {"files", "types", "config"}
MAY_NOT_IMPORT["nn"] |= {"files", "config"}
MAY_NOT_IMPORT["data"] |= {"functional", "nn", "models"}
MAY_NOT_IMPORT["metrics"] |= {"functional", "nn", "models", "data", "text"}
MAY_NOT_IMPORT["report"] |= {"audit", "discovery", "text"}  # their results bring tables and charts
MAY_NOT_IMPORT["serve"] |= {"paper"}  # a server trains nothing
# Imported when it is asked for: rivals enter themselves into MODELS, and a model predicts, explains and finds its run.
LATE = {("models", "rivals"), ("model", "prediction"), ("model", "run"), ("model", "explain")}
# Outside packages, where they are limited: beside the standard library.
MAY_IMPORT_OUTSIDE: dict[str, set[str]] = {"functional": {"torch"}}
# Only the command line and `python -m parsecaps` know the command line.
MAY_IMPORT_CLI = {"cli", "__main__"}


def imported_names(tree: ast.AST, module: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and absolute dotted name of each import; `module` is the dotted package of the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = module[: len(module) - node.level + 1] if node.level else []
            prefix = [*base, node.module] if node.module else base
            for alias in node.names:
                yield node.lineno, ".".join([*prefix, alias.name])
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            name = node.args[0]
            if called in {"import_module", "__import__"} and isinstance(name, ast.Constant):
                text = str(name.value)
                dots = len(text) - len(text.lstrip("."))
                base = module[: len(module) - dots + 1] if dots else []
                yield node.lineno, ".".join([*base, text[dots:]])


def unit_violation(unit: str, name: str, units: set[str]) -> str | None:
    """Say what is wrong when `unit` imports the dotted `name`, or None."""
    parts = name.split(".")
    if parts[0] != PACKAGE:
        allowed = MAY_IMPORT_OUTSIDE.get(unit)
        if allowed is not None and parts[0] not in allowed | sys.stdlib_module_names:
            return f"{unit} may import only the standard library and {', '.join(sorted(allowed))}, not {name}"
        return None
    target = parts[1] if len(parts) > 1 and parts[1] in units else ""
    if target == unit:
        return None
    if name == f"{PACKAGE}.__version__":  # which lives in the root
        return None
    if not target:  # a name of the root package could come from anywhere
        return f"{unit} imports {name}: name the module it lives in" if unit in MAY_NOT_IMPORT else None
    if target == "cli" and unit not in MAY_IMPORT_CLI:
        return f"{unit} imports {name}: only cli puts everything together"
    if (unit, target) in LATE:
        return None
    if target in MAY_NOT_IMPORT.get(unit, set()):
        return f"{unit} may not import {name}"
    return None


def violations(source: Path) -> list[str]:
    """Every broken rule in the package below `source`, as `path:line: what is wrong`."""
    found = []
    files = sorted(source.rglob("*.py"))
    units = {p.relative_to(source).parts[0].removesuffix(".py") for p in files} - {"__init__"}
    units |= {*FLOW, "cli"}
    for path in files:
        relative = path.relative_to(source)
        words = relative.with_suffix("").parts
        for word in words:
            if word.strip("_") in VAGUE_NAMES:
                found.append(f"{relative}: `{word}` says nothing about what is inside")
        text = path.read_text(encoding="utf-8")
        length = len(text.splitlines())
        if length > MAX_LINES:
            found.append(f"{relative}: {length} lines, more than {MAX_LINES}")
        for line, name in imported_names(ast.parse(text, str(path)), [PACKAGE, *words[:-1]]):
            problem = unit_violation(words[0], name, units)
            if problem:
                found.append(f"{relative}:{line}: {problem}")
    return found


def test_package_keeps_the_rules() -> None:
    assert SOURCE.name == PACKAGE
    assert list(SOURCE.rglob("*.py"))
    assert violations(SOURCE) == []


def test_contributing_has_the_rooms_in_this_order() -> None:
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    (table,) = re.findall(r"^\| room \|.*\n\|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    rooms = [name for row in table.splitlines() for name in re.findall(r"`(\w+)(?:\.py|/)`", row.split("|")[1])]
    assert rooms == [*FLOW, "cli"]


OFFENCES = {
    "functional/a.py": ("import numpy as np", "not numpy"),
    "functional/b.py": ("from parsecaps.types import Output", "functional may not import"),
    "nn/a.py": ("from ..data import folder", "nn may not import parsecaps.data.folder"),
    "nn/deep/a.py": ("from ...models import registry", "nn may not import parsecaps.models.registry"),
    "nn/b.py": ("def late():\n    from parsecaps import training", ":2: nn may not import"),
    "nn/c.py": ("from parsecaps import ParseCaps", "name the module"),
    "models/a.py": ("import parsecaps.explain.maps", "models may not import"),
    "models/b.py": ("import importlib\nimportlib.import_module('parsecaps.training')", ":2: models may not"),
    "models/c.py": ("import importlib\nimportlib.import_module('..data', __package__)", ":2: models may not"),
    "data/a.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from parsecaps.models import ParseCaps",
        ":3: data may not import",
    ),
    "report/c.py": ("from parsecaps.evaluation import evaluate_run", "report may not import"),
    "report/d.py": ("from parsecaps.audit.result import Audit", "report may not import"),
    "report/b.py": ("from parsecaps.training.fit import fit", "report may not import"),
    "explain/a.py": ("from parsecaps.report.pages import render", "explain may not import"),
    "metrics/a.py": ("from parsecaps.data.cases import Case", "metrics may not import"),
    "run.py": ("from parsecaps.training.fit import fit", "run may not import"),
    "report/a.py": ("from parsecaps.cli import app", "only cli"),
    "__init__.py": ("from .cli import app", "only cli"),
    "data/utils.py": ("", "says nothing"),
    "helpers/a.py": ("", "says nothing"),
    "nn/long.py": ("\n" * (MAX_LINES + 1), "451 lines"),
}


@pytest.mark.parametrize("path", OFFENCES)
def test_checker_finds_an_offence(path: str, tmp_path: Path) -> None:
    text, expected = OFFENCES[path]
    offender = tmp_path / path
    offender.parent.mkdir(parents=True, exist_ok=True)
    offender.write_text(text, encoding="utf-8")
    found = violations(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(path)
    assert expected in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("functional/entmax.py", "import math\nimport torch\nfrom torch import Tensor\nfrom . import squash"),
        ("nn/cell.py", "import einops\nfrom parsecaps import functional\nfrom ..types import Output\n"),
        ("nn/deep/a.py", "from ..cell import Cell\nfrom ...functional.squash import squash"),
        ("models/parsecaps.py", "from parsecaps.nn import Cell\nfrom parsecaps.config import Config"),
        ("__main__.py", "from parsecaps.cli import app"),
        ("training/about.py", "from parsecaps import __version__"),
        ("cli.py", "from parsecaps import data, models, training, explain, report, __version__"),
        ("nn/exact.py", "\n" * MAX_LINES),
    ],
)
def test_checker_accepts_what_is_allowed(path: str, text: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text, encoding="utf-8")
    assert violations(tmp_path) == []


def run_quietly(code: str, folder: Path) -> None:
    """Run `code` in a new interpreter: it must succeed, print nothing and leave no files."""
    home = {name: str(folder) for name in ("HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME")}
    # Fabric loads matplotlib and the compiler of torch, which make folders for what they keep; matplotlib's is made
    # already, for it says so where making it takes more than five seconds
    elsewhere = folder.parent / f"{folder.name}-libraries"
    kept = {"MPLCONFIGDIR": matplotlib.get_cachedir(), "TORCHINDUCTOR_CACHE_DIR": str(elsewhere)}
    environment = {**os.environ, **home, **kept, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout, done.stderr) == ("", "")
    assert list(folder.iterdir()) == []


def test_import_is_light(tmp_path: Path) -> None:
    heavy = {
        "torch",
        "numpy",
        "scipy",
        "h5py",
        "lightning_fabric",
        "sklearn",
        "torchmetrics",
        "matplotlib",
        "typer",
        "rich",
    }
    code = f"import sys, parsecaps\nassert not {heavy!r} & set(sys.modules), {heavy!r} & set(sys.modules)"
    run_quietly(code, tmp_path)


def test_metrics_and_writing_need_no_torch(tmp_path: Path) -> None:
    names = (
        "parsecaps.metrics.scores, parsecaps.metrics.comparison, parsecaps.metrics.calibration, parsecaps.files.writing"
    )
    code = f"import sys, {names}\nassert 'torch' not in sys.modules"
    run_quietly(code, tmp_path)


def test_importing_every_module_does_nothing(tmp_path: Path) -> None:
    code = """
import importlib, pkgutil, random, torch, parsecaps
import rich.style  # it draws a random number, whoever imports it
def state():
    return (torch.get_rng_state().tolist(), random.getstate(), torch.get_default_dtype(),
            torch.get_num_threads(), torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled())
before = state()
def fail(name): raise ImportError(name)
for module in pkgutil.walk_packages(parsecaps.__path__, "parsecaps.", onerror=fail):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
assert state() == before
"""
    run_quietly(code, tmp_path)
