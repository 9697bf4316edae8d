"""Files that a request brings: written to a private folder while they arrive, within limits, and removed afterwards."""

import asyncio
import binascii
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request

from parsecaps.files.writing import visible
from parsecaps.serve.documents import LONGEST_NAME, SentFiles
from parsecaps.serve.guard import ProblemError, overloaded, parsed, too_large
from parsecaps.serve.settings import ServeConfig

FIELD = "files"
_IN_MEMORY = 2**18  # bytes of a file that are kept before they are written
_JSON_AT_ONCE = 2**18  # bytes of JSON that are read without leaving the event loop
_UNKNOWN_TYPE = "send files as multipart/form-data, in fields called files, or as application/json with base64"


class Upload:
    """One file of a request: the name it was sent with, None without one, its number from 0, and where it lies.

    A small file stays in memory until a thread that reads it writes it out.
    """

    def __init__(self, name: str | None, path: Path, data: bytes = b"", *, number: int = 0) -> None:
        self.name, self.path, self.number = name, path, number
        self.num_bytes = 0
        self._memory = bytearray(data)
        self._is_removed = False
        self._lock = threading.Lock()

    @property
    def shown(self) -> str:
        """The name as errors show it."""
        return "the file" if self.name is None else visible(self.name)

    def add(self, data: bytes | memoryview) -> None:
        self.num_bytes += len(data)
        self._memory += data
        if len(self._memory) > _IN_MEMORY:
            self._flush()

    def write_out(self) -> None:
        """Write all of it to the file; an error if the request was given up meanwhile and removed it."""
        with self._lock:
            if self._is_removed:
                raise FileNotFoundError(f"{self.path} is not there any more")
            self._flush()

    def remove(self) -> None:
        with self._lock:
            self._is_removed = True
            self._memory = bytearray()
            self.path.unlink(missing_ok=True)

    def _flush(self) -> None:
        with self.path.open("ab") as file:
            file.write(self._memory)
        self._memory = bytearray()


