"""The script that the package ships is what its sources give."""

import shutil
import subprocess
from pathlib import Path

import pytest

import parsecaps.serve
from parsecaps.report.case_page import view_script

PAGE = Path(__file__).parents[2] / "page"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="no Node found: install Debian's packages nodejs and npm")
@pytest.mark.skipif(not (PAGE / "node_modules").is_dir(), reason="page/node_modules is missing: run npm ci in page")
def test_the_shipped_script_is_built_from_the_sources(tmp_path: Path) -> None:
    subprocess.run([str(NODE), "build.mjs", str(tmp_path)], cwd=PAGE, check=True)
    built = (tmp_path / "report" / "templates" / "page.js").read_text(encoding="utf-8")
    assert built == view_script(), "run: npm run build in page"
    assert "</script" not in built
    app = (tmp_path / "serve" / "static" / "app.js").read_text(encoding="utf-8")
    shipped = Path(parsecaps.serve.__path__[0], "static", "app.js").read_text(encoding="utf-8")
    assert app == shipped, "run: npm run build in page"
