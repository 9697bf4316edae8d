"""One server for most tests: starting one takes a second."""

from collections.abc import Iterator

import pytest

from tests.serve.running import Running, running


@pytest.fixture(scope="session")
def server() -> Iterator[Running]:
    """A server without a token, at a risk."""
    with running(risk=0.2) as found:
        yield found
