"""From a service to a server that listens, and ends when it is asked to."""

import logging
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn

from parsecaps.serve.app import make_app
from parsecaps.serve.guard import LOG, is_loopback
from parsecaps.serve.service import Service

_SHORTEST_TOKEN = 16
_KEEP_ALIVE_SECONDS = 65  # longer than a proxy keeps a connection, so that it is the proxy who ends it


def check_token(host: str, token: str | None) -> None:
    """Refuse an address that others can reach without a token, and a token that can be guessed."""
    if token is None and not is_loopback(host):
        raise ValueError(f"others can reach {host}, so a token is needed; give --token-file, or --host 127.0.0.1")
    if token is not None and not (len(token) >= _SHORTEST_TOKEN and token.isascii() and token.isprintable()):
        wanted = f"at least {_SHORTEST_TOKEN} letters and digits"
        raise ValueError(f"the token can be guessed, or not be sent; give {wanted}, as openssl rand -hex 32 makes")


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; an address that cannot be had is an error of one line."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"{host}:{port} cannot be listened at ({reason}); give another --host or --port") from None


def address_of(listening: socket.socket) -> str:
    """What to type into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Server(uvicorn.Server):
    """A server that says it is not ready as soon as it is asked to stop, finishes what it has begun, and ends."""

    def __init__(self, service: Service, *, host: str, token: str | None = None) -> None:
        self.service = service
        super().__init__(
            uvicorn.Config(
                make_app(service, host=host, token=token),
                log_config=None,
                log_level="warning",
                access_log=False,  # it would have queries in it
                server_header=False,
                proxy_headers=False,
                ws="none",
                lifespan="on",
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=int(service.settings.seconds) + 1,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.is_stopping = True
        super().handle_exit(sig, frame)


def serve(
    service: Service, listening: socket.socket, *, host: str, token: str | None, say: Callable[[str], None]
) -> None:
    """Answer requests until a signal asks for the end."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # broken forms are the sender's business
    try:
        say(address_of(listening))
        server = Server(service, host=host, token=token)
        server.run(sockets=[listening])
        if not server.started:
            raise OSError("the server did not start; the lines above say why")
    finally:
        LOG.removeHandler(handler)
        service.spool.close()
