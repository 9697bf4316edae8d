"""Whole tables on tiny data: every cell is trained, measured and drawn, once."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from parsecaps.audit.redundancy import capsule_similarity
from parsecaps.config import DataSection
from parsecaps.data.cache import prepare_all
from parsecaps.data.cases import Division
from parsecaps.data.leaks import Leak, find_leaks, unsafe
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.data.splits import divide
from parsecaps.metrics.predictions import Predictions
from parsecaps.models import find_model
from parsecaps.paper import routing_table
from parsecaps.paper.cells import AS_PRINTED, Request, Scale, choose_columns
from parsecaps.paper.concept_figures import on_edges
from parsecaps.paper.leak import BY_PATIENT, TWICE, divisions, over_patients
from parsecaps.paper.needs import PH2, PH2D7, find, share_cases
from parsecaps.paper.needs import PHANTOM as DRAWN
from parsecaps.paper.protocol import validate
from parsecaps.paper.run_table import reproduce
from parsecaps.paper.tables import TABLES
from parsecaps.paper.timing import Effort
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from tests.data.make import folder_of_pictures, table
from tests.data.sources.layouts import write_derm7pt, write_mnist, write_ph2_txt
from tests.messages import message, refused

QUIET = Callbacks()
PHANTOM = "phantom:n=60,size=32"


def look(out: Path, name: str) -> dict:
    """The JSON of a table, whose picture must be one."""
    with Image.open(out / f"{name}.png") as picture:
        assert picture.width > 300
        assert len(picture.convert("L").getcolors()) > 5
    assert (out / f"{name}.md").read_text().startswith("# ")
    return json.loads((out / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models by `classification`, one after the other."""
    out = tmp_path_factory.mktemp("tables") / "out"
    for model in ("PlainCNN", "ParseCaps"):
        reproduce("classification", data=[PHANTOM], models=[model], out=out, callbacks=QUIET)
    return out


def test_models_are_compared_on_the_same_cases(compared: Path) -> None:
    cells = compared / "cells/classification-quick"
    names = [f"{model}-{optimizer}" for model in ("PlainCNN", "ParseCaps") for optimizer in ("muon", "usual")]
    runs = [Run(cells / name) for name in names]
    assert [run.config.training.optimizer for run in runs] == ["muon", "adamw", "muon", "adamw"]
    assert len({run.about["split_hash"] for run in runs}) == 1
    before = {run.folder: run.scores_file.stat().st_mtime_ns for run in runs}
    result = reproduce(
        "classification", data=[PHANTOM], models=["ParseCaps", "PlainCNN"], out=compared, callbacks=QUIET
    )
    assert {run.folder: run.scores_file.stat().st_mtime_ns for run in runs} == before  # nothing is trained again
    stored = look(compared, "classification")
    rows = {row["name"]: row for row in stored["sections"][0]["rows"]}
    for name, two in (("PlainCNN", runs[:2]), ("ParseCaps", runs[2:])):
        losses = [validate(run.rows("val"), run) for run in two]
        assert losses[0] != losses[1]
        run = two[int(np.argmin(losses))]  # the better one on validation, whatever the test part says
        assert rows[name]["trained"]["validation log loss"] == f"muon {losses[0]:.3f}, usual {losses[1]:.3f}"
        assert rows[name]["trained"]["optimizer"].startswith(run.config.training.optimizer)
        ours, scored = rows[name]["figures"]["accuracy"], run.scores["accuracy"]
        assert (ours["value"], ours["low"]) == (100 * scored.value, 100 * scored.low)
        assert rows[name]["trained"]["epochs"] == "2, last kept"
        assert rows[name]["trained"]["image size"] == "32 px"
    against = rows["PlainCNN"]["against"]
    assert against["difference"] == pytest.approx(
        rows["PlainCNN"]["figures"]["accuracy"]["value"] - rows["ParseCaps"]["figures"]["accuracy"]["value"]
    )
    assert rows["ParseCaps"]["against"] is None
    assert 0 < against["p_value"] <= 1
    assert [section["title"] for section in stored["sections"]] == ["All classes", "Nevus", "Melanoma"]
    assert not result.missing
    message(*stored["notes"])
    assert not result.remarks  # the published figures are of CE-MRI


