"""The description of the interface: true, as Schemathesis finds, and shown without asking anybody else."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode

from tests.browser import needs_browser, page
from tests.serve.running import TOKEN, Running, running


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with a token, which the description has to say, and with reviews."""
    review = tmp_path_factory.mktemp("review") / "reviews.sqlite"
    with running(token=TOKEN, files=4, explained=1, review=review) as found:
        yield found


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_schemathesis_finds_nothing(guarded: Running, mode: GenerationMode) -> None:
    """A few requests that keep to the description, and a few that do not; the whole is `schemathesis run`."""
    described = schemathesis.openapi.from_url(f"{guarded.address}/openapi.json")
    checked = set()
    for found in described.get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and operation.method == "get" and "{" not in operation.path:
            continue  # they take nothing that could be wrong

        @settings(max_examples=6, database=None, suppress_health_check=list(HealthCheck))
        @given(operation.as_strategy(mode))
        def check(case: schemathesis.Case) -> None:
            case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})

        check()
        checked.add(operation.label)
    with_files = {"POST /api/predict", "POST /api/explain", "POST /api/review/images", "POST /api/review/earlier"}
    asking = with_files | {"POST /api/review", "GET /api/examples/{number}"}
    others = {"GET /api/model", "GET /api/examples", "GET /api/review", "GET /api/review/manifest"}
    others |= {"GET /healthz", "GET /readyz", "GET /metrics"}
    assert checked == (asking if mode is GenerationMode.NEGATIVE else asking | others)


@needs_browser
def test_the_page_of_the_interface_asks_nobody_else(server: Running) -> None:
    with page() as (opened, errors):
        asked: list[str] = []
        opened.on("request", lambda request: asked.append(request.url))
        opened.goto(f"{server.address}/docs")
        opened.wait_for_selector("#operations-model-predict_api_predict_post")
        opened.wait_for_timeout(200)
        text = opened.inner_text("body")
    assert errors == []
    assert "What the model says of images" in text
    assert "Not a medical device" in text
    assert len(asked) >= 5
    assert all(url.startswith(server.address) or url.startswith("data:") for url in asked)


def test_the_files_of_the_page_for_a_client_that_cannot_unpack(server: Running) -> None:
    packed = server.client.get("/static/docs/swagger-ui.css")
    plain = server.client.get("/static/docs/swagger-ui.css", headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.text == plain.text
    assert ".swagger-ui" in plain.text


def test_metrics_count_what_happens(server: Running) -> None:
    def value(name: str) -> float:
        lines = server.client.get("/metrics").text.splitlines()
        return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    names = {
        'parsecaps_requests_total{method="POST",route="/api/predict",status="200"}': 1,
        'parsecaps_images_total{result="refused"}': 2,
        'parsecaps_request_seconds_count{route="/api/predict"}': 1,
        'parsecaps_problems_total{code="not-found"}': 1,
        'parsecaps_requests_total{method="other",route="other",status="404"}': 1,
    }
    before = {name: value(name) for name in names}
    server.post(("a", b"x"), ("b", b"y"))
    server.client.request("PURGE", "/nothing/Doe")
    assert {name: value(name) - before[name] for name in names} == names
    assert value("parsecaps_queue_images") == value("parsecaps_requests_at_a_time") == 0
    assert "Doe" not in server.client.get("/metrics").text
