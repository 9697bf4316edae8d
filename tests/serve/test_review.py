"""Reviews through the interface, and what becomes of them: training data."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from parsecaps import fit
from parsecaps.cli import app
from parsecaps.data.phantom.drawing import draw
from parsecaps.serve.review_store import Mark
from parsecaps.training.callbacks import Callbacks
from tests.data.image_files import colour, write_dicom
from tests.messages import message
from tests.serve.running import MELANOMA, MODEL, NEVUS, TOKEN, Running, running
from tests.serve.test_limits import problem

PNG, DICOM = ("a.png", NEVUS.read_bytes()), "secret-Ann.dcm"
VEIL, STREAKS = "blue-whitish veil", "irregular streaks"


@pytest.fixture(scope="module")
def reviewing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(review=tmp_path_factory.mktemp("review") / "reviews.sqlite", risk=0.2) as found:
        yield found


def keep(server: Running, *files: tuple[str, bytes]) -> list[dict[str, Any]]:
    answer = server.post(*files, to="/api/review/images")
    assert answer.status_code == 200, answer.text
    images: list[dict[str, Any]] = answer.json()["images"]
    return images


def say(server: Running, image: str, **said: Any) -> dict[str, Any]:
    answer = server.client.post("/api/review", json={"image": image, "reviewer": "Ann", "verdict": "agree"} | said)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_review_has_who_when_and_what_the_model_says(reviewing: Running) -> None:
    (kept,) = keep(reviewing, PNG)
    mark = {"kind": "box", "points": [[0.1, 0.2], [0.5, 0.6]], "comment": "odd"}
    found = say(reviewing, kept["image"], reviewer="  Ann B. ", concepts={VEIL: True}, comment="c", marks=[mark])
    (said,) = reviewing.results(PNG)
    assert found["said"] == {name: said[name] for name in ("class", "probabilities", "concepts", "set", "abstain")}
    assert (found["label"], found["reviewer"]) == (said["class"], "Ann B.")
    assert found["weights"] == reviewing.client.get("/api/model").json()["weights"]
    assert found["marks"] == [mark]
    assert found["at"].endswith("+00:00")
    stored = reviewing.service.reviews
    assert stored is not None
    (last,) = (each for each in stored.reviews() if each.id == found["id"])
    assert last.preparation == reviewing.client.get("/api/model").json()["preparation"]
    assert (last.concepts, last.comment, last.marks) == ({VEIL: True}, "c", [Mark(**mark)])
    assert reviewing.left_files() == []


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"image": "0" * 64}, 404, "unknown-image"),
        ({"image": "../../etc/passwd"}, 422, "wrong-value"),
        ({"frame": 3}, 422, "wrong-frame"),
        ({"reviewer": " "}, 422, "wrong-value"),
        ({"verdict": "perhaps"}, 422, "wrong-value"),
        ({"label": "nevus"}, 422, "wrong-value"),
        ({"verdict": "disagree", "label": "wart"}, 422, "unknown-class"),
        ({"concepts": {"horns": True}}, 422, "unknown-concept"),
        ({"concepts": {VEIL: 0.5}}, 422, "wrong-value"),
        ({"marks": [{"kind": "box", "points": [[0, 0], [2, 0]]}]}, 422, "wrong-value"),
        ({"said": {"class": "nevus"}}, 422, "wrong-value"),
    ],
)
def test_a_wrong_review_is_a_problem(reviewing: Running, change: dict[str, Any], status: int, code: str) -> None:
    (kept,) = keep(reviewing, PNG)
    before = reviewing.client.get("/api/review").json()
    sent = {"image": kept["image"], "reviewer": "Ann", "verdict": "agree"} | change
    problem(reviewing.client.post("/api/review", json=sent), status, code)
    assert reviewing.client.get("/api/review").json() == before


def test_broken_bodies_are_problems(reviewing: Running) -> None:
    as_json = {"Content-Type": "application/json"}
    problem(reviewing.client.post("/api/review", content=b"{", headers=as_json), 400, "broken-json")
    problem(reviewing.client.post("/api/review", content=b"{}", headers={"Content-Type": "a/b"}), 415, "unknown-type")
    problem(reviewing.client.post("/api/review", content=bytes(4_000_001), headers=as_json), 413, "too-large")
    found = keep(reviewing, ("a.txt", b"no image"), PNG)
    assert (found[0]["image"], found[1]["error"]) == (None, None)
    message(found[0]["error"])


def test_a_dicom_is_kept_without_its_patient(reviewing: Running, tmp_path: Path) -> None:
    named = {"PatientName": "Secret^Ann", "PatientID": "secret-7", "StudyInstanceUID": "1.2.3.4.5.6"}
    path = write_dicom(tmp_path / "a.dcm", colour(40, 40), **named)
    frames = write_dicom(tmp_path / "b.dcm", np.stack([colour(40, 40)[:, :, 0]] * 2), frames=2, **named)
    one, several = keep(reviewing, (DICOM, path.read_bytes()), (DICOM, frames.read_bytes()))
    say(reviewing, one["image"])
    say(reviewing, several["image"], frame=1, verdict="disagree", label=None)
    problem(
        reviewing.client.post("/api/review", json={"image": several["image"], "reviewer": "A", "verdict": "agree"}),
        422,
        "wrong-frame",
    )
    store = reviewing.service.reviews
    assert store is not None
    everything = b"".join(file.read_bytes() for file in store.path.parent.iterdir())
    for secret in (b"ecret", b"1.2.3.4.5.6"):
        assert secret not in everything
    rows = list(csv.DictReader(io.StringIO(reviewing.client.get("/api/review/manifest").text)))
    of_study = [row for row in rows if row["patient"].startswith("study-")]
    assert len({row["patient"] for row in of_study}) == 1
    assert [row["frame"] for row in of_study] == ["", "1"]


def test_earlier_reviews_are_found_by_the_image(reviewing: Running, tmp_path: Path) -> None:
    """Also those of a DICOM with another patient's name; asking keeps nothing."""
    (kept,) = keep(reviewing, ("other.png", MELANOMA.read_bytes()))
    for who in ("Ann", "Bob"):
        say(reviewing, kept["image"], reviewer=who, comment=f"by {who}")
    unseen = write_dicom(tmp_path / "a.dcm", colour(33, 33)).read_bytes()
    store = reviewing.service.reviews
    assert store is not None
    before = store.num_bytes
    files = [("again.png", MELANOMA.read_bytes()), ("a.dcm", unseen), ("a.txt", b"no image")]
    answer = reviewing.post(*files, to="/api/review/earlier")
    assert answer.status_code == 200, answer.text
    found, none, bad = answer.json()["files"]
    assert [(each["reviewer"], each["comment"]) for each in found["reviews"]] == [("Ann", "by Ann"), ("Bob", "by Bob")]
    assert (found["error"], none) == (None, {"file": 1, "reviews": [], "error": None})
    message(bad["error"])
    assert store.num_bytes == before
    assert reviewing.left_files() == []


