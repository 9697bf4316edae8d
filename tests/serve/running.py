"""A real server on a free port of this machine, in a thread of the test."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from parsecaps.serve.server import Server, address_of, listen
from parsecaps.serve.service import Service
from parsecaps.serve.settings import ServeConfig

GOLDEN = Path(__file__).parents[1] / "golden"
MODEL, OTHER = GOLDEN / "bottleneck", GOLDEN / "parallel"
NEVUS, MELANOMA = GOLDEN / "images" / "nevus.png", GOLDEN / "images" / "melanoma.png"
TOKEN = "a-token-that-nobody-guesses"


class Running:
    """A server that answers, and a client for it."""

    def __init__(self, service: Service, server: Server, address: str, token: str | None) -> None:
        self.service, self.server, self.address = service, server, address
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.client = httpx.Client(base_url=address, headers=headers, timeout=60, trust_env=False)

    def post(self, *files: tuple[str, bytes], to: str = "/api/predict", **options: Any) -> httpx.Response:
        """Send files as a form."""
        return self.client.post(to, files=[("files", file) for file in files], **options)

    def results(self, *files: tuple[str, bytes]) -> list[dict[str, Any]]:
        """What the model says of some files."""
        answer = self.post(*files)
        assert answer.status_code == 200, answer.text
        results: list[dict[str, Any]] = answer.json()["results"]
        return results

    def left_files(self) -> list[str]:
        """Uploads that are still there."""
        return sorted(path.name for path in self.service.spool.folder.iterdir())


@contextmanager
def running(
    folder: Path = MODEL, *, token: str | None = None, host: str = "127.0.0.1", **settings: Any
) -> Iterator[Running]:
    """A server of a model while it is needed."""
    service = Service(folder, ServeConfig(**{"device": "cpu", "workers": 2} | settings))
    with listen("127.0.0.1", 0) as listening:
        server = Server(service, host=host, token=token)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        found = Running(service, server, address_of(listening), token)
        try:
            while not service.is_ready:
                assert thread.is_alive()
                time.sleep(0.01)
            yield found
        finally:
            found.client.close()
            server.should_exit = True
            thread.join()
    assert not service.spool.folder.exists()
