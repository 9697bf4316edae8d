"""A small Hugging Face hub on this computer: repositories in memory, spoken to over HTTP by the real client."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Repository:
    """What was committed to a repository, by the hash of each commit, the last one being `main`."""

    private: bool = False
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, bytes]:
        """What is there now."""
        return next(reversed(self.commits.values()), {})

    def commit(self, changes: dict[str, bytes]) -> str:
        """Add files; gives the hash of the commit."""
        files = {**self.files, **changes}
        digest = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[digest] = files
        return digest

    def revision(self, name: str) -> str | None:
        """The commit of a branch or a hash."""
        return next(reversed(self.commits), None) if name == "main" else (name if name in self.commits else None)


class FakeHub(ThreadingHTTPServer):
    """The server; `repositories` by their names, and `sent`, the bytes of all that came in."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}
        self.sent: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def running_hub() -> Iterator[FakeHub]:
    with FakeHub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path).path.strip("/").split("/")
        if parts[:2] == ["api", "models"]:
            self._about("/".join(parts[2:4]), parts[4:])
        elif len(parts) >= 5 and parts[2] == "resolve":
            self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self._refuse("EntryNotFound")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        body = self._body()
        self.server.sent.append(body)
        parts = urlsplit(self.path).path.strip("/").split("/")
        if self.headers.get("Authorization") is None:
            self._answer({"error": "who are you?"}, 401)
        elif parts == ["api", "validate-yaml"]:
            self._answer({"errors": [], "warnings": []})
        elif parts == ["api", "repos", "create"]:
            self._create(json.loads(body))
        elif parts[4:5] == ["preupload"]:
            files = json.loads(body)["files"]
            regular = [{"path": each["path"], "uploadMode": "regular", "shouldIgnore": False} for each in files]
            self._answer({"files": regular})
        elif parts[4:5] == ["commit"]:
            self._commit("/".join(parts[2:4]), body)
        else:
            self._refuse("EntryNotFound")

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted.get('organization', 'owner')}/{wanted['name']}"
        there = name in self.server.repositories
        private = bool(wanted.get("private") or wanted.get("visibility") == "private")
        self.server.repositories.setdefault(name, Repository(private))
        self._answer({"url": f"{self.server.url}/{name}"}, 409 if there else 200)

    def _commit(self, name: str, body: bytes) -> None:
        lines = [json.loads(line) for line in body.splitlines()]
        added = {line["value"]["path"]: line["value"]["content"] for line in lines if line["key"] == "file"}
        repository = self.server.repositories[name]
        commit = repository.commit({path: base64.b64decode(content) for path, content in added.items()})
        self._answer({"commitOid": commit, "commitUrl": f"{self.server.url}/{name}/commit/{commit}", "success": True})

    def _about(self, name: str, rest: list[str]) -> None:
        repository = self.server.repositories.get(name)
        if repository is None:
            self._refuse("RepoNotFound")
            return
        commit = repository.revision(rest[1] if len(rest) > 1 else "main")
        if commit is None and rest:
            self._refuse("RevisionNotFound")
        elif rest[:1] == ["tree"]:
            files = repository.commits[str(commit)]
            tree = [{"type": "file", "path": path, "size": len(b), "oid": _oid(b)} for path, b in files.items()]
            self._answer(tree)
        else:
            about = {"id": name, "sha": commit, "private": repository.private, "siblings": []}
            self._answer(about)

    def _file(self, name: str, revision: str, path: str) -> None:
        repository = self.server.repositories[name]
        commit = repository.revision(revision)
        content = repository.commits[str(commit)].get(path)
        if content is None:
            self._refuse("EntryNotFound")
            return
        self._send(content, 200, {"X-Repo-Commit": str(commit), "ETag": f'"{_oid(content)}"'})

    def _refuse(self, code: str) -> None:
        self._send(b"{}", 404, {"X-Error-Code": code})

    def _answer(self, content: Any, status: int = 200) -> None:
        self._send(json.dumps(content).encode(), status, {"Content-Type": "application/json"})

    def _send(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()
