"""A bundle can be given away: it holds numbers and the names of classes and concepts, and nothing about a patient."""

import csv
import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from safetensors import safe_open
from typer.testing import CliRunner

import parsecaps
from parsecaps.cli import app
from parsecaps.config import load_config
from parsecaps.model import Model
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from tests.data.make import picture

FOLDER = "ward-zeisig-7"
CASES = 48


def patient(i: int) -> str:
    """Two images each."""
    return f"Quaxolder-{i // 2:03}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A trained run that remembers its cases and whose concepts were named, with notes."""
    root = tmp_path_factory.mktemp("data") / FOLDER
    (root / "scans").mkdir(parents=True)
    with (root / "cases.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "patient"])
        for i in range(CASES):
            Image.fromarray(picture(i, 36)).save(root / "scans" / f"brimfeld_{i:03}.png")
            writer.writerow([f"scans/brimfeld_{i:03}.png", "ab"[i // 2 % 2], patient(i)])
    settings = [f"data.path={root / 'cases.csv'}", "model.preset=tiny", "training.epochs=1", "training.batch_size=8"]
    folder = tmp_path_factory.mktemp("runs") / "run"
    run = parsecaps.fit(load_config(None, settings), run_folder=folder, callbacks=Callbacks())
    assert run.scores is not None
    assert CliRunner().invoke(app, ["remember", str(folder)]).exit_code == 0
    names = root / "names.csv"
    names.write_text(f"concept,name,note\n1,bright rim,as in {patient(0)}\n", encoding="utf-8")
    assert CliRunner().invoke(app, ["name", str(folder), str(names)]).exit_code == 0
    return run


def contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and of what is packed in it."""
    raw = path.read_bytes()
    yield raw
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            yield from (archive.read(name) for name in archive.namelist())
    if path.suffix == ".safetensors":
        with safe_open(path, framework="np") as file:
            yield repr(file.metadata()).encode()
            yield from (file.get_tensor(name).tobytes() for name in file.keys())  # noqa: SIM118 (it is no dictionary)


def found_in(folder: Path, secrets: list[str]) -> list[str]:
    """Which of the secrets are in which file of a folder, or in its name."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    named = [f"{path.name}: {secret}" for path in files for secret in secrets if secret in path.name]
    inside = [(path, raw.lower()) for path in files for raw in contents(path)]
    return named + [
        f"{path.name}: {secret}"
        for path, raw in inside
        for secret in secrets
        if secret.lower().encode() in raw or secret.lower().encode("utf-16-le") in raw
    ]


def test_the_bundle_says_nothing_about_patients(run: Run) -> None:
    data = run.data
    secrets = sorted({case.patient for case in data.cases} | {case.image.name for case in data.cases})
    secrets += [case.image.stem for case in data.cases]
    secrets += [FOLDER, str(data.root), str(data.root.parent), "names.csv", *(["scans"])]
    assert len(secrets) > 3 * CASES / 2
    assert found_in(run.bundle_folder, secrets) == []
    everywhere = " ".join(found_in(run.folder, secrets))  # and what is looked for would be found
    assert all(secret in everywhere for secret in secrets if secret != "names.csv")
    files = {path.name for path in run.bundle_folder.iterdir()}
    assert files == {
        *("config.json", "model.safetensors", "bundle.json", "calibration.json", "README.md", "strict.safetensors"),
        "fingerprints.safetensors",
    }


def test_explanations_know_the_cases_of_the_run_and_not_those_of_a_bundle_given_away(run: Run, tmp_path: Path) -> None:
    image = run.data.cases[0].image
    told = Model.load(run.folder).explain(image)
    assert told.similar
    assert told.pictures
    assert Model.load(run.bundle_folder).explain(image).similar == told.similar
    given = shutil.copytree(run.bundle_folder, tmp_path / "bundle")
    alone = Model.load(given).explain(image)
    assert not alone.similar
    assert alone.probabilities == told.probabilities
