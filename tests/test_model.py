import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from parsecaps.data.batches import Batches
from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.preparation import Preparation
from parsecaps.model import Model, find_device
from parsecaps.models import ParseCaps
from parsecaps.run import Run
from tests.data.make import folder_of_pictures, picture
from tests.messages import LIBRARY, refused
from tests.prediction.make import predict_one

PREPARATION = Preparation(size=32, channels=3, square="crop", scaling="percentile")


def make_model() -> Model:
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=3, in_channels=3)
    return Model(model, PREPARATION, ("nevus", "melanoma"), ("a", "b", "c"))


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    saved = make_model()
    saved.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert (loaded.preparation, loaded.classes, loaded.concepts) == (PREPARATION, saved.classes, saved.concepts)
    Image.fromarray(picture(0, 60)).save(tmp_path / "x.png")
    assert predict_one(loaded, tmp_path / "x.png") == predict_one(saved, tmp_path / "x.png")
    assert loaded.folder == tmp_path / "model"


def test_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_model().save(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [find_device(name).type for name in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert [find_device(name).type for name in ("auto", "cpu")] == ["cpu", "cpu"]
    assert next(Model.load(tmp_path, "auto").network.parameters()).device.type == "cpu"
    with refused(ValueError):
        Model.load(tmp_path, "cuda")
    with refused(ValueError):
        Model.load(tmp_path, "tpu")


def test_training_and_prediction_see_the_same_pixels(tmp_path: Path) -> None:
    data = folder_of_pictures(tmp_path / "pictures", per_class=4)
    prepared = prepare_all(data, PREPARATION, folder=tmp_path / "cache")
    (batch,) = Batches(CaseSet(data, prepared, range(8)), batch_size=8).epoch(0)
    alone = torch.stack([make_model().read(case.image) for case in data.cases])
    assert torch.equal(batch.image, alone)


def test_names_reach_the_prediction(tmp_path: Path) -> None:
    Image.fromarray(picture(0, 60)).save(tmp_path / "x.png")
    answer = predict_one(make_model(), tmp_path / "x.png")
    assert answer.probabilities is not None
    assert answer.concepts is not None
    assert list(answer.probabilities) == ["nevus", "melanoma"]
    assert sum(answer.probabilities.values()) == pytest.approx(1)
    assert list(answer.concepts) == ["a", "b", "c"]
    assert all(0 <= presence < 1 for presence in answer.concepts.values())


def test_what_does_not_fit_is_refused() -> None:
    good = make_model()
    with refused(ValueError):
        Model(good.network, PREPARATION, ("a", "b", "c"), good.concepts)
    with refused(ValueError):
        Model(good.network, PREPARATION, good.classes, ())
    with refused(ValueError):
        Model(good.network, Preparation(size=48), good.classes, good.concepts)


def test_a_damaged_folder_is_one_line(tmp_path: Path) -> None:
    with refused(FileNotFoundError):
        Model.load(tmp_path)
    make_model().save(tmp_path)
    path = tmp_path / "bundle.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    for damage in ("{", json.dumps({**stored, "preparation": {"size": 32}}), json.dumps({"classes": []})):
        path.write_text(damage, encoding="utf-8")
        with refused(ValueError, hide=LIBRARY):
            Model.load(tmp_path)


def test_a_model_and_its_run_know_each_other(tmp_path: Path) -> None:
    make_model().save(tmp_path / "run" / "bundle")
    (tmp_path / "run" / "config.yaml").touch()  # by which a folder is known as a run
    run = Run(tmp_path / "run")
    assert run.model.run is run
    found = Model.load(run).run
    assert found is not None
    assert found.folder == run.folder
    make_model().save(tmp_path / "alone")
    assert Model.load(tmp_path / "alone").run is None
    assert make_model().run is None
