"""What a request may not do: be too large, too slow, too many, broken, or come from where it may not."""

import base64
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parsecaps.serve.documents import Problem
from parsecaps.serve.server import check_token, listen
from parsecaps.serve.uploads import Upload
from tests.messages import LIBRARY, refused
from tests.serve.running import NEVUS, TOKEN, Running, running


@pytest.fixture(scope="module")
def narrow() -> Iterator[Running]:
    """A server with small limits."""
    with running(files=2, file_bytes=2000, request_bytes=5000, seconds=1.0, requests=2, stored_bytes=8000) as found:
        yield found


def problem(answer: Any, status: int, code: str) -> Problem:
    """The problem document of an answer, which must be this one."""
    found = Problem.model_validate(answer.json())
    assert (answer.status_code, found.status, found.code) == (status, status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return found


FORM = {"Content-Type": "multipart/form-data; boundary=x"}
PART = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"Content-Type": "image/png"}, b"x", 415, "unknown-type"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, b"x", 415, "unknown-encoding"),
        ({}, b"", 415, "unknown-type"),
        ({"Content-Type": "multipart/form-data"}, b"x", 400, "no-boundary"),
        (FORM, b"nonsense", 400, "broken-form"),
        (FORM, PART + b"cut off", 400, "broken-form"),
        (FORM, b"--x--\r\n", 422, "no-files"),
        (FORM, b"", 422, "no-files"),
        (FORM, PART.replace(b'"files"', b'"other"') + b"x\r\n--x--\r\n", 422, "unknown-field"),
        (FORM, PART.replace(b'; filename="a"', b"") + b"x\r\n--x--\r\n", 422, "unknown-field"),
        (FORM, 3 * (PART + b"x\r\n") + b"--x--\r\n", 422, "too-many-files"),
        (FORM, PART + bytes(2001) + b"\r\n--x--\r\n", 413, "too-large"),
        (FORM, PART + bytes(6000), 413, "too-large"),
        ({"Content-Type": "application/json"}, b"{", 400, "broken-json"),
        ({"Content-Type": "application/json"}, b"[" * 4000, 400, "broken-json"),
        ({"Content-Type": "application/json"}, b'{"files": []}', 422, "wrong-value"),
        ({"Content-Type": "application/json"}, b'{"files": [{"data": "%%%%"}]}', 422, "wrong-value"),
        ({"Content-Type": "application/json"}, b'{"files": [{"data": 5}]}', 422, "wrong-value"),
        ({"Content-Type": "application/json"}, b'{"files": [{"data": "", "path": "/etc/passwd"}]}', 422, "wrong-value"),
        ({"Content-Type": "application/json"}, b'{"files": [{"name": "\\ud800", "data": ""}]}', 400, "broken-json"),
    ],
)
def test_a_broken_request_is_a_problem(
    narrow: Running, headers: dict[str, str], body: bytes, status: int, code: str
) -> None:
    found = problem(narrow.client.post("/api/predict", content=body, headers=headers), status, code)
    assert found.detail
    assert "\n" not in found.detail
    assert narrow.left_files() == []
    assert narrow.service.spool.held_bytes == 0


def test_the_size_is_watched_while_it_comes(narrow: Running) -> None:
    """Without a declared length, a body that never ends is refused after its first bytes."""
    host, _, port = narrow.address.removeprefix("http://").partition(":")
    kind = f"Transfer-Encoding: chunked\r\nContent-Type: {FORM['Content-Type']}"
    head = f"POST /api/predict HTTP/1.1\r\nHost: {host}\r\n{kind}"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"{head}\r\n\r\n{len(PART):x}\r\n".encode() + PART + b"\r\n")
        for _ in range(3):
            connection.sendall(b"3e8\r\n" + bytes(1000) + b"\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")
    assert narrow.left_files() == []


def test_a_large_length_is_refused_before_anything_is_sent(narrow: Running) -> None:
    connection = http.client.HTTPConnection(narrow.address.removeprefix("http://"), timeout=10)
    connection.putrequest("POST", "/api/predict")
    for name, value in {**FORM, "Content-Length": str(10**12)}.items():
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["code"] == "too-large"
    connection.close()


