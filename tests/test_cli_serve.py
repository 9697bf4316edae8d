"""`parsecaps serve`: its start, its end, and what it refuses in one line."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.command import fails
from tests.messages import LIBRARY

GOLDEN = Path(__file__).parent / "golden"
IMAGE = GOLDEN / "images" / "nevus.png"


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """The command as a process of its own, once it is ready."""
    command = [sys.executable, "-m", "parsecaps", "serve", "--port", "0", *arguments]
    temporary = folder / "tmp"
    temporary.mkdir()
    compiler = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "compiler")}  # torch makes a folder there
    environment = os.environ | compiler | {"TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            assert found is not None, f"{line} {process.stderr.read() if process.stderr and not line else ''}"
            with httpx.Client(base_url=found[0], timeout=30, trust_env=False) as client:
                for _ in range(600):
                    try:
                        if client.get("/readyz").status_code == 200:
                            break
                    except httpx.TransportError:
                        pass
                    time.sleep(0.05)
                yield process, client
        finally:
            process.kill()


def test_it_serves_the_demo_finishes_its_work_and_ends(tmp_path: Path) -> None:
    """Without a model it takes the demo's; a request that is on its way in when the signal comes is answered."""
    shutil.copytree(GOLDEN / "bottleneck", tmp_path / "parsecaps-demo" / "run")
    with serving(tmp_path) as (process, client):
        data = IMAGE.read_bytes()
        host, port = client.base_url.host, client.base_url.port
        with socket.create_connection((host, port or 0), timeout=30) as connection:
            head = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
            body = head + data + b"\r\n--x--\r\n"
            kind = "Content-Type: multipart/form-data; boundary=x"
            start = f"POST /api/predict HTTP/1.1\r\nHost: {host}\r\n{kind}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(start.encode() + body[:500])
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            connection.sendall(body[500:])
            answer = b"".join(iter(lambda: connection.recv(100_000), b""))
        assert answer.startswith(b"HTTP/1.1 200 OK"), answer
        assert b'"class":' in answer
        assert process.wait(30) == 143
        assert process.stdout is not None
        assert process.stdout.readline().startswith("answers by ONNX Runtime ")
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()
    assert lines[-1] == "stopped"
    assert not any("Traceback" in line or "nevus" in line for line in lines)
    left = [path.name for path in (tmp_path / "tmp").iterdir()]
    assert set(left) <= {".ses"}  # a mark that ONNX Runtime leaves, without anything of an upload


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = GOLDEN / "bottleneck"
    fails("serve")
    fails("serve", tmp_path, "--port", 0)
    for options in (
        ("--host", "0.0.0.0"),
        ("--token", "x"),
        ("--token", "x", "--token-file", "y"),
        ("--token-file", "y"),
        ("--set", "file=3"),
        ("--risk", 2),
        ("--set", "runtime=fast"),
        ("--host", "203.0.113.1", "--token", "x" * 20),
    ):
        fails("serve", model, *options, "--port", 0, hide=LIBRARY)


def test_a_model_that_cannot_be_trusted(tmp_path: Path) -> None:
    """Damaged weights, and weights that give no numbers; no folder for uploads is left."""
    from tests.attack.model_folders import MODELS

    for name in ("weights cut", "weights are a pickle", "nested config", "nan weights"):
        folder = tmp_path / name
        shutil.copytree(GOLDEN / "parallel", folder)
        MODELS[name](folder)
        fails("serve", folder, "--port", 0, hide=LIBRARY)