def test_runs_on_other_cases_are_refused(compared: Path) -> None:
    run = Run(compared / "cells/classification-quick/PlainCNN-muon")
    about = run.about
    run.write_json(run.about_file, about | {"split_hash": "0" * 12})
    try:
        with refused(ValueError):
            reproduce("classification", data=[PHANTOM], models=["ParseCaps", "PlainCNN"], out=compared, callbacks=QUIET)
    finally:
        run.write_json(run.about_file, about)


def test_another_seed_or_other_data_need_another_folder(compared: Path) -> None:
    with refused(ValueError):
        reproduce("classification", data=[PHANTOM], models=["PlainCNN"], out=compared, seed=1, callbacks=QUIET)
    with refused(ValueError):
        reproduce("classification", data=["phantom:n=70,size=32"], models=["PlainCNN"], out=compared, callbacks=QUIET)


def test_redundancy_is_of_as_many_primary_capsules(tmp_path: Path) -> None:
    for name, size, changes in (("CapsNet", 72, {}), ("OrthCaps", 112, {}), ("ParseCaps", 112, {"num_concepts": 0})):
        column = next(each for each in TABLES["redundancy"].columns if each.name == name)
        section = column.model_section(112, 0)
        assert section["image_size"] == size
        settings = {**section["settings"], "image_size": size, "num_classes": 3, **changes}
        model = find_model(name).from_preset("medical", **settings)
        assert capsule_similarity(model, [torch.rand(1, 1, size, size)])[0].capsules == 784
    reproduce("redundancy", data=[PHANTOM], models=["ParseCaps"], out=tmp_path, callbacks=QUIET)
    [row] = look(tmp_path, "redundancy")["sections"][0]["rows"]
    assert -1 <= row["figures"]["top"]["low"] <= row["figures"]["top"]["value"] <= row["figures"]["top"]["high"] <= 1
    assert row["note"] == "primary 256 x 2, top 4 x 16 (blocks.2.4)"


def test_the_paper_as_printed_is_trained_by_its_own_recipe(tmp_path: Path) -> None:
    reproduce("losses", data=[PHANTOM], models=["L_c + L_p + L_t, as printed"], out=tmp_path, callbacks=QUIET)
    config = Run(tmp_path / "cells/losses-quick/L_c-L_p-L_t-as-printed").config
    assert (config.model.preset, config.model.settings) == ("digits-paper", {})
    training = config.training
    assert (training.optimizer, training.learning_rate, training.weight_decay) == ("adamw", 2.5e-3, 5e-4)
    assert (training.epochs, training.keep, training.ema, training.mixup) == (2, "last", 0, 0)
    assert (config.augmentation.padding, config.augmentation.rotation) == (4, 0)
    large = AS_PRINTED.model_section(72, 0)
    assert (large["preset"], large["image_size"]) == ("medical-paper", 112)
    assert choose_columns(TABLES["skin"].columns, ["medical-paper"], "skin") == [AS_PRINTED]


def test_pictures_that_look_the_same_are_on_one_side(tmp_path: Path) -> None:
    data = folder_of_pictures(tmp_path / "pictures", per_class=30, side=32)
    for case in data.cases[:20]:
        case.image.with_name(f"again-{case.image.name}").write_bytes(case.image.read_bytes())
    twice = open_data(tmp_path / "pictures")
    cases = share_cases(tmp_path / "out", str(tmp_path / "pictures"), twice, Scale(1, 64))
    prepared = prepare_all(twice, Preparation(cases.size, cases.channels))

    def crossing(division: Division) -> list[Leak]:
        return unsafe(find_leaks(twice, division, prepared.digests, prepared.fingerprints), division)

    assert crossing(divide(twice, DataSection(seed=0)).division)
    assert not crossing(cases.division)


def test_skin_sets_are_found_one_by_one_and_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARSECAPS_DATA", str(tmp_path))
    assert find(PH2D7) is None
    assert TABLES["concepts"]._here() == [DRAWN]
    write_ph2_txt(tmp_path / "ph2")
    assert find(PH2D7) is None
    write_derm7pt(tmp_path / "derm7pt")
    together = open_data(find(PH2D7))
    assert {case.patient.partition(":")[0] for case in together.cases} == {"ph2", "derm7pt"}
    assert TABLES["concepts"]._here()[0] == PH2