def test_a_request_that_does_not_arrive_in_time(narrow: Running) -> None:
    connection = http.client.HTTPConnection(narrow.address.removeprefix("http://"), timeout=10)
    connection.putrequest("POST", "/api/predict")
    for name, value in {**FORM, "Content-Length": "1000"}.items():
        connection.putheader(name, value)
    connection.endheaders(PART)
    answer = connection.getresponse()
    assert answer.status == 408
    assert json.loads(answer.read())["code"] == "too-slow"
    connection.close()
    assert narrow.left_files() == []


def test_a_client_that_leaves_is_forgotten(narrow: Running) -> None:
    host, _, port = narrow.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        head = (
            f"POST /api/predict HTTP/1.1\r\nHost: {host}\r\nContent-Length: 999\r\nContent-Type: {FORM['Content-Type']}"
        )
        connection.sendall(f"{head}\r\n\r\n".encode() + PART + b"some")
        until(lambda: narrow.service.num_requests == 1)
    until(lambda: narrow.service.num_requests == 0)
    assert narrow.left_files() == []


def until(holds: Any, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_overload_is_refused_and_passes(narrow: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model stands still: two requests wait, the third is refused, and all is well when it goes on."""
    going, image = threading.Event(), ("a.png", NEVUS.read_bytes()[:100])
    service, real = narrow.service, narrow.service._open

    def slow(*arguments: Any) -> Any:
        going.wait(10)
        return real(*arguments)

    monkeypatch.setattr(service, "_open", slow)
    waiting = [threading.Thread(target=narrow.results, args=(image,)) for _ in range(2)]
    for thread in waiting:
        thread.start()
    until(lambda: service.num_requests == 2)
    answer = narrow.post(image)
    problem(answer, 503, "overloaded")
    assert int(answer.headers["retry-after"]) > 0
    assert narrow.client.get("/healthz").status_code == 200
    going.set()
    for thread in waiting:
        thread.join()
    assert narrow.post(image).status_code == 200


def test_an_answer_that_takes_too_long(narrow: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    going = threading.Event()
    monkeypatch.setattr(narrow.service, "_open", lambda *arguments: going.wait(10) and [])
    problem(narrow.post(("a.png", b"x")), 504, "too-slow")
    going.set()
    assert narrow.left_files() == []


def test_an_upload_that_was_removed_is_not_written_again(tmp_path: Path) -> None:
    """A thread that comes to it after its request was given up leaves nothing."""
    upload = Upload("a", tmp_path / "a")
    upload.add(bytes(300_000))
    upload.add(b"more")
    assert (tmp_path / "a").stat().st_size == 300_000
    upload.write_out()
    assert (tmp_path / "a").stat().st_size == 300_004
    upload.remove()
    with pytest.raises(FileNotFoundError):
        upload.write_out()
    assert list(tmp_path.iterdir()) == []


def test_too_many_bytes_at_a_time(narrow: Running) -> None:
    narrow.service.spool.held_bytes += 7000
    problem(narrow.post(("a.png", bytes(1500))), 503, "overloaded")
    narrow.service.spool.held_bytes -= 7000
    assert narrow.service.spool.held_bytes == 0


def test_a_failure_of_ours_says_nothing_of_the_inside(
    server: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> Any:
        raise KeyError("Doe^Jane")

    monkeypatch.setattr(server.service.batcher, "_answer", fail)
    with caplog.at_level("INFO", "parsecaps.serve"):
        found = problem(server.post(("a.png", NEVUS.read_bytes())), 500, "failed")
    assert "KeyError at fail" in caplog.text
    for text in (found.detail, caplog.text):
        assert "Doe" not in text
    monkeypatch.undo()
    assert server.post(("a.png", NEVUS.read_bytes())).status_code == 200


def test_what_is_not_there(narrow: Running) -> None:
    problem(narrow.client.get("/nothing?name=Doe"), 404, "not-found")
    answer = narrow.client.delete("/api/predict")
    problem(answer, 405, "wrong-method")
    assert answer.headers["allow"] == "POST"


def test_every_answer_has_the_headers_of_a_careful_server(narrow: Running) -> None:
    for path in ("/healthz", "/api/model", "/nothing", "/docs"):
        headers = narrow.client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == ("no-cache" if path == "/docs" else "no-store")
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example:8000"}, 421),
        ({"Host": ""}, 421),
        ({"Host": "LOCALHOST:1234"}, 200),
        ({"Host": "[::1]:80"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
def test_no_page_of_another_address_may_ask(server: Running, headers: dict[str, str], status: int) -> None:
    answer = server.post(("a.png", b"no image"), headers=headers)
    assert answer.status_code == status
    if status != 200:
        problem(answer, status, {421: "wrong-host", 403: "foreign-page"}[status])


def test_probes_have_no_name(server: Running) -> None:
    for path, status in (("/healthz", 200), ("/readyz", 200), ("/api/model", 421), ("/docs", 421)):
        assert server.client.get(path, headers={"Host": "10.0.0.7:8000"}).status_code == status


def test_its_own_page_may_ask(server: Running) -> None:
    assert server.post(("a.png", b"no image"), headers={"Origin": server.address}).status_code == 200


def test_a_token_is_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level("INFO", "parsecaps.serve"),
        running(token=TOKEN, host="0.0.0.0", hosts=("ours.example",)) as found,
    ):
        good = {"Authorization": f"bearer {TOKEN}", "Host": "ours.example"}
        assert found.client.get("/api/model", headers=good).status_code == 200
        page = {**good, "Origin": "https://ours.example"}
        assert found.post(("a", b"x"), headers=page).status_code == 200
        for wrong in ("", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer", "Bearer \xe9"):
            for path in ("/api/model", "/metrics", "/nothing"):
                headers = {"Host": "ours.example", "Authorization": wrong.encode("latin-1")}
                answer = found.client.get(path, headers=headers)
                problem(answer, 401, "no-token")
                assert answer.headers["www-authenticate"].startswith("Bearer")
        for path in ("/healthz", "/readyz", "/docs", "/openapi.json"):
            headers = {"Host": "ours.example", "Authorization": ""}
            assert found.client.get(path, headers=headers).status_code == 200
        assert found.client.get("/openapi.json", headers=good).json()["paths"]["/api/model"]["get"]["security"]
        problem(found.client.get("/api/model", headers={**good, "Host": "other.example"}), 421, "wrong-host")
    assert TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("host", "token"),
    [
        ("0.0.0.0", None),
        ("192.168.0.5", None),
        ("::", None),
        ("127.0.0.1", "short"),
        ("127.0.0.1", ""),
        ("127.0.0.1", "é" * 20),
    ],
)
def test_an_open_address_needs_a_good_token(host: str, token: str | None) -> None:
    with refused(ValueError):
        check_token(host, token)
    check_token("127.0.0.1", None)
    check_token("0.0.0.0", TOKEN)


def test_a_taken_port_is_one_line() -> None:
    with listen("127.0.0.1", 0) as taken, refused(OSError, hide=LIBRARY):
        listen("127.0.0.1", taken.getsockname()[1])


def test_not_ready_while_it_stops(narrow: Running) -> None:
    assert narrow.client.get("/readyz").json() == {"status": "ready"}
    narrow.service.is_stopping = True
    try:
        problem(narrow.client.get("/readyz"), 503, "overloaded")
        problem(narrow.post(("a.png", b"x")), 503, "overloaded")
        assert narrow.client.get("/healthz").status_code == 200
    finally:
        narrow.service.is_stopping = False


def test_a_long_body_of_json(server: Running) -> None:
    """One that is read outside of the event loop."""
    data = base64.b64encode(NEVUS.read_bytes() + bytes(400_000)).decode()
    answer = server.client.post("/api/predict", json={"files": [{"name": "a", "data": data}]})
    assert answer.json()["results"][0]["error"] is None
