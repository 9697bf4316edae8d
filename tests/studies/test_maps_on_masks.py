"""Maps of several networks on outlined images of patients they do not know: the same cases, paired differences."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from parsecaps.config import load_config
from parsecaps.run import Run
from parsecaps.training.fit import fit
from studies.maps_on_masks import CENTRE, STEPS, deletion_curves, main, measure_networks, outlined, table
from studies.runs import QUIET
from tests.messages import refused

SIDE = 32


def write_outlined(folder: Path, *, number: int = 12) -> Path:
    """Grey images with a bright or dark square, its mask, and a manifest; patients p0, p1, ..."""
    folder.mkdir()
    random = np.random.default_rng(0)
    lines = ["image,label,patient,mask"]
    for i in range(number):
        mask = np.zeros((SIDE, SIDE), bool)
        top, left = random.integers(2, 20, 2)
        mask[top : top + 9, left : left + 9] = True
        level = np.where(mask, 220 if i % 2 else 30, 120) + random.integers(0, 20, mask.shape)
        Image.fromarray(level.astype(np.uint8)).save(folder / f"{i}.png")
        Image.fromarray(np.uint8(mask) * 255).save(folder / f"{i}-mask.png")
        lines.append(f"{i}.png,{'bright' if i % 2 else 'dark'},p{i},{i}-mask.png")
    path = folder / "manifest.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("maps")
    data = write_outlined(folder / "data")
    config = load_config(None, [f"data.path={data}", "model.preset=tiny", "training.epochs=1", "data.test=0.5"])
    return fit(config, run_folder=folder / "run", callbacks=QUIET)


def test_patients_that_a_network_knows_are_left_out(run: Run) -> None:
    known = {run.data.cases[row].patient for part in ("train", "val") for row in run.rows(part)}
    left = outlined(run.data, [run], limit=100, seed=0)
    assert {case.patient for case in left.cases} == {case.patient for case in run.data.cases} - known
    assert len(outlined(run.data, [run], limit=2, seed=0)) == 2
    with refused(ValueError):
        outlined(run.data.subset(run.rows("train")), [run], limit=2, seed=0)


def test_all_networks_are_measured_on_the_same_cases(run: Run) -> None:
    folder = run.folder
    rows = measure_networks({"one": folder, "other": folder}, str(run.data.root / "manifest.csv"), deleted=2)
    assert [(row.network, row.method) for row in rows[:3]] == [
        ("one", "routes"),
        ("one", "grad-cam"),
        ("one", "integrated gradients"),
    ]
    assert {row.pointing.n for row in rows} == {len(outlined(run.data, [run], 100, 0))}
    again = next(row for row in rows if (row.network, row.method) == ("other", "routes"))
    assert again.pointing == rows[0].pointing
    assert again.pointing_against is not None
    assert again.pointing_against.difference == 0
    assert rows[0].pointing_against is None
    bell = next(row for row in rows if row.network == CENTRE)
    assert bell.deletion is None
    assert 0 < (bell.mass.value or 0) < 1
    assert len(table(rows)) == 2 + len(rows)


def test_deletion_goes_from_the_whole_image_to_none_of_it() -> None:
    image = torch.rand(1, 16, 16, generator=torch.Generator().manual_seed(0))

    def brightest(batch: torch.Tensor) -> torch.Tensor:
        return batch.amax((1, 2, 3))[:, None]

    highest = image[0].flatten().argmax().item()
    first = np.argsort([region != highest // 16 // 2 * 8 + highest % 16 // 2 for region in range(64)], kind="stable")
    curves = deletion_curves(brightest, image, [first, first[::-1].copy()], 0)
    assert curves.shape == (2, STEPS + 1)
    assert curves[:, 0] == pytest.approx([image.max().item()] * 2)
    assert curves[:, -1] == pytest.approx([image.mean().item()] * 2, rel=1e-4)
    assert curves[0, 1] < curves[0, 0] - 1e-3  # the brightest pixel is painted over at once
    assert curves[1, -2] == pytest.approx(curves[1, 0])  # or last of all


def test_the_command_prints_a_table_and_writes_its_numbers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "maps.json"
    data = str(run.data.root / "manifest.csv")
    words = ["maps", data, "--network", f"one={run.folder}", "--limit", "3", "--deleted", "1", "--out", str(out)]
    monkeypatch.setattr("sys.argv", words)
    main()
    assert "| one | routes |" in capsys.readouterr().out
    assert json.loads(out.read_text(encoding="utf-8"))[0]["pointing"]["n"] == 3
