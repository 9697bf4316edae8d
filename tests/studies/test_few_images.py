"""Small draws keep patients apart and are the same every time; a candidate trains to a row of the table."""

import csv
from pathlib import Path

import pytest

from studies import few_images
from tests.data.make import folder_of_pictures


@pytest.mark.parametrize("name", few_images.SETS)
def test_no_patient_is_on_both_sides_of_a_draw(name: str, data_root: Path) -> None:
    data, other, drawn = few_images.SETS[name](data_root)
    assert few_images.SETS[name](data_root)[2].home == drawn.home
    parts = {part: {case.patient for case, each in drawn.home if each == part} for part in ("train", "test")}
    assert not parts["train"] & parts["test"]
    assert sum(part == "train" for _, part in drawn.home) <= 700
    labels = {drawn.classes(data.classes[case.label]) for case, _ in drawn.home}
    assert None not in labels
    assert (other is None) == (not drawn.elsewhere)


def test_a_candidate_trains_to_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = tmp_path / "pictures"
    folder_of_pictures(pictures, per_class=12, side=32)
    out = tmp_path / "few"
    out.mkdir()
    with (out / "bus.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "label", "patient", "split"])
        for path in sorted(pictures.glob("*/*.png")):
            part = "test" if int(path.stem) % 3 == 0 else "train"
            rows.writerow([path, path.parent.name, f"{path.parent.name}{path.stem}", part])
    monkeypatch.setitem(few_images.CANDIDATES, "tiny", {"model.preset": "tiny", "training.epochs": 1})
    row = few_images.train(tmp_path, out, "tiny", "bus", 0)
    assert (row["candidate"], row["set"], row["seed"]) == ("tiny", "bus", 0)
    assert 0 <= row["home_macro_auroc"] <= 1
    assert few_images.train(tmp_path, out, "tiny", "bus", 0)["home_macro_auroc"] == row["home_macro_auroc"]
    weights = str(out / "tiny-bus-0")
    monkeypatch.setitem(few_images.CANDIDATES, "tiny", {"training.epochs": 1, "data.allow_leaks": True})
    started = few_images.train(tmp_path, out, "tiny", "bus", 1, start=weights, start_rate=0.5)
    assert (started["candidate"], started["seed"]) == ("tiny-started-0.5", 1)
    assert len((out / few_images.RESULTS).read_text(encoding="utf-8").splitlines()) == 3
