"""A model goes to the hub and comes back; what is about patients stays, whatever lies beside it."""

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import ModelCard, constants
from typer.testing import CliRunner, Result

import parsecaps
from parsecaps.cli import app
from parsecaps.data.leaks import FINGERPRINTS_FILE, write_fingerprints
from parsecaps.data.sources import open_data
from parsecaps.discovery.naming import name_concepts
from parsecaps.explain.case_memory import CaseMemory
from parsecaps.export import export_model, hub
from parsecaps.export.hub import PUBLISHED_FILES
from parsecaps.files.hub_download import HubName, parse_hub_name
from parsecaps.model import Model, find_model_folder
from parsecaps.prediction.predict import predict_images
from tests.explain.make_explained import DATA, make_model
from tests.export.fake_hub import FakeHub, Repository, running_hub
from tests.golden.make_golden import HERE, IMAGES
from tests.messages import LIBRARY, message, refused


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub of its own for each test, and nothing fetched yet."""
    with running_hub() as found:
        monkeypatch.setattr(constants, "ENDPOINT", found.url)
        template = found.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model without a run."""
    make_model(open_data(DATA), "bottleneck").save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def published(server: FakeHub, model: Path, tmp_path: Path) -> Repository:
    """The same on the hub, as owner/name."""
    export_model(model, "hub", tmp_path / "folder", push="owner/name")
    return server.repositories["owner/name"]


def test_pictures_and_patients_that_lie_beside_a_model_never_leave(server: FakeHub, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(HERE / "bottleneck", run)
    write_fingerprints(run / "bundle" / FINGERPRINTS_FILE, np.zeros((3, 32), np.uint8))
    (run / "bundle" / "config.json.bak").write_text("{}")
    for path in (run / "known_cases").iterdir():
        shutil.copy(path, run / "bundle")
    out = ["--to", "hub", "--push", "owner/name", "--out", str(tmp_path / "folder")]
    done = _cli("export", str(run), *out)
    assert done.exit_code == 0, done.stderr
    message(done.stdout)
    left = "config.json.bak, fingerprints.safetensors, memory.npz, thumbnails.zip"
    assert f"left out: {left}\n" in done.stdout
    assert "pushed (public): " in done.stdout
    files = server.repositories["owner/name"].files
    assert set(files) == {*PUBLISHED_FILES}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "folder").iterdir()}
    memory = CaseMemory.load(run / "bundle", Model.load(run))
    patients = {*memory.predictions.patient}
    assert len(patients) > 50
    sent = b"\n".join([*files.values(), *server.sent])
    assert not [patient for patient in patients if patient.encode() in sent]
    assert b"PK\x03\x04" not in sent  # an archive of arrays or pictures


def test_even_a_folder_with_more_in_it_is_pushed_by_an_allow_list(server: FakeHub) -> None:
    hub.push(HERE / "bottleneck" / "bundle", HubName("owner/old"))
    wanted = {"bundle.json", "calibration.json", "config.json", "model.safetensors", "strict.safetensors"}
    assert set(server.repositories["owner/old"].files) == wanted


def test_a_model_from_the_hub_gives_the_same_answers(published: Repository, model: Path, tmp_path: Path) -> None:
    commit = next(iter(published.commits))
    images = torch.rand(4, 3, 32, 32)
    wanted = predict_images(Model.load(model), images)
    for name in ("hf://owner/name", "hf://owner/name@main", f"hf://owner/name@{commit}"):
        found = predict_images(parsecaps.load(name), images)
        assert np.array_equal(found.logits, wanted.logits)
    assert _cli("predict", "hf://owner/name", str(IMAGES[0]), "--out", str(tmp_path / "a.csv")).exit_code == 0
    assert _cli("predict", str(model), str(IMAGES[0]), "--out", str(tmp_path / "b.csv")).exit_code == 0
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


def test_only_the_files_of_a_model_are_fetched(published: Repository) -> None:
    published.commit(
        {"modeling.py": b"raise SystemExit", "memory.npz": b"x", "sub/config.json": b"{}", "model.pt": b"x"}
    )
    folder = find_model_folder("hf://owner/name")
    assert {path.name for path in folder.iterdir()} == {*PUBLISHED_FILES} - {"calibration.json", "strict.safetensors"}