class Spool:
    """The private folder for uploads, with a bound on all that lies in it at a time."""

    def __init__(self, most_bytes: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="parsecaps-serve-"))
        self.most_bytes, self.held_bytes = most_bytes, 0
        self.large_json = asyncio.Lock()  # one at a time: it is in memory several times over while it is read
        self._numbers = count()

    def new_path(self) -> Path:
        return self.folder / str(next(self._numbers))

    def take(self, num_bytes: int) -> None:
        """Count bytes that come in, as long as there is room."""
        if self.held_bytes + num_bytes > self.most_bytes:
            raise overloaded("too many bytes are being answered already; try again later")
        self.held_bytes += num_bytes

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass
class Arrival:
    """A request on its way in: its files so far, and how much of it has come. All of it is removed at the end."""

    spool: Spool
    limits: ServeConfig
    most_files: int
    uploads: list[Upload] = field(default_factory=list)
    num_bytes: int = 0

    def close(self) -> None:
        for upload in self.uploads:
            upload.remove()
        self.spool.held_bytes -= self.num_bytes
        self.num_bytes = 0

    def allow(self, num_bytes: int) -> None:
        """Refuse a request of more bytes than it may have."""
        most = self.limits.request_bytes
        if num_bytes > most:
            raise too_large(f"the request has more than {most:,} bytes; send fewer files at a time")

    def count(self, num_bytes: int) -> None:
        self.allow(self.num_bytes + num_bytes)
        self.spool.take(num_bytes)
        self.num_bytes += num_bytes

    def begin(self, name: str | None) -> None:
        if len(self.uploads) == self.most_files:
            detail = f"the request has more than {self.most_files:,} files; send fewer at a time"
            raise ProblemError(422, "too-many-files", detail)
        shown = (name or "")[:LONGEST_NAME] or None
        self.uploads.append(Upload(shown, self.spool.new_path(), number=len(self.uploads)))

    def write(self, data: bytes | memoryview) -> None:
        """Add to the file that was opened last."""
        upload = self.uploads[-1]
        upload.add(data)
        if upload.num_bytes > self.limits.file_bytes:
            raise too_large(f"{upload.shown} has more than {self.limits.file_bytes:,} bytes; make it smaller")

    async def receive(self, request: Request) -> list[Upload]:
        """The files of a request; one that cannot be used is a problem."""
        declared = request.headers.get("content-length", "")
        if declared.isdecimal():
            self.allow(int(declared))
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        if kind not in (b"multipart/form-data", b"application/json"):
            raise ProblemError(415, "unknown-type", _UNKNOWN_TYPE)
        if request.headers.get("content-encoding", "identity") != "identity":
            raise ProblemError(415, "unknown-encoding", "the body is compressed; send it as it is")
        if kind == b"application/json":
            await self._read_json(request)
        else:
            await self._read_form(request, options.get(b"boundary", b""))
        if not self.uploads:
            raise ProblemError(422, "no-files", f"the request has no file; {_UNKNOWN_TYPE}")
        return self.uploads

    async def _read_form(self, request: Request, boundary: bytes) -> None:
        if not 0 < len(boundary) <= 200:
            raise ProblemError(400, "no-boundary", "the Content-Type names no boundary; let your HTTP library write it")
        form = _Form(self)
        try:
            parser = MultipartParser(boundary, form.callbacks())
            async for data in pieces(request):
                self.count(len(data))
                if data:
                    parser.write(data)
            parser.finalize()
        except FormParserError:
            raise ProblemError(400, "broken-form", "the body is no multipart form with this boundary") from None
        if form.inside:
            raise ProblemError(400, "broken-form", "the body ends before the last boundary of its form")

    async def _read_json(self, request: Request) -> None:
        """Write the files of a JSON body, once all of it is there."""
        body = bytearray()
        async for data in pieces(request):
            self.count(len(data))
            body += data
        if len(body) <= _JSON_AT_ONCE:
            self._write_json(body)
            return
        async with self.spool.large_json:
            await run_in_threadpool(self._write_json, body)

    def _write_json(self, body: bytearray) -> None:
        for number, each in enumerate(parsed(SentFiles, body).files):
            self.begin(each.name)
            try:
                self.write(binascii.a2b_base64(each.data, strict_mode=True))
            except ValueError:
                raise ProblemError(422, "wrong-value", f"files.{number}.data: is not base64") from None


class _Form:
    """What is done at each piece of a form; Starlette's parser has no bound on a file while it arrives."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival, self.inside = arrival, False
        self.headers: dict[bytes, bytes] = {}
        self.name, self.value = b"", b""

    def callbacks(self) -> Any:
        return {name: getattr(self, name) for name in dir(self) if name.startswith("on_")}

    def on_part_begin(self) -> None:
        self.inside, self.headers, self.name, self.value = True, {}, b"", b""

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self.name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self.value += data[start:end]

    def on_header_end(self) -> None:
        self.headers[self.name.lower()] = self.value
        self.name, self.value = b"", b""

    def on_headers_finished(self) -> None:
        _, options = parse_options_header(self.headers.get(b"content-disposition", b""))
        name = options.get(b"filename")
        if options.get(b"name") != FIELD.encode() or name is None:
            wanted = "call every part files, and give it the name of a file"
            raise ProblemError(422, "unknown-field", f"a part of the form is no file; {wanted}")
        self.arrival.begin(name.decode("utf-8", "replace"))

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self.arrival.write(memoryview(data)[start:end])

    def on_part_end(self) -> None:
        self.inside = False


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """The body of a request as it comes; one that ends too early is a problem."""
    try:
        async for data in request.stream():
            yield data
    except ClientDisconnect:
        raise ProblemError(400, "incomplete", "the request ended before all of it was sent") from None


@asynccontextmanager
async def in_time(end: float, late: ProblemError) -> AsyncIterator[None]:
    """Until a time of the event loop; then a problem."""
    try:
        async with asyncio.timeout_at(end):
            yield
    except TimeoutError:
        raise late from None
