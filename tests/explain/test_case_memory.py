import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation, dequantise
from parsecaps.data.sources import open_data
from parsecaps.explain.case_memory import (
    CaseMemory,
    jpeg,
    prototypes,
    read_thumbnails,
    remember,
    similar,
    write_thumbnails,
)
from parsecaps.model import Model
from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.models.pretrained import weights_digest
from tests.data.make import folder_of_pictures
from tests.explain.make import make_memory
from tests.messages import refused

Setting = tuple[Model, DataSet, PreparedImages]


@pytest.fixture(scope="module")
def setting() -> Setting:
    torch.manual_seed(0)
    data = open_data("phantom:n=10,size=32")
    preparation = Preparation(size=32, channels=3)
    model = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=7, in_channels=3).eval()
    return Model(model, preparation, data.classes, data.concepts), data, prepare_all(data, preparation)


def test_it_holds_what_the_model_says_of_each_image_alone(setting: Setting) -> None:
    model, data, prepared = setting
    rows = [7, 2, 5]
    memory = remember(model, CaseSet(data, prepared, rows), batch_size=2)
    for i, row in enumerate(rows):
        with torch.no_grad():
            output = model.network(dequantise(torch.from_numpy(prepared.images[row].copy()))[None])
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
    network = ParseCaps.from_preset("tiny", num_classes=2, in_channels=3)
    model = Model(network, preparation, data.classes, ("unnamed 1", "unnamed 2", "unnamed 3"))
    memory = remember(model, CaseSet(data, prepare_all(data, preparation), range(4)))
    assert memory.presence.shape == (4, 3)
    assert np.isnan(memory.truth).all()


def test_what_is_saved_comes_back_under_the_names_of_the_bundle(setting: Setting, tmp_path: Path) -> None:
    model, data, prepared = setting
    memory = remember(model, CaseSet(data, prepared, range(10)))
    memory.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["memory.npz"]
    with np.load(tmp_path / "memory.npz", allow_pickle=False) as stored:
        assert all(stored[name].dtype != object for name in stored.files)
    renamed = replace(model, concepts=tuple("abcdefg"))
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
    model, data, prepared = setting
    memory = remember(model, CaseSet(data, prepared, range(4)))
    with refused(FileNotFoundError):
        CaseMemory.load(tmp_path, model)
    memory.save(tmp_path)
    torch.manual_seed(1)
    other = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=7, in_channels=3)
    with refused(ValueError):
        CaseMemory.load(tmp_path, replace(model, network=other))
    fewer = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=2, in_channels=3)
    with refused(ValueError):
        CaseMemory.load(tmp_path, replace(model, network=fewer, concepts=("a", "b")))
    for damage in (b"", b"no archive", (tmp_path / "memory.npz").read_bytes()[:500]):
        (tmp_path / "memory.npz").write_bytes(damage)
        with refused(ValueError):
            CaseMemory.load(tmp_path, model)


def test_the_digest_is_of_the_weights_alone(setting: Setting) -> None:
    model = setting[0].network
    torch.manual_seed(1)
    same = ParseCaps.from_config(json.loads(json.dumps(model.config)))
    assert weights_digest(same) != weights_digest(model)
    same.load_state_dict(model.state_dict())
    assert weights_digest(same) == weights_digest(model)
    with torch.no_grad():
        next(same.parameters()).mul_(1 + 1e-6)
    assert weights_digest(same) != weights_digest(model)


def test_a_model_without_concepts_and_no_cases_are_refused(setting: Setting) -> None:
    model, data, prepared = setting
    plain = PlainCNN(num_classes=2, in_channels=3, image_size=32, grid_width=16)
    with refused(ValueError):
        remember(Model(plain, model.preparation, model.classes, ()), CaseSet(data, prepared, range(2)))
    assert not plain._forward_hooks
    with refused(ValueError):
        remember(model, CaseSet(data, prepared, []))


def test_a_length_of_one_may_be_rounded_up(setting: Setting) -> None:
    model, data, prepared = setting
    network = ParseCaps.from_config(model.network.config).eval()
    with torch.no_grad():
        network.concepts.readout.bias.mul_(100)
        lengths = network(torch.rand(1, 3, 32, 32)).concept_capsules.double().norm(dim=-1)
    assert lengths.max() > 1 - 1e-6
    memory = remember(replace(model, network=network), CaseSet(data, prepared, range(10)))
    assert memory.presence.max() <= 1


def one_per_patient(rows: list[int], patient: list[str], count: int) -> list[int]:
    kept, seen = [], set()
    for row in rows:
        if not patient[row] or patient[row] not in seen:
            kept.append(row)
            seen.add(patient[row])
    return kept[:count]


