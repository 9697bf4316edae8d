"""Concepts without labels, as a user meets them: discover, name, and the names everywhere."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.optimize import linear_sum_assignment

import parsecaps
from parsecaps.explain.case_memory import CaseMemory, remember_run
from parsecaps.model import Model
from parsecaps.models import ParseCaps
from parsecaps.models.pretrained import weights_digest
from parsecaps.training.callbacks import Callbacks
from tests.command import fails, run
from tests.data.make import folder_of_pictures
from tests.explain.make_explained import make_folder
from tests.messages import message

SETTINGS = {
    "model.preset": "tiny",
    "model.head": "bottleneck",
    "model.num_concepts": 3,
    "training.epochs": 1,
    "training.batch_size": 8,
    "data.test": 0,
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of other seeds on images of two classes, with masks that cover the left quarter."""
    root = tmp_path_factory.mktemp("discover")
    folder_of_pictures(root / "pictures", per_class=16, side=32)
    mask = np.zeros((32, 32), np.uint8)
    mask[:, :8] = 255
    Image.fromarray(mask).save(root / "mask.png")
    with (root / "cases.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "patient", "mask"])
        for label in "ab":
            for i in range(16):
                writer.writerow([f"pictures/{label}/{i}.png", label, f"{label}{i // 2}", "mask.png"])
    for seed in (0, 1):
        settings = SETTINGS | {"training.seed": seed}
        parsecaps.fit(root / "cases.csv", settings=settings, run_folder=root / f"run-{seed}", callbacks=Callbacks())
    return root


def test_from_two_runs_to_names_everywhere(root: Path, tmp_path: Path) -> None:
    first, second = root / "run-0", root / "run-1"
    sheet, numbers = tmp_path / "sheet.html", tmp_path / "concepts.json"
    result = run("discover", first, second, "--out", sheet, "--json", numbers)
    assert result.exit_code == 0, result.stderr
    message(result.stdout, containing="training cases")
    assert "parsecaps name" in result.stdout
    stored = json.loads(numbers.read_text(encoding="utf-8"))
    memory = CaseMemory.load(first / "known_cases", Model.load(first / "bundle"))
    assert not (second / "known_cases").exists()  # nothing is written into the others
    assert stored["cases"] == len(memory)
    assert [each["mean"] for each in stored["concepts"]] == pytest.approx(memory.presence.mean(0).tolist())
    for j, each in enumerate(stored["concepts"]):
        assert each["prototypes"][0]["image"] == memory.predictions.name[memory.presence[:, j].argmax()]
        assert each["overlap"]["share"] == pytest.approx(0.25)
        assert 0 <= each["overlap"]["inside"] <= 1
        assert each["purity"]["label"] in "ab"
    other = remember_run(second)
    m = len(stored["concepts"])
    between = np.corrcoef(memory.presence.T, other.presence.T)[:m, m:]
    rows, columns = linear_sum_assignment(-between)
    again = [each["found_again"] for each in stored["concepts"]]
    assert again == pytest.approx(between[rows, columns].tolist(), abs=1e-3)
    assert sheet.read_text(encoding="utf-8").count("<section") == 3
    result = run("discover", first)
    assert result.exit_code == 0, result.stderr
    assert "now kept" not in result.stdout
    assert "found again" not in result.stdout
    assert (first / "concepts.html").is_file()

    names = tmp_path / "names.csv"
    digest = weights_digest(Model.load(first / "bundle").network)
    names.write_text(f"concept,name,note,model\n1,bright rim,seen in 8 of 9,{digest}\n2,,,{digest}\n", encoding="utf-8")
    old = tmp_path / "old.csv"
    image = root / "pictures" / "a" / "0.png"
    assert run("predict", first, image, "--out", old).exit_code == 0
    result = run("name", first, names)
    assert result.exit_code == 0, result.stderr
    message(result.stdout, containing="unnamed 1")
    message(run("name", first, names).stdout)
    assert "bright rim" in run("explain", first, image, "--out", tmp_path / "image.html").stdout
    assert "bright rim" in parsecaps.load(first).predict(image).concepts
    assert run("predict", first, image, "--out", tmp_path / "new.csv").exit_code == 0
    assert "concept:bright rim" in (tmp_path / "new.csv").read_text(encoding="utf-8")
    fails("predict", first, image, "--out", old)
    assert "1 of them have names" in (first / "bundle" / "README.md").read_text(encoding="utf-8")
    assert (
        CaseMemory.load(first / "known_cases", Model.load(first / "bundle")).predictions.concept_names[0]
        == "bright rim"
    )
    assert run("evaluate", first).exit_code == 0
    assert run("explain", first, "--out", tmp_path / "page.html", "--limit", 1, "--set", "trees=0").exit_code == 0
    assert "bright rim" in (tmp_path / "page.html").read_text(encoding="utf-8")
    result = run("discover", first, "--out", sheet)
    assert "bright rim" in result.stdout
    page = sheet.read_text(encoding="utf-8")
    assert 'value="bright rim"' in page
    assert ">seen in 8 of 9</textarea>" in page
    fails("name", second, names)


def test_mistakes_cost_a_line(root: Path, tmp_path: Path) -> None:
    make_folder(tmp_path / "saved", "bottleneck")
    for copy in ("labelled", "none", "elsewhere"):
        shutil.copytree(root / "run-0", tmp_path / copy)
    about = tmp_path / "labelled" / "data.json"
    about.write_text(about.read_text(encoding="utf-8").replace('"concepts": []', '"concepts": ["veil", "rim"]'))
    model = Model.load(root / "run-0" / "bundle")
    bare = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=0, in_channels=model.preparation.channels)
    Model(bare, model.preparation, model.classes, ()).save(tmp_path / "none" / "bundle")
    config = tmp_path / "elsewhere" / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("cases.csv", "others.csv"), encoding="utf-8")
    (tmp_path / "names.csv").write_text("concept,name\n1,x\n", encoding="utf-8")
    for arguments in (
        ("discover", tmp_path),
        ("discover", tmp_path / "saved"),
        ("discover", tmp_path / "labelled"),
        ("discover", tmp_path / "none"),
        ("discover", root / "run-0", root / "run-0"),
        ("discover", root / "run-0", tmp_path / "elsewhere"),
        ("discover", root / "run-0", "--out", tmp_path),
        ("name", tmp_path / "labelled", tmp_path / "names.csv"),
        ("name", root / "run-0", tmp_path / "nothing.csv"),
    ):
        fails(*arguments)
