"""Measures of outlined tumours as all that is known: the classifier, and the study from files to lines."""

import json
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from studies.measured_tumours import kernel_ridge, main


def test_kernel_ridge_finds_what_no_line_can() -> None:
    """A disc within a ring, one measure in other units, one that says nothing."""
    random = np.random.default_rng(0)
    angle, radius = random.random(400) * 2 * np.pi, np.repeat([0.5, 2.0], 200) + 0.1 * random.normal(size=400)
    rows = np.stack([radius * np.cos(angle), 1000 * radius * np.sin(angle), np.ones(400)], 1)
    label, order = np.repeat([0, 1], 200), random.permutation(400)
    first, second = order[:200], order[200:]
    assert (kernel_ridge(rows[first], label[first], rows[second]) == label[second]).mean() > 0.98


def test_the_study_reads_measures_and_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Small tumours of one class, large ones of another, bright ones of the third; two folds of nine patients."""
    random, place = np.random.default_rng(0), np.mgrid[:64, :64]
    for i in range(36):
        label, middle = i % 3, random.integers(26, 38, 2)
        radius = (4, 10, 7)[label] + random.random()
        mask = np.hypot(*(place - middle[:, None, None])) < radius
        image = np.where(np.hypot(*(place - 32)) < 28, 300, 0) + random.integers(0, 9, (64, 64))
        image[mask] = 900 if label == 2 else 500
        with h5py.File(tmp_path / f"{i + 1}.mat", "w") as file:
            file["cjdata/image"], file["cjdata/tumorMask"] = image.T.astype(np.int16), mask.T.astype(np.uint8)
            file["cjdata/label"] = np.array([[label + 1.0]])
            file["cjdata/PID"] = np.array([[ord(c)] for c in f"{100 + i // 2}"], np.uint16)
    with h5py.File(tmp_path / "cvind.mat", "w") as file:
        file["cvind"] = np.repeat([1.0, 2.0], 18)[None]
    monkeypatch.setattr(sys, "argv", ["study", str(tmp_path), "--size", "64", "--draws", "2"])
    main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["test_folds"], line["share_of_patients"]) for line in lines] == [
        ([fold], share) for fold in (2, 1) for share in (0.25, 0.5, 0.75, 1.0)
    ]
    assert [line["draws"] for line in lines] == [2, 2, 2, 1] * 2
    assert all(line["accuracy"] == 100 for line in lines if line["share_of_patients"] == 1)
