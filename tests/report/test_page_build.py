"""The script that the package ships is what its sources give."""

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

import parsecaps.serve
from parsecaps.export.web_page import shipped as web_part
from parsecaps.report.pages import template_text

PAGE = Path(__file__).parents[2] / "page"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="no Node found: install Debian's packages nodejs and npm")
@pytest.mark.skipif(not (PAGE / "node_modules").is_dir(), reason="page/node_modules is missing: run npm ci in page")
def test_the_shipped_script_is_built_from_the_sources(tmp_path: Path) -> None:
    subprocess.run([str(NODE), "build.mjs", str(tmp_path)], cwd=PAGE, check=True)
    app = Path(parsecaps.serve.__path__[0], "static", "app.js").read_text(encoding="utf-8")
    for place, shipped in (
        ("report/templates/page.js", template_text("page.js")),
        ("export/web/page.js", web_part("page.js").decode()),
        ("serve/static/app.js", app),
    ):
        built = (tmp_path / place).read_text(encoding="utf-8")
        assert built == shipped, "run: npm run build in page"
        assert "</script" not in built
    wasm = (tmp_path / "export" / "web" / "runtime.wasm.gz").read_bytes()
    assert gzip.decompress(wasm) == gzip.decompress(web_part("runtime.wasm.gz"))
