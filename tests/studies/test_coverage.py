import numpy as np
import pytest

from studies.coverage import coverage, draw, main


def test_images_of_a_patient_are_right_or_wrong_together() -> None:
    first, second = draw(np.random.default_rng(0), 2000, 2.0)
    right = first.logits.argmax(1) == first.label
    pairs = [(right[i], right[i + 1]) for i in range(len(right) - 1) if first.patient[i] == first.patient[i + 1]]
    assert np.corrcoef(np.transpose(pairs))[0, 1] > 0.2
    assert (second.logits != first.logits).all()


def test_a_truth_that_intervals_hold_and_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.coverage._POPULATION", 5_000)
    found = coverage(20, 2.0, trials=12, resamples=50)
    assert {"accuracy", "macro_auroc", "ece", "difference of accuracy"} <= found.keys()
    assert all(ours >= 0.7 for ours, _ in found.values())
    assert found["ece"][1] == 0  # resampled alone it excludes the truth
    main(["--patients", "8", "--trials", "2", "--resamples", "20"])
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("  accuracy") for line in lines) == 2
    main(["--sets", "--patients", "20", "--trials", "2"])
    assert "20 patients, sets with the class: nothing fitted 9" in capsys.readouterr().out
