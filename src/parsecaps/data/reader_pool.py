"""Processes that read files from outside, so that no file can crash, stop or fill the process that asks.

A reader that crashes, hangs or wants too much memory is replaced, and the file refused in one line. `call` is safe to
use from several threads, each of which then has a reader of its own.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

from parsecaps.data.reader_process import CPU_SECONDS, MEMORY_BYTES, receive, send

Expect = Callable[[int], None]
READERS = max(1, min(8, os.cpu_count() or 1))
_WALL_SECONDS = 120.0  # for one request, however busy the machine is
_KEPT_BYTES = 2**26  # of shared memory, until the next file is read
_START = "import sys; sys.path[:] = sys.argv[2:]; from parsecaps.data.reader_process import main; main()"
_ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    # glibc would give the memory of each image back and ask for it again, which takes longer than to decode a JPEG
    **dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(2**27)),
}


class RefusedError(Exception):
    """Why a file cannot be read, without its name; `damaged` where a library says so in its own words."""

    def __init__(self, reason: str, *, damaged: bool = False) -> None:
        super().__init__(reason)
        self.damaged = damaged


class _Reader:
    def __init__(self) -> None:
        self.path, self.used = "", False
        self.memory = os.memfd_create("parsecaps") if hasattr(os, "memfd_create") else None
        shared = () if self.memory is None else (self.memory,)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, "".join(map(str, shared)), *sys.path],
            pass_fds=shared,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | _ENVIRONMENT,
        )
        self.outgoing = cast(BinaryIO, self.process.stdin)
        self.incoming = cast(BufferedIOBase, self.process.stdout)

    def ask(self, function: str, path: str, arguments: tuple[Any, ...], expect: Expect) -> tuple[str, Any] | None:
        """The kind of answer and its value; None where the reader has ended."""
        self.path = path
        try:
            send(self.outgoing, [function, path, list(arguments), _WALL_SECONDS])
            kind, value = receive(self.incoming, self.memory, expect)
            if self.memory is not None and os.fstat(self.memory).st_size > _KEPT_BYTES:
                os.ftruncate(self.memory, 0)
        except BaseException as error:  # after Ctrl-C, its answer would be taken for that to the next question
            self.end()
            if isinstance(error, (EOFError, OSError, ValueError)):
                return None
            raise
        if kind == "memory":
            self.end()
        self.used = True
        return kind, value

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.incoming.close()
        with contextlib.suppress(OSError):  # what was not sent any more
            self.outgoing.close()
        if self.memory is not None:
            os.close(self.memory)


class _Pool:
    def __init__(self) -> None:
        self.lock, self.slots = threading.Lock(), threading.BoundedSemaphore(READERS)
        self.idle: list[_Reader] = []

    def call(self, function: str, path: str, arguments: tuple[Any, ...], expect: Expect) -> Any:
        with self.slots:
            while True:
                reader = self._take(path)
                used = reader.used  # what an earlier file left in it may be to blame, so a new one tries again
                try:
                    reply = reader.ask(function, path, arguments, expect)
                finally:
                    self._give(reader)
                if reply is None:
                    code = reader.process.returncode
                    ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                    if ending == "SIGXCPU":
                        reason = f"takes more than {CPU_SECONDS} seconds to decode; replace the file"
                    elif ending == "SIGALRM":
                        reason = f"takes more than {_WALL_SECONDS:g} seconds to read; replace the file, or try again"
                    elif used:
                        continue
                    else:
                        reason = f"ends its decoder ({ending}); replace the file"
                    raise RefusedError(reason)
                kind, value = reply
                if kind == "done":
                    return value
                if kind == "memory":
                    if used:
                        continue
                    limit = MEMORY_BYTES // 10**6
                    raise RefusedError(f"needs more than {limit} MB of memory to be read; make it smaller")
                raise RefusedError(value, damaged=kind == "damaged")

    def _take(self, path: str) -> _Reader:
        """An idle reader, preferably the one that has this file open, or a new one."""
        with self.lock:
            waiting = [each for each in self.idle if each.path == path] or self.idle[-1:]
            found = waiting[0] if waiting else _Reader()
            self.idle = [each for each in self.idle if each is not found]
            return found

    def _give(self, reader: _Reader) -> None:
        with self.lock:
            if reader.process.poll() is None:
                self.idle.append(reader)

    def close(self) -> None:
        with self.lock:
            readers, self.idle = self.idle, []
        for reader in readers:
            reader.end()


_pool = _Pool()


def call(
    function: Callable[..., Any], path: str | Path, *arguments: Any, expect: Expect = lambda num_bytes: None
) -> Any:
    """Let a reader call a function of this package with a path and arguments; lists come back as tuples.

    The function gives numbers, texts, arrays and lists of them. A bad file is a `RefusedError`. `expect` is told the
    bytes of each array before it takes memory here, and may wait.
    """
    name = f"{function.__module__}:{function.__name__}"
    return _pool.call(name, os.path.abspath(path), arguments, expect)


def call_or_name(function: Callable[..., Any], path: str | Path, damaged: str = "is damaged; replace the file") -> Any:
    """`call`, with a ValueError that names a refused file and says `damaged` in place of a library's own words."""
    try:
        return call(function, path)
    except RefusedError as refused:
        raise ValueError(f"{path} {damaged if refused.damaged else refused}") from None


def _start_anew() -> None:
    global _pool
    _pool = _Pool()


atexit.register(lambda: _pool.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)  # a forked process has readers of its own