def test_without_review_nothing_is_kept_and_there_is_no_route(server: Running) -> None:
    assert server.client.get("/api/model").json()["review"] is False
    for method, path in (("POST", "/api/review"), ("POST", "/api/review/images"), ("GET", "/api/review/manifest")):
        problem(server.client.request(method, path), 404, "not-found")
    assert "/api/review" not in server.client.get("/openapi.json").json()["paths"]
    assert server.left_files() == []


def test_reviews_need_the_token_and_room(tmp_path: Path) -> None:
    with running(review=tmp_path / "r.sqlite", token=TOKEN, review_bytes=1) as server:
        problem(server.post(PNG, to="/api/review/images"), 507, "no-room")
        server.client.headers.pop("Authorization")
        for method, path in (("POST", "/api/review"), ("POST", "/api/review/images"), ("GET", "/api/review/manifest")):
            problem(server.client.request(method, path), 401, "no-token")
        assert server.client.get("/").status_code == 200
        problem(server.client.get("/api/examples"), 401, "no-token")


def test_review_becomes_training_data(tmp_path: Path) -> None:
    """Drawn lesions are reviewed by someone who knows the truth; a model trains on what comes out."""
    drawn = draw(range(16), size=48, seed=7)
    names = ("nevus", "melanoma")
    truth: dict[str, tuple[str, bool]] = {}
    with running(review=tmp_path / "r.sqlite") as server:
        for i in range(16):
            file = io.BytesIO()
            Image.fromarray(np.moveaxis(np.asarray(drawn.image[i]), 0, -1)).save(file, "PNG")
            (kept,) = keep(server, (f"{i}.png", file.getvalue()))
            label, veil = names[i % 2], i % 3 == 0
            wrong = say(server, kept["image"], concepts={VEIL: not veil, STREAKS: True})  # thought better of below
            agrees = wrong["said"]["class"] == label
            verdict = {"verdict": "agree"} if agrees else {"verdict": "disagree", "label": label}
            found = say(server, kept["image"], concepts={VEIL: veil}, **verdict)
            assert found["label"] == label
            truth[kept["image"][:24]] = (label, veil)
        assert server.client.get("/api/review").json() == {"reviews": 32, "images": 16, "disputed": 0}
        served = server.client.get("/api/review/manifest").text
    assert len({label for label, _ in truth.values()}) == 2
    out = tmp_path / "reviewed"
    done = CliRunner().invoke(app, ["review", str(tmp_path / "r.sqlite"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "16 images, 16 with a class" in done.stdout
    assert (out / "manifest.csv").read_text(encoding="utf-8") == served
    assert len(json.loads((out / "reviews.json").read_text(encoding="utf-8"))) == 32
    assert all(path.stat().st_mode & 0o077 == 0 for path in out.rglob("*"))
    settings = {"model.preset": "tiny", "training.epochs": 1, "training.batch_size": 8, "data.val": 0.25}
    run = fit(str(out), settings=settings, run_folder=tmp_path / "run", callbacks=Callbacks())
    assert run.data.classes == ("melanoma", "nevus")
    assert run.data.concepts == (VEIL,)
    learned = {case.image.stem: (run.data.classes[case.label], case.concepts == (1.0,)) for case in run.data.cases}
    assert learned == truth
    assert run.model.concepts == (VEIL,)


def test_the_command_says_who_differs_and_refuses_a_folder_in_use(reviewing: Running, tmp_path: Path) -> None:
    (kept,) = keep(reviewing, ("m.png", MELANOMA.read_bytes()))
    other = say(reviewing, kept["image"], reviewer="Bob")["said"]["class"]
    label = next(name for name in ("nevus", "melanoma") if name != other)
    say(reviewing, kept["image"], reviewer="Cem", verdict="disagree", label=label)
    store = reviewing.service.reviews
    assert store is not None
    for _ in range(2):
        done = CliRunner().invoke(app, ["review", str(store.path), "--out", str(tmp_path / "out")])
        if done.exit_code:
            break
        assert f"reviewers differ on {kept['image'][:24]}: class" in done.stdout
    message(done.stderr)


def test_a_file_that_is_no_file_of_reviews_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("my notes " * 200, encoding="utf-8")
    before = (tmp_path / "notes.txt").stat().st_mtime_ns
    done = CliRunner().invoke(app, ["serve", str(MODEL), "--port", "0", "--review", str(tmp_path / "notes.txt")])
    assert done.exit_code == 2
    message(done.stderr)
    assert (tmp_path / "notes.txt").stat().st_mtime_ns == before
