import json
from pathlib import Path

import pytest
from PIL import Image

from parsecaps.data.preparation import Preparation
from parsecaps.discovery.naming import name_concepts, read_names, read_notes
from parsecaps.model import Model
from parsecaps.models import ParseCaps
from parsecaps.models.pretrained import weights_digest
from parsecaps.prediction.files import ImageFile
from parsecaps.prediction.predict import predict_files
from parsecaps.run import Run
from tests.data.make import picture
from tests.messages import refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = ParseCaps.from_preset("tiny", num_classes=2)
    Model(model, Preparation(size=32), ("a", "b"), ("unnamed 1", "unnamed 2", "unnamed 3")).save(tmp_path / "bundle")
    (tmp_path / "config.yaml").touch()  # a run
    return tmp_path


def sheet(folder: Path, *rows: str, header: str = "concept,name,note") -> Path:
    path = folder / "sheet.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_names_show_wherever_the_model_is_used(folder: Path) -> None:
    weights = (folder / "bundle" / "model.safetensors").read_bytes()
    changed = name_concepts(folder, sheet(folder, '2,"  dural  tail, bright",seen in 8 of 9', "1,,", "3,unnamed 3,"))
    assert [(each.index, each.before, each.name, each.note) for each in changed] == [
        (1, "unnamed 2", "dural tail, bright", "seen in 8 of 9")
    ]
    loaded = Model.load(folder / "bundle")
    assert loaded.concepts == ("unnamed 1", "dural tail, bright", "unnamed 3")
    Image.fromarray(picture(0, 40)).save(folder / "x.png")
    (predicted,) = predict_files(loaded, [ImageFile(folder / "x.png")])
    assert list(predicted.concepts or {}) == list(loaded.concepts)
    assert (folder / "bundle" / "model.safetensors").read_bytes() == weights
    assert not any("seen in 8 of 9" in path.read_text("latin-1") for path in (folder / "bundle").iterdir())
    assert read_notes(Run(folder))[1] == "seen in 8 of 9"  # in the run, which is not given away


def test_a_sheet_can_be_handed_in_again_with_another_name(folder: Path) -> None:
    name_concepts(folder, sheet(folder, "2,oedema,"))
    assert name_concepts(folder, sheet(folder, "2,oedema,")) == []
    (changed,) = name_concepts(folder, sheet(folder, "2,ring,"))
    assert (changed.before, changed.name) == ("oedema", "ring")
    name_concepts(folder, sheet(folder, "2,,"))  # blank: stays
    assert Model.load(folder / "bundle").concepts[1] == "ring"


def test_two_concepts_may_exchange_their_names(folder: Path) -> None:
    name_concepts(folder, sheet(folder, "1,x,", "2,y,"))
    name_concepts(folder, sheet(folder, "1,y,", "2,x,"))
    assert Model.load(folder / "bundle").concepts == ("y", "x", "unnamed 3")


WRONG = ["4,x,", "unnamed 1,x,", "1,x,\n1,y,", "1,Ring,\n3,ring,", "1,unnamed 2,", f"1,{'x' * 61},", "1"]


@pytest.mark.parametrize("rows", WRONG)
def test_a_wrong_sheet_changes_nothing(folder: Path, rows: str) -> None:
    before = (folder / "bundle" / "bundle.json").read_bytes()
    with refused(ValueError):
        name_concepts(folder, sheet(folder, rows))
    assert (folder / "bundle" / "bundle.json").read_bytes() == before
    assert not (folder / "bundle" / "concept-names.csv").exists()


def test_the_sheet_of_another_model_is_refused(folder: Path) -> None:
    model = Model.load(folder / "bundle")
    own = weights_digest(model.network)
    header = "concept,name,note,model"
    assert read_names(sheet(folder, f"1,x,,{own}", header=header), model)[0].name == "x"
    with refused(ValueError):
        read_names(sheet(folder, "1,x,,0123", header=header), model)
    with refused(ValueError):
        read_names(sheet(folder, "1", header="concept"), model)


def test_nothing_else_of_the_bundle_is_touched(folder: Path) -> None:
    path = folder / "bundle" / "bundle.json"
    stored = json.loads(path.read_text(encoding="utf-8")) | {"later": 1}
    path.write_text(json.dumps(stored), encoding="utf-8")
    name_concepts(folder / "bundle", sheet(folder, "1,x,"))
    assert json.loads(path.read_text(encoding="utf-8")) == stored | {"concepts": ["x", "unnamed 2", "unnamed 3"]}
