import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation, dequantise
from parsecaps.data.sources import open_data
from parsecaps.explain.case_memory import CaseMemory, remember, weights_digest
from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.prediction.bundle import Bundle
from tests.data.make import folder_of_pictures

Setting = tuple[Bundle, DataSet, PreparedImages]


@pytest.fixture(scope="module")
def setting() -> Setting:
    torch.manual_seed(0)
    data = open_data("phantom:n=10,size=32")
    preparation = Preparation(size=32, channels=3)
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=7, in_channels=3).eval()
    return Bundle(model, preparation, data.classes, data.concepts), data, prepare_all(data, preparation)


def test_it_holds_what_the_model_says_of_each_image_alone(setting: Setting) -> None:
    bundle, data, prepared = setting
    rows = [7, 2, 5]
    memory = remember(bundle, data, prepared, rows, batch_size=2)
    for i, row in enumerate(rows):
        with torch.no_grad():
            output = bundle.model(dequantise(torch.from_numpy(prepared.images[row].copy()))[None])
        assert memory.presence[i] == pytest.approx(output.presence[0].numpy(), abs=1e-5)
        assert memory.capsules[i] == pytest.approx(output.concept_capsules[0].numpy(), abs=1e-3)
        assert memory.global_capsule[i] == pytest.approx(output.global_capsule[0, 0].numpy(), abs=1e-5)
        assert memory.probabilities[i] == pytest.approx(output.logits[0].softmax(0).numpy(), abs=1e-5)
        assert memory.truth[i].tolist() == list(data.cases[row].concepts)
        assert memory.predictions.label[i] == data.cases[row].label
        assert memory.predictions.patient[i] == data.cases[row].patient


def test_unnamed_concepts_are_remembered_too(tmp_path: Path) -> None:
    data = folder_of_pictures(tmp_path, per_class=2, side=32)
    preparation = Preparation(size=32, channels=3)
    model = ParseCaps.from_preset("tiny", num_classes=2, in_channels=3)
    bundle = Bundle(model, preparation, data.classes, ("unnamed 1", "unnamed 2", "unnamed 3"))
    memory = remember(bundle, data, prepare_all(data, preparation), range(4))
    assert memory.presence.shape == (4, 3)
    assert np.isnan(memory.truth).all()


def test_what_is_saved_comes_back_under_the_names_of_the_bundle(setting: Setting, tmp_path: Path) -> None:
    bundle, data, prepared = setting
    memory = remember(bundle, data, prepared, range(10))
    memory.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["memory.npz"]
    with np.load(tmp_path / "memory.npz", allow_pickle=False) as stored:
        assert all(stored[name].dtype != object for name in stored.files)
    renamed = replace(bundle, concepts=tuple("abcdefg"))
    loaded = CaseMemory.load(tmp_path, renamed)
    assert loaded.predictions.concept_names == tuple("abcdefg")
    assert loaded.temperature == 1
    for field in ("presence", "truth", "capsules", "global_capsule", "group"):
        assert getattr(loaded, field) == pytest.approx(getattr(memory, field), nan_ok=True, abs=1e-7)
    assert (loaded.predictions.name, loaded.predictions.patient) == (
        memory.predictions.name,
        memory.predictions.patient,
    )


def test_the_memory_of_another_model_is_refused(setting: Setting, tmp_path: Path) -> None:
    bundle, data, prepared = setting
    memory = remember(bundle, data, prepared, range(4))
    with pytest.raises(FileNotFoundError, match=r"memory\.npz is missing"):
        CaseMemory.load(tmp_path, bundle)
    memory.save(tmp_path)
    torch.manual_seed(1)
    other = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=7, in_channels=3)
    with pytest.raises(ValueError, match=r"memory\.npz is the memory of another model"):
        CaseMemory.load(tmp_path, replace(bundle, model=other))
    fewer = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=2, in_channels=3)
    with pytest.raises(ValueError, match="is not a memory of this model's cases"):
        CaseMemory.load(tmp_path, replace(bundle, model=fewer, concepts=("a", "b")))
    for damage in (b"", b"no archive", (tmp_path / "memory.npz").read_bytes()[:500]):
        (tmp_path / "memory.npz").write_bytes(damage)
        with pytest.raises(ValueError, match="is not a memory of this model's cases") as error:
            CaseMemory.load(tmp_path, bundle)
        assert "\n" not in str(error.value)


def test_the_digest_is_of_the_weights_alone(setting: Setting) -> None:
    model = setting[0].model
    torch.manual_seed(1)
    same = ParseCaps.from_config(json.loads(json.dumps(model.config)))
    assert weights_digest(same) != weights_digest(model)
    same.load_state_dict(model.state_dict())
    assert weights_digest(same) == weights_digest(model)
    with torch.no_grad():
        next(same.parameters()).mul_(1 + 1e-6)
    assert weights_digest(same) != weights_digest(model)


def test_a_model_without_concepts_and_no_cases_are_refused(setting: Setting) -> None:
    bundle, data, prepared = setting
    plain = PlainCNN(num_classes=2, in_channels=3, image_size=32, grid_width=16)
    with pytest.raises(ValueError, match="has no concepts, so no concept space"):
        remember(Bundle(plain, bundle.preparation, bundle.classes, ()), data, prepared, range(2))
    assert not plain._forward_hooks
    with pytest.raises(ValueError, match="no cases to remember"):
        remember(bundle, data, prepared, [])


def test_a_length_of_one_may_be_rounded_up(setting: Setting) -> None:
    bundle, data, prepared = setting
    model = ParseCaps.from_config(bundle.model.config).eval()
    with torch.no_grad():
        model.concepts.readout.bias.mul_(100)
        lengths = model(torch.rand(1, 3, 32, 32)).concept_capsules.double().norm(dim=-1)
    assert lengths.max() > 1 - 1e-6
    memory = remember(replace(bundle, model=model), data, prepared, range(10))
    assert memory.presence.max() <= 1