def test_maps_on_edges() -> None:
    image = np.zeros((2, 8, 8))
    image[0, :, 4:] = 1.0
    maps = np.zeros((2, 2, 8, 8))
    maps[0, 0, :, 3:5] = 1  # on the edge; two of eight columns have a gradient
    maps[0, 1, :, :2] = 1  # beside it
    np.testing.assert_allclose(on_edges(maps[:, :1], image), [4, np.nan])
    np.testing.assert_allclose(on_edges(maps, image), [2, np.nan])


def test_the_losses_are_really_switched_off(tmp_path: Path) -> None:
    reproduce("losses", data=[PHANTOM], models=["L_c", "L_c + L_p + L_t"], out=tmp_path, callbacks=QUIET)
    stored = look(tmp_path, "losses")
    assert [row["name"] for row in stored["sections"][0]["rows"]] == ["L_c", "L_c + L_p + L_t"]
    alone, whole = (Run(tmp_path / "cells/losses-quick" / name) for name in ("L_c", "L_c-L_p-L_t"))
    assert (alone.config.training.losses["presentation"], alone.config.training.losses["triplet"]) == (0, 0)
    trained = [row["trained"]["losses"] for row in stored["sections"][0]["rows"]]
    assert trained == ["classification", "classification, presentation, triplet"]
    errors = stored["sections"][0]["rows"][0]["figures"]
    squared, distance = (errors[f"explanation_error_l2{end}"]["value"] for end in ("_squared", ""))
    assert distance**2 <= squared <= 7  # of seven presences
    assert (whole.config.training.losses["presentation"], whole.config.training.losses["triplet"]) == (0.5, 0.1)
    assert stored["sections"][0]["reference"] == "L_c + L_p + L_t"


def test_skin_takes_any_data_with_concepts(tmp_path: Path) -> None:
    reproduce("skin", data=[PHANTOM], models=["PlainCNN"], out=tmp_path, callbacks=QUIET)
    stored = look(tmp_path, "skin")
    [row] = stored["sections"][0]["rows"]
    assert {key for key, each in row["figures"].items() if each["value"] is not None} == {
        *("accuracy", "mean_auroc", "explanation_error_l2")
    }
    message(*stored["notes"])


def test_concept_maps_are_judged_by_masks(tmp_path: Path) -> None:
    reproduce("concepts", data=[PHANTOM], models=["ParseCaps", "PlainCNN"], out=tmp_path, callbacks=QUIET)
    rows = look(tmp_path, "concepts")["sections"][0]["rows"]
    assert [row["note"] for row in rows] == ["maps: routes", "maps: grad-cam"]
    assert all(0 <= row["figures"]["pointing"]["value"] <= 100 for row in rows)
    assert all(row["figures"]["edges"]["low"] < row["figures"]["edges"]["value"] for row in rows)


