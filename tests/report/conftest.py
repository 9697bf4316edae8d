"""Cases that several tests of documents and pages look at."""

import pytest

from parsecaps.explain.explanation import Explanation
from tests.report.make_cases import make_cases


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Explanation]:
    return make_cases(tmp_path_factory.mktemp("bundle"))
