"""Cases that several tests of documents and pages look at, and a page to draw them on."""

from collections.abc import Iterator
from typing import Any

import pytest

from parsecaps.explain.explanation import Explanation
from tests.browser import page
from tests.report.empty_view import EMPTY
from tests.report.make_cases import make_cases


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Explanation]:
    return make_cases(tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Any, list[str]]]:
    """A page, and the errors on it."""
    with page() as (tab, errors):
        yield tab, errors


@pytest.fixture
def tab(opened: tuple[Any, list[str]]) -> Iterator[Any]:
    """The page with two empty places for views."""
    opened[0].set_content(EMPTY)
    yield opened[0]
    assert opened[1] == []
