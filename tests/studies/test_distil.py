"""The teacher's concepts split each set in halves, along directions in which its images differ."""

import csv
from pathlib import Path

import numpy as np

from parsecaps.data.sources import open_data
from studies import distil
from tests.data.make import folder_of_pictures


def test_concepts_split_each_set_in_halves() -> None:
    random = np.random.default_rng(0)
    strong, weak = random.normal(size=(2, 50)) * np.array([[9.0], [1.0]])
    sets = [np.stack([strong, weak], 1) + shift for shift in (0.0, 100.0)]  # two sets far apart
    bits = distil.concepts_of(sets, bits=1)
    assert [each.shape for each in bits] == [(50, 1)] * 2
    assert [each.sum() for each in bits] == [25, 25]
    halves = strong > np.median(strong)
    assert (bits[0][:, 0] == halves).all() or (bits[0][:, 0] == ~halves).all()


def test_a_manifest_of_teachers_concepts(tmp_path: Path) -> None:
    folder_of_pictures(tmp_path / "a", per_class=5, side=32)
    data = open_data(tmp_path / "a")
    rows = distil.learned_rows(data)
    assert len(rows) == 8
    learned = data.subset(rows)
    bits = distil.concepts_of([distil.teacher_features(learned)], bits=3)
    distil.write_manifest(tmp_path / "teacher.csv", ["a"], [learned], bits)
    opened = open_data(tmp_path / "teacher.csv")
    assert opened.concepts == ("teacher 1", "teacher 2", "teacher 3")
    assert set(opened.classes) == {f"a/{name}" for name in data.classes}
    with (tmp_path / "teacher.csv").open(encoding="utf-8") as file:
        assert [int(row["concept:teacher 2"]) for row in csv.DictReader(file)] == bits[0][:, 1].astype(int).tolist()
