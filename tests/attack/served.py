"""The same files through `parsecaps serve`: one server for all of them, which has to outlive each."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.attack.commands import MAIN_BYTES, Place, changes, memory_of
from tests.attack.rows import Verdict, judge_rows
from tests.attack.runner import START_SECONDS, Batch, FileAttack, Problem, Report

_AT_A_TIME = 20
_SETTINGS = ("images=1000", "seconds=300")  # a crafted file may have 400 pages, or take its reader's 30 seconds
_SPOOL = "parsecaps-serve-"


class ServedAttack(FileAttack):
    """Files for POST /api/predict of a server that runs from `with` to its end."""

    def __init__(self, place: Place, report: Report) -> None:
        super().__init__(place, report)
        self._log = place.root / "server.err"

    def __enter__(self) -> Self:
        chosen = [word for setting in _SETTINGS for word in ("--set", setting)]
        command = [sys.executable, "-m", "parsecaps", "serve", str(self.place.model), "--port", "0", *chosen]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.place.work,
                env=self.place.environment() | {"PYTHONUNBUFFERED": "1"},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        found = re.search(r"http://\S+", self._process.stdout.readline())
        assert found is not None, self._log.read_text(encoding="utf-8")
        self._client = httpx.Client(base_url=found[0], trust_env=False)
        end = time.monotonic() + START_SECONDS
        while not self._is_ready():
            assert time.monotonic() < end
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the server, which must be as well as at its start, and leave nothing."""
        wrong = [] if self._is_ready() else ["is not ready after it all"]
        memory = memory_of(self._process.pid)
        if memory.main > MAIN_BYTES:
            wrong.append(f"the main process takes {memory.main / 1e9:.1f} GB of memory")
        wrong += [f"keeps the upload {path.name}" for path in (self.place.root / "tmp").glob(f"{_SPOOL}*/*")]
        self._client.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        wrong += [] if code == 128 + signal.SIGTERM else [f"ends with exit code {code}"]
        wrong += [f"leaves {path.name}" for path in (self.place.root / "tmp").glob(f"{_SPOOL}*")]
        printed = self._log.read_text(encoding="utf-8", errors="replace")
        odd = [line for line in printed.splitlines() if not re.search(r" (GET|POST) /\S+ 200 \d+ ms$|^stopped$", line)]
        wrong += [f"prints {odd[0]!r}"] if odd else []
        self.report.add("the server", 1, [Problem("parsecaps serve", "; ".join(wrong), "")] if wrong else [], memory)

    def _is_ready(self) -> bool:
        try:
            return self._client.get("/readyz", timeout=START_SECONDS).status_code == 200
        except httpx.TransportError:
            return False

    def _attack(self, batch: Batch, *, search: bool = True) -> None:
        kind = f"{batch.kind}, served"
        for start in range(0, len(batch.files), _AT_A_TIME):
            part = replace(batch, kind=kind, whole=None, files=batch.files[start : start + _AT_A_TIME])
            before = self.place.held()
            problems = self._ask(part, search)
            problems += [Problem(kind, change, "") for change in changes(before, self.place.held())]
            self.report.add(kind, len(part.files), problems, memory_of(self._process.pid))

    def _ask(self, batch: Batch, search: bool) -> list[Problem]:
        verdict = self._answers(batch.files, batch)
        if not verdict.general:
            return [self._problem(Path(name), what, batch) for name, what in verdict.by_file.items()]
        if len(batch.files) == 1:
            return [self._problem(batch.files[0], verdict.general, batch)]
        found = [each for file in batch.files for each in self._ask(replace(batch, files=[file]), search)]
        return found or [self._problem(batch.files[0].parent, verdict.general, batch)]

    def _answers(self, files: Sequence[Path], batch: Batch) -> Verdict:
        """Send files in one request, and judge the results as rows of a table."""
        sent = [("files", (f"{number}", path.read_bytes())) for number, path in enumerate(files)]
        limit = START_SECONDS + batch.seconds * len(files)
        try:
            answer = self._client.post("/api/predict", files=sent, timeout=limit)
        except httpx.TransportError as error:
            return Verdict({}, f"has no answer: {type(error).__name__}")
        if answer.status_code != 200:
            return Verdict({}, f"is answered with {answer.status_code}: {answer.text[:200]}")
        if "/tmp" in answer.text:
            return Verdict({}, "shows where uploads lie")
        rows: list[dict[str, Any]] = [
            {**each, "image": str(files[each["file"]]), "error": each["error"] or ""}
            for each in answer.json()["results"]
        ]
        if any(each["name"] != str(each["file"]) for each in rows):
            return Verdict({}, "has a result under another name")
        return judge_rows([str(path) for path in files], rows, batch.known, 0)