def test_the_price_of_reasons_on_data_with_concepts_and_without(tmp_path: Path) -> None:
    cases = folder_of_pictures(tmp_path / "pictures", per_class=20, side=32).cases
    Image.fromarray(np.full((32, 32), 255, np.uint8)).save(tmp_path / "mask.png")
    lines = [f"{case.image},{case.image.parent.name},{case.patient},{tmp_path / 'mask.png'}" for case in cases]
    (tmp_path / "outlined.csv").write_text("\n".join(["image,label,patient,mask", *lines]))
    data = [PHANTOM, str(tmp_path / "outlined.csv")]
    models = ["linear head", "CBM", "ParseCaps, bottleneck"]
    reproduce("price", data=data, models=models, out=tmp_path / "out", callbacks=QUIET)
    stored = look(tmp_path / "out", "price")
    means, phantom, pictures = stored["sections"]
    assert [row["name"] for row in phantom["rows"]] == models
    assert [row["status"] for row in pictures["rows"]] == ["", "needs concepts", ""]
    linear, cbm, caps = phantom["rows"]
    assert linear["against"] is None
    for row in (cbm, caps):
        own, of_linear = (each["figures"]["macro_auroc"]["value"] for each in (row, linear))
        assert row["against"]["difference"] == pytest.approx(own - of_linear)
        assert row["figures"]["corrected"]["value"] is not None
    assert linear["figures"]["corrected"]["value"] is None
    assert linear["figures"]["pointing"]["value"] is None  # the phantom has masks of its concepts alone
    assert {row["figures"].get("pointing", {}).get("value") for row in pictures["rows"][::2]} <= {0, 100}
    assert [row["name"] for row in means["rows"]] == ["linear head", "ParseCaps, bottleneck"]
    both = [section["rows"][-1]["figures"]["macro_auroc"]["value"] for section in (phantom, pictures)]
    assert means["rows"][1]["figures"]["macro_auroc"]["value"] == pytest.approx(np.mean(both))
    run = Run(tmp_path / "out/cells/price-quick/phantom-ParseCaps-bottleneck-seed-0")
    assert run.config.training.mixup == 0.4  # the recipe for few images
    assert run.config.model.settings == {"whole_values": True}


def test_unlabelled_concepts_and_drawings(tmp_path: Path) -> None:
    folder_of_pictures(tmp_path / "pictures", per_class=20, side=32)
    data = [str(tmp_path / "pictures")]
    reproduce("discovery", data=data, out=tmp_path / "out", callbacks=QUIET)
    stored = look(tmp_path / "out", "discovery")
    assert len(stored["sections"][0]["rows"]) == 8
    assert [row["name"] for row in stored["sections"][1]["rows"]] == ["seed 0", "seed 1"]
    again = [row["figures"]["found_again"]["value"] for row in stored["sections"][0]["rows"]]
    assert all(-1 <= value <= 1 for value in again)
    reproduce("reconstruction", data=data, models=["weight 0.005", "without"], out=tmp_path / "out", callbacks=QUIET)
    rows = look(tmp_path / "out", "reconstruction")["sections"][0]["rows"]
    assert rows[0]["figures"]["error"]["value"] > 0
    assert rows[1]["figures"]["error"]["value"] is None
    assert rows[0]["figures"]["parameters"]["value"] > rows[1]["figures"]["parameters"]["value"]


def test_digits_are_tested_changed_and_unchanged(tmp_path: Path) -> None:
    digits = write_mnist(tmp_path / "mnist", 80)
    reproduce("affnist", data=[f"affnist-like:{digits}"], models=["PlainCNN"], out=tmp_path / "out", callbacks=QUIET)
    stored = look(tmp_path / "out", "affnist")
    [row] = stored["sections"][0]["rows"]
    assert (row["figures"]["affnist"]["n"], row["figures"]["mnist"]["n"]) == (80, 80)
    assert row["figures"]["affnist"]["published"] == 66.0
    assert stored["sections"][0]["title"] == "affNIST-like"
    message(stored["notes"][0])
    config = Run(tmp_path / "out/cells/affnist-quick/PlainCNN-muon").config
    assert config.augmentation.padding == 6
    assert config.augmentation.rotation == 0
    assert config.training.batch_size <= 128


def test_routings_are_compared_by_accuracy_speed_and_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(routing_table._EFFORTS, "quick", Effort(rounds=1, seconds=0.0, turn=0.0))
    measured = routing_table.measure_routings
    monkeypatch.setattr(
        routing_table, "measure_routings", lambda effort, log: measured(effort, memory=False, preset="tiny")
    )
    digits = write_mnist(tmp_path / "mnist", 40)
    reproduce("routing", data=[f"mnist:{digits}"], models=["SAA", "dynamic"], out=tmp_path / "out", callbacks=QUIET)
    stored = look(tmp_path / "out", "routing")
    accuracy, ratios, speeds, work = stored["sections"]
    assert [row["name"] for row in accuracy["rows"]] == ["SAA", "dynamic"]
    assert accuracy["rows"][1]["figures"]["accuracy"]["published"] == 98.35
    [row] = ratios["rows"]
    assert row["figures"]["network forward 1"]["published"] == pytest.approx(387.88 / 252.78)
    assert row["figures"]["routing forward 1"]["published"] is None  # the paper timed its network
    ours, theirs = (row["figures"]["routing forward 128"]["value"] for row in speeds["rows"])
    assert ratios["rows"][0]["figures"]["routing forward 128"]["value"] == pytest.approx(ours / theirs)
    assert all(row["figures"]["multiply_adds"]["value"] > 0 for row in work["rows"])


