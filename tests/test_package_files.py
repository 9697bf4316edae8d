"""The files around the package say the same as the package: extras, citation, and the hooks before a commit."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import parsecaps
from parsecaps.rivals import ResNet18
from parsecaps.system.extras import EXTRAS, install_command, missing_of, require
from tests.messages import refused

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MODULES = {"pylibjpeg-libjpeg": "libjpeg", "pylibjpeg-openjpeg": "openjpeg"}  # named otherwise than their packages
UNASKED = {"uvloop"}  # a faster loop, where the system has it


def packages(extra: str) -> list[str]:
    found = []
    for line in PROJECT["optional-dependencies"][extra]:
        if own := re.match(r"parsecaps\[(.*)\]", line):
            found += [package for each in own[1].split(",") for package in packages(each)]
        else:
            found.append(re.split(r"[<>=!;\[ ]", line)[0])
    return found


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_table_of_extras_is_that_of_the_project(extra: str) -> None:
    modules = {MODULES.get(name, name.replace("-", "_")) for name in packages(extra) if name not in UNASKED}
    assert set(EXTRAS[extra]) == modules


def test_the_extras_are_those_that_users_are_told() -> None:
    assert set(PROJECT["optional-dependencies"]) == {*EXTRAS, "docs", "dev"}
    base = {re.split(r"[<>=]", line)[0].replace("-", "_") for line in PROJECT["dependencies"]}
    assert not base & {module for modules in EXTRAS.values() for module in modules}


def test_every_pinned_package_is_pinned_once_and_in_order() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    names = [line.partition("==")[0].lower() for line in lines if not line.startswith("#")]
    assert len(set(names)) == len(names)
    pinned = {name.replace("_", "-") for name in names}
    wanted = {name.lower().replace("_", "-") for extra in PROJECT["optional-dependencies"] for name in packages(extra)}
    assert wanted <= pinned


def test_a_model_whose_package_is_missing_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "monai", None)
    with refused(ModuleNotFoundError):
        ResNet18.from_preset("tiny", num_classes=2)
    assert missing_of("monai") == ["monai"]


def test_an_error_inside_of_a_package_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_package.py").write_text("import not_there_at_all", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        require("broken_package")
    assert install_command("not_there_at_all") == "pip install not_there_at_all"


def test_the_citation_is_of_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == parsecaps.__version__
    assert cited["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()


def test_the_hooks_are_what_make_lint_runs() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repository,) = config["repos"]
    assert repository["repo"] == "local"
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert recipe is not None
    wanted = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe[1].splitlines()]
    assert [hook["entry"] for hook in repository["hooks"]] == wanted
    assert all(hook["language"] == "system" and not hook["pass_filenames"] for hook in repository["hooks"])
