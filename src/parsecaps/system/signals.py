"""How work is stopped: by Ctrl-C, or by SIGTERM, which a scheduler or `kill` sends."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TerminatedError(KeyboardInterrupt):
    """SIGTERM asked the process to end. A training is saved, as at Ctrl-C."""


STOPS = (None, KeyboardInterrupt, TerminatedError)  # numbers that several processes can agree on: the largest counts


class StopRequest:
    """Whether a training is asked to stop, and by what: an index of `STOPS`."""

    number = 0


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """Let SIGTERM raise `TerminatedError`, as Ctrl-C raises `KeyboardInterrupt`."""

    def terminate(number: int, frame: Any) -> None:
        raise TerminatedError

    with _handling({signal.SIGTERM: terminate}):
        yield


@contextmanager
def signals_ask(request: StopRequest) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM ask for a stop; a second Ctrl-C interrupts at once, but schedulers may repeat SIGTERM."""

    def ask(number: int, frame: Any) -> None:
        request.number = max(request.number, 2 if number == signal.SIGTERM else 1)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with _handling({signal.SIGINT: ask, signal.SIGTERM: ask}):
        yield


@contextmanager
def _handling(handlers: dict[signal.Signals, Any]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