def test_capsules_are_counted_without_a_training(tmp_path: Path) -> None:
    reproduce("capsules", models=["ParseCaps", "ParseCaps (MNIST)"], out=tmp_path, callbacks=QUIET)
    sections = look(tmp_path, "capsules")["sections"]
    pairs = [
        [(row["figures"]["n"]["value"], row["figures"]["d"]["value"]) for row in each["rows"]] for each in sections
    ]
    assert pairs[0] == [(784, 8), (196, 16), (49, 36), (16, 64), (3, 16)]
    assert pairs[1] == [(196, 2), (49, 4), (16, 8), (4, 16), (10, 16)]
    assert sections[0]["rows"][3]["figures"]["n"] == {
        **dict.fromkeys(("low", "high")),
        "value": 16,
        "n": None,
        "published": 13,
        "difference": 3,
    }


def test_the_leak_is_trained_and_tested_as_it_is(tmp_path: Path) -> None:
    reproduce("leak", data=[PHANTOM], models=["PlainCNN"], out=tmp_path, callbacks=QUIET)
    rows = {row["name"]: row for row in look(tmp_path, "leak")["sections"][0]["rows"]}
    twice, apart = rows[TWICE]["figures"], rows[BY_PATIENT]["figures"]
    assert twice["accuracy"]["n"] == 12  # a fifth of the images, those that were trained on too
    assert twice["seen"]["n"] > 6
    assert apart["seen"]["n"] == apart["patient_seen"]["n"] == 0
    assert apart["unseen"]["value"] == apart["accuracy"]["value"]
    assert rows[TWICE]["against"]["difference"] == pytest.approx(
        twice["accuracy"]["value"] - apart["accuracy"]["value"]
    )
    run = Run(tmp_path / "cells/leak-quick/two-independent-draws-PlainCNN")
    message(*run.data_check["notes"], containing="leaks")


def test_draws_are_divided_as_they_say() -> None:
    data = table([(f"p{i}", i % 2, 5) for i in range(40)])
    ways = {name: (tested, parts) for name, tested, parts in divisions(data, range(len(data)), seed=0)}
    for tested, parts in ways.values():
        assert len(set(tested)) == len(tested) == pytest.approx(40, abs=5)
        assert parts.count("train") == pytest.approx(160, abs=5)
    tested, parts = ways[TWICE]
    both = [row for row in tested if parts[row] == "train"]
    assert len(both) == pytest.approx(0.8 * len(tested), abs=8)  # the draws know nothing of each other
    tested, parts = ways[BY_PATIENT]
    trained = {data.cases[i].patient for i, part in enumerate(parts) if part == "train"}
    assert not trained & {data.cases[row].patient for row in tested}


def test_differences_of_different_cases_are_over_patients() -> None:
    right = np.tile([2.0, 0.0], (30, 1))
    label, patient = np.zeros(30, dtype=int), [f"p{i // 3}" for i in range(30)]
    names = [str(i) for i in range(30)]
    good = Predictions(logits=right, label=label, patient=patient, name=names, classes=("a", "b"))
    bad = replace(good, label=np.where(np.arange(30) < 15, 0, 1))
    found = over_patients(good, bad)
    assert (found.first, found.second, found.difference) == (100, 50, -50)
    assert -100 <= found.low < -50 < found.high <= 0
    assert found.p_value < 0.05
    same = over_patients(good, good)
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def test_every_table_says_what_it_needs_and_costs(tmp_path: Path) -> None:
    for name, each in TABLES.items():
        for budget in ("quick", "hour", "full"):
            loads = each.loads(Request(budget, tmp_path))
            assert bool(loads) == (name != "capsules")
            assert all(load.images > 0 and load.classes > 1 for load in loads)