PATIENTS = ["a", "a", "b", "", "b", "c", "", "a", "c", "d"] * 3


def presences() -> np.ndarray:
    return np.round(np.random.default_rng(0).random((30, 3)), 1)  # with ties


@pytest.mark.parametrize("concept", [0, 2])
@pytest.mark.parametrize("count", [1, 6, 100])
def test_prototypes_are_the_strongest_one_per_patient(concept: int, count: int) -> None:
    memory = make_memory(presences(), patient=PATIENTS)
    found = prototypes(memory, concept, count)
    ordered = sorted(range(30), key=lambda row: (-presences()[row, concept], row))
    assert [each.case.row for each in found] == one_per_patient(ordered, PATIENTS, count)
    assert [each.presence for each in found] == [presences()[each.case.row, concept] for each in found]


def test_a_prototype_says_what_is_true_and_what_was_said() -> None:
    truth = np.array([[1.0, np.nan], [0.0, 1.0]])
    memory = make_memory(np.array([[0.8, 0.1], [0.3, 0.9]]), truth=truth, label=np.array([2, -1]), patient=["x", "y"])
    first, second = prototypes(memory, 0)
    assert (first.truth, second.truth, prototypes(memory, 1)[1].truth) == (True, False, None)
    assert (first.case.label, second.case.label) == ("pituitary", None)
    assert (first.case.name, first.case.patient) == ("image 0", "x")
    chances = np.exp(memory.predictions.logits[0]) / np.exp(memory.predictions.logits[0]).sum()
    assert first.case.diagnosis == memory.predictions.classes[int(chances.argmax())]
    assert first.case.probability == pytest.approx(chances.max())


@pytest.mark.parametrize("count", [1, 4, 100])
def test_similar_cases_are_the_nearest_one_per_patient(count: int) -> None:
    memory = make_memory(presences(), patient=PATIENTS)
    image = np.random.default_rng(1).normal(size=(3, 4)) / 4
    apart = [np.sqrt(np.mean(((case.astype(float) - image) ** 2).sum(-1))) for case in memory.capsules]
    ordered = sorted(range(30), key=lambda row: (apart[row], row))
    found = similar(memory, image, count)
    assert [each.case.row for each in found] == one_per_patient(ordered, PATIENTS, count)
    assert [each.distance for each in found] == pytest.approx([apart[each.case.row] for each in found], abs=1e-6)


def test_an_image_that_is_known_is_nearest_to_itself() -> None:
    memory = make_memory(presences(), patient=PATIENTS)
    for row in (0, 17):
        (nearest,) = similar(memory, memory.capsules[row], 1)
        assert (nearest.case.row, nearest.distance) == (row, 0)


def shades(channels: int, side: int) -> np.ndarray:
    return np.stack([np.full((channels, side, side), 40 * i, np.uint8) for i in range(5)])


@pytest.mark.parametrize(("channels", "side", "shown"), [(1, 224, 96), (3, 128, 96), (1, 28, 28)])
def test_pictures_come_back_in_the_order_of_the_rows(channels: int, side: int, shown: int, tmp_path: Path) -> None:
    path = tmp_path / "thumbnails.zip"
    write_thumbnails(path, shades(channels, side), [3, 0, 4])
    for file, level in zip(read_thumbnails(path, [2, 0, 1]), (160, 120, 0), strict=True):
        with Image.open(io.BytesIO(file)) as picture:
            assert picture.format == "JPEG"
            assert picture.size == (shown, shown)
            assert np.abs(np.asarray(picture, dtype=int) - level).max() <= 2
    assert [each.name for each in tmp_path.iterdir()] == ["thumbnails.zip"]


def test_the_same_pictures_make_the_same_file(tmp_path: Path) -> None:
    for name in ("a.zip", "b.zip"):
        write_thumbnails(tmp_path / name, shades(1, 64), [1, 2])
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    with refused(FileNotFoundError):
        read_thumbnails(tmp_path / "t.zip", [0])
    write_thumbnails(tmp_path / "t.zip", shades(1, 8), [0])
    with refused(ValueError):
        read_thumbnails(tmp_path / "t.zip", [1])
    (tmp_path / "t.zip").write_bytes(b"no zip")
    with refused(ValueError):
        read_thumbnails(tmp_path / "t.zip", [0])


def test_a_thumbnail_is_small() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (3, 224, 224), dtype=np.uint8)
    assert len(jpeg(noise)) < 9000
    assert len(jpeg(shades(1, 224)[2:3, 0])) < 1000
