"""The picture and the animation of the README, of a page with two small cases."""

from pathlib import Path

import pytest
from PIL import Image

from parsecaps.report import case_page
from studies import readme_pictures
from studies.readme_pictures import HEIGHT, WIDTH, animation, picture
from tests.browser import needs_browser
from tests.report.make_cases import make_cases


@needs_browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_both_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readme_pictures, "EFFORT", 0)
    page, (first, second) = tmp_path / "page.html", make_cases(tmp_path / "model")[:2]
    page.write_text(case_page([first, second]), encoding="utf-8")
    picture(page, tmp_path / "case.jpg", second.name, second.concepts[0].name)
    with Image.open(tmp_path / "case.jpg") as shown:
        assert shown.width == 1764
        assert len(shown.getcolors(shown.width * shown.height)) > 1000
    animation(page, tmp_path / "case.webp", second.name)
    with Image.open(tmp_path / "case.webp") as film:
        assert film.size == (WIDTH, HEIGHT)
        assert film.n_frames > 15
