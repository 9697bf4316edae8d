"""The package as a stranger gets it: a wheel, installed into a new environment, and the demonstration run from it.

The new environment takes its dependencies from the one that runs the tests, so that this takes seconds; the package
itself comes from the wheel alone, and what is only in extras is hidden from it.
"""

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import parsecaps
from parsecaps.system.extras import EXTRAS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "parsecaps"
BUILT = {".pyc", ".pyo"}
HIDDEN = sorted({"captum", "torchmetrics", *(name for each in EXTRAS.values() for name in each)})
HIDE = f"""
import sys
from importlib.machinery import PathFinder

class Hide(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {HIDDEN!r} else PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hide
"""

pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="not in a checkout")


def run(*command: object, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the backend that pyproject.toml names, which `dev` installs: no network is asked."""
    folder = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it; gives its folder of programs."""
    folder = tmp_path_factory.mktemp("stranger") / "env"
    venv.create(folder, with_pip=False)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    (packages,) = folder.glob("[Ll]ib/**/site-packages")
    # a path in a .pth file is searched, but the .pth files there, such as that of an editable install, are not followed
    here = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "dependencies.pth").write_text("\n".join(here) + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", programs / "python"]
    install = ["install", "--quiet", "--no-deps", "--no-index", "--ignore-installed", wheel]
    done = run(*pip, *install, cwd=folder)
    assert done.returncode == 0, done.stderr
    (packages / "sitecustomize.py").write_text(HIDE, encoding="utf-8")
    return programs


def files_of(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in BUILT:
            yield f"parsecaps/{path.relative_to(folder).as_posix()}"


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == set(files_of(SOURCE))
    assert {f"parsecaps/trunks/{name}" for name in ("lite0.safetensors", "LICENSE", "NOTICE")} <= names
    assert {"parsecaps/configs/demo-quick.yaml", "parsecaps/report/templates/demo.html", "parsecaps/py.typed"} <= names


def test_the_demonstration_runs_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    where = run(environment / "python", "-c", "import parsecaps; print(parsecaps.__file__)", cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(environment.parent), where.stderr
    short = ("--set", "data.path=phantom:n=240,size=32", "--set", "training.epochs=1")
    cache = str(tmp_path / "cache")
    done = run(environment / "parsecaps", "demo", "--quick", *short, cwd=tmp_path, PARSECAPS_CACHE=cache)
    assert done.returncode == 0, done.stderr
    assert "open this first: parsecaps-demo/index.html" in done.stdout.replace("\\", "/")
    page = (tmp_path / "parsecaps-demo" / "index.html").read_text(encoding="utf-8")
    assert len(page) > 100_000
    assert (tmp_path / "parsecaps-demo" / "run" / "bundle" / "model.safetensors").is_file()


def test_the_installed_program_knows_its_version_and_completes_its_commands(environment: Path, tmp_path: Path) -> None:
    told = run(environment / "parsecaps", "--version", cwd=tmp_path)
    assert told.stdout == f"parsecaps {parsecaps.__version__}\n", told.stderr
    needs = run(environment / "parsecaps", "serve", cwd=tmp_path)
    assert needs.stderr == "error: uvicorn is not installed; run pip install 'parsecaps[serve]'\n"
    ask = {"_PARSECAPS_COMPLETE": "complete_bash", "COMP_WORDS": "parsecaps ex", "COMP_CWORD": "1"}
    assert run(environment / "parsecaps", cwd=tmp_path, **ask).stdout.split() == ["explain", "export"]