def test_what_was_fetched_is_there_without_a_network(
    published: Repository, server: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = find_model_folder("hf://owner/name")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert find_model_folder("hf://owner/name") == first
    with refused(FileNotFoundError):
        find_model_folder("hf://owner/other")


def test_a_damaged_model_is_refused_as_it_is_from_a_folder(published: Repository) -> None:
    published.commit({"model.safetensors": published.files["model.safetensors"][:-100]})
    with refused(ValueError, hide=LIBRARY):
        parsecaps.load("hf://owner/name")


def test_a_repository_without_a_model_is_refused(server: FakeHub) -> None:
    server.repositories["owner/other"] = Repository()
    server.repositories["owner/other"].commit({"README.md": b"# x", "config.json": b"{}"})
    with refused(FileNotFoundError):
        parsecaps.load("hf://owner/other")


def test_what_is_not_on_the_hub_is_one_line(published: Repository) -> None:
    with refused(FileNotFoundError):
        parsecaps.load("hf://owner/nothing")
    with refused(FileNotFoundError):
        parsecaps.load("hf://owner/name@v9")


@pytest.mark.parametrize(
    "name",
    ["hf://name", "hf://a/b/c", "hf://../x", "hf://a/b@", "hf://a/b@../c", "hf://a--b/c", "hf://a/b.git", "hf:/"],
)
def test_a_bad_name_is_refused_before_anybody_is_asked(name: str) -> None:
    with refused(ValueError):
        parse_hub_name(name)


def test_without_the_package_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    done = _cli("predict", "hf://owner/name", str(IMAGES[0]), "--out", str(tmp_path / "a.csv"))
    assert done.exit_code == 2
    message(done.stderr)


def test_a_private_push_never_goes_to_a_public_repository(server: FakeHub, model: Path, tmp_path: Path) -> None:
    server.repositories["owner/open"] = Repository(private=False)
    server.repositories["owner/open"].commit({"README.md": b"# x"})
    with refused(ValueError):
        export_model(model, "hub", tmp_path / "folder", push="owner/open", private=True)
    assert set(server.repositories["owner/open"].files) == {"README.md"}
    assert not (tmp_path / "folder").exists()
    lines = export_model(model, "hub", tmp_path / "folder", push="owner/closed", private=True)
    assert server.repositories["owner/closed"].private
    assert lines[-1].startswith("pushed (private): ")


def test_a_second_push_is_a_new_revision(published: Repository, model: Path, tmp_path: Path) -> None:
    loaded = Model.load(model)
    next(loaded.network.parameters()).data += 1
    loaded.save(model)
    line = export_model(model, "hub", tmp_path / "again", push="owner/name")[-1]
    first, second = published.commits
    assert f"hf://owner/name@{second}" in line
    images = torch.rand(2, 3, 32, 32)
    old, new = (predict_images(Model.load(f"hf://owner/name@{each}"), images).logits for each in (first, second))
    assert not np.allclose(old, new)


def test_without_a_token_one_line_says_how_to_log_in(
    server: FakeHub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    with refused(PermissionError):
        export_model(model, "hub", tmp_path / "folder", push="owner/name")
    assert not (tmp_path / "folder").exists()


def test_an_export_that_answers_otherwise_is_neither_kept_nor_pushed(
    server: FakeHub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(model: Model, folder: Path) -> None:
        model.save(folder)
        stored = Model.load(folder)
        for parameter in stored.network.parameters():
            parameter.data += 0.01
        stored.save(folder)

    monkeypatch.setattr(hub, "write_model", damaged)
    with refused(ValueError, hide=r"up to [\d.e-]+"):
        export_model(model, "hub", tmp_path / "folder", push="owner/name")
    assert not server.sent
    assert not [path for path in tmp_path.iterdir() if "folder" in path.name]


def test_the_card_has_what_the_hub_reads(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(HERE / "parallel", run)
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["data"]["licences"] = ["CC BY 4.0"]
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    export_model(run, "hub", tmp_path / "folder")
    card = ModelCard.load(tmp_path / "folder" / "README.md")
    data = card.data.to_dict()
    assert data["license"] == "cc-by-4.0"
    assert (data["library_name"], data["pipeline_tag"]) == ("parsecaps", "image-classification")
    scores = json.loads((run / "scores.json").read_text())
    found = {each.metric_type: each for each in card.data.eval_results or []}
    assert found["accuracy"].metric_value == pytest.approx(scores["overall"]["accuracy"]["value"], abs=1e-6)
    assert (found["roc_auc"].dataset_name, found["roc_auc"].dataset_split) == ("phantom:n=400,size=48", "test")
    assert card.text.count("# Model card: phantom:n=400,size=48") == 1
    assert 'parsecaps.load("hf://owner/name@main")' in card.text
    export_model(tmp_path / "folder", "hub", tmp_path / "again")
    again = (tmp_path / "again" / "README.md").read_text()
    assert again.count("## How to use") == again.count("# Model card: ") == 1


def test_concepts_of_a_model_on_the_hub_cannot_be_named(tmp_path: Path) -> None:
    with refused(ValueError):
        name_concepts(Path("hf://owner/name"), tmp_path / "names.csv")


@pytest.mark.parametrize(
    "options", [["--to", "monai", "--push", "a/b"], ["--to", "hub", "--push", "b"], ["--to", "hub", "--private"]]
)
def test_options_that_do_not_fit_are_refused(model: Path, tmp_path: Path, options: list[str]) -> None:
    done = _cli("export", str(model), *options, "--out", str(tmp_path / "out"))
    assert done.exit_code == 2
    message(done.stderr)


def _cli(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))
