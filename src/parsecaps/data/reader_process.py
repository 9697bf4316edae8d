"""The process in which files from outside are read, within limits of time and memory.

It is started by `data.reader_pool` and talks to it through pipes. A message is a length, a JSON text of that length,
and the bytes of the arrays that the text names: nothing in it can run code. Where the system allows, arrays go through
shared memory, which is faster.
"""

import contextlib
import faulthandler
import importlib
import inspect
import json
import math
import os
import signal
import struct
import sys
import warnings
from collections.abc import Callable
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from parsecaps.data.raw_image import DefectError
from parsecaps.files.writing import visible

try:
    import resource
except ImportError:  # Windows: the limit of time holds, that of memory does not
    resource = None  # type: ignore[assignment]

CPU_SECONDS = 30  # for one request
MEMORY_BYTES = 850 * 2**20  # beyond what the process has when it starts; 120 million pixels in colour need 800 MiB
_MOST_TEXT = 2**28
_LENGTH = struct.Struct("<Q")
_ARRAY = "array"  # stands before the dtype and shape of an array
_LONGEST_REASON = 200


def main() -> None:
    """Answer requests until there are no more."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # what a library prints must not come between
        os.dup2(quiet, descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks; it ends this one
    warnings.simplefilter("ignore")  # a file is read or refused
    _limit_memory()
    memory = int(sys.argv[1]) if sys.argv[1] else None
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            *request, seconds = receive(incoming)
            _limit_time(seconds)
            answer = _answer(*request)
            _limit_time(0)
            send(outgoing, answer, memory)


def send(stream: BinaryIO, content: Any, memory: int | None = None) -> None:
    """Write a message: numbers, texts, lists and arrays, the arrays into the file of shared memory if there is one."""
    arrays: list[NDArray[Any]] = []

    def described(array: NDArray[Any]) -> dict[str, Any]:
        arrays.append(np.ascontiguousarray(array))
        return {_ARRAY: [array.dtype.str, array.shape]}

    text = json.dumps(content, default=described).encode()
    parts = [*map(_bytes_of, arrays)]
    if memory is not None:
        os.lseek(memory, 0, os.SEEK_SET)
        if any(os.write(memory, part) < len(part) for part in parts):
            raise MemoryError("no room in the shared memory")
        parts = []
    stream.writelines([_LENGTH.pack(len(text)) + text, *parts])
    stream.flush()


def receive(
    stream: BufferedIOBase, memory: int | None = None, expect: Callable[[int], None] = lambda num_bytes: None
) -> Any:
    """Read what `send` wrote; EOFError where there is nothing more. `expect` is told how large an array will be."""
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    if length > _MOST_TEXT:
        raise EOFError(f"a message of {length} bytes")
    content = json.loads(_exactly(stream, length))
    if memory is None:
        return _with_arrays(content, stream.readinto, expect)
    os.lseek(memory, 0, os.SEEK_SET)
    return _with_arrays(content, lambda array: os.readv(memory, [array]), expect)


def _with_arrays(content: Any, fill: Callable[[memoryview], int], expect: Callable[[int], None]) -> Any:
    if isinstance(content, dict):
        kind, shape = content[_ARRAY]
        expect(math.prod(shape) * np.dtype(kind).itemsize)
        array = np.empty(shape, np.dtype(kind))
        if fill(_bytes_of(array)) < array.nbytes:
            raise EOFError
        return array
    return tuple(_with_arrays(each, fill, expect) for each in content) if isinstance(content, list) else content


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _exactly(stream: BufferedIOBase, length: int) -> bytes:
    found = stream.read(length)
    if len(found) < length:
        raise EOFError
    return found


def _answer(name: str, path: str, arguments: list[Any]) -> list[Any]:
    """`done` and the value of a function of this package, or what is wrong with the file."""
    module, _, function = name.partition(":")
    try:
        call = inspect.unwrap(getattr(importlib.import_module(module), function))
        return ["done", call(Path(path), *arguments)]
    except DefectError as defect:
        return ["defect", _line(defect)]
    except MemoryError:
        return ["memory", ""]
    except RecursionError:
        return ["defect", "is nested too deeply; replace the file"]
    except Exception as error:  # the libraries raise nearly anything at a broken file
        return ["damaged", _line(error)[:_LONGEST_REASON] or type(error).__name__]


def _line(error: Exception) -> str:
    return visible(" ".join(str(error).split()))


def _limit_memory() -> None:
    """Anonymous memory alone: a large file may be mapped all the same."""
    if resource is None or not hasattr(resource, "RLIMIT_DATA"):
        return
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    used = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData")), 2**28)
    _lower(resource.RLIMIT_DATA, used + MEMORY_BYTES)
    _lower(resource.RLIMIT_CORE, 0)


def _limit_time(seconds: float) -> None:
    """End this process after so much time, or as much computing as one request may take; 0 when it is answered."""
    if resource is not None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        if seconds:
            used = resource.getrusage(resource.RUSAGE_SELF)
            _lower(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + CPU_SECONDS)
    elif seconds:
        faulthandler.dump_traceback_later(seconds, exit=True)
    else:
        faulthandler.cancel_dump_traceback_later()


def _lower(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
