"""Vectors of the phrases that name concepts: from a file or hashed, as far as the triplet loss; and its margins."""

import json
from pathlib import Path

import pytest
import torch

from parsecaps.config import load_config
from parsecaps.functional import presentation_loss, triplet_loss
from parsecaps.run import Run
from parsecaps.training.fit import fit
from parsecaps.training.objective import Objective
from parsecaps.training.phrase_vectors import phrase_vectors
from parsecaps.training.terms import Presentation, TermContext, Triplet
from parsecaps.types import Batch, Output
from tests.messages import refused
from tests.training.make import PHANTOM

NAMES = ("streaks", "veil")


def write(folder: Path, content: object) -> str:
    path = folder / "vectors.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_vectors_are_in_the_order_of_the_concepts_and_standardised(tmp_path: Path) -> None:
    given = write(tmp_path, {"veil": [1, 2, 3], "other": [0], "streaks": [4, 5, 6]})
    assert phrase_vectors(given, NAMES).tolist() == [[1, 1, 1], [-1, -1, -1]]


def test_hashed_vectors_need_no_file_and_are_the_same_everywhere() -> None:
    found = phrase_vectors("hashed", NAMES)
    assert torch.equal(found, phrase_vectors("hashed", NAMES))
    assert found.square().mean().item() == pytest.approx(1, rel=1e-5)
    torch.testing.assert_close(found.mean(0), torch.zeros(found.shape[1]))
    assert phrase_vectors("hashed", NAMES[:1]).abs().max() == 0  # of one concept, there is nothing to tell apart


@pytest.mark.parametrize(
    "content",
    [
        {"streaks": [1, 2]},
        {"streaks": [1, 2], "veil": [1]},
        {"streaks": [], "veil": []},
        {"streaks": [1, 2], "veil": [1, float("nan")]},
        {"streaks": "no", "veil": [1, 2]},
        [1, 2],
    ],
)
def test_a_file_that_will_not_do_is_refused_in_one_line(content: object, tmp_path: Path) -> None:
    with refused(ValueError):
        phrase_vectors(write(tmp_path, content), NAMES)


def test_a_missing_file_says_what_would_do() -> None:
    with refused(FileNotFoundError):
        phrase_vectors("nowhere.json", NAMES)


def test_a_training_takes_them_and_keeps_them_fixed(tmp_path: Path) -> None:
    settings = [*PHANTOM, "training.phrase_vectors=hashed", "training.losses.triplet.margin=0.5"]
    run = fit(load_config(None, settings), run_folder=tmp_path / "run")
    assert Run(run.folder).config.training.losses["triplet"].phrase_vectors == "hashed"
    context = TermContext(run.config.training, run.model.network, concepts=run.data.concepts)
    term = Objective.build(context).terms["triplet"]
    assert isinstance(term, Triplet)
    assert term.margin == 0.5
    assert term.phrases is not None
    assert torch.equal(term.phrases.phrases, phrase_vectors("hashed", run.data.concepts))
    assert "phrases" not in dict(term.phrases.named_parameters())
    with refused(ValueError):
        Objective.build(TermContext(run.config.training, run.model.network))


def test_margins_reach_their_losses() -> None:
    capsules = torch.rand(3, 2, 4)
    presence, concepts = capsules.norm(dim=-1).clamp(max=1), torch.tensor([[1.0, 0.0]] * 3)
    output = Output(torch.zeros(3, 2), concept_capsules=capsules, presence=presence)
    batch = Batch(torch.zeros(3, 1, 8, 8), torch.zeros(3, dtype=torch.long), concepts)
    term = Triplet(1.0, num_concepts=2, concept_dim=4, margin=0.25)
    assert term.phrases is not None
    torch.testing.assert_close(term(output, batch).mean, triplet_loss(*term.phrases(capsules), concepts, 0.25))
    wanted = presentation_loss(presence, concepts, margin_present=0.7, margin_absent=0.3)
    torch.testing.assert_close(Presentation(1.0, margins=(0.3, 0.7))(output, batch).mean, wanted)
    for wrong in (lambda: Presentation(1.0, margins=(0.9, 0.1)), lambda: Triplet(1.0, margin=0.0)):
        with refused(ValueError):
            wrong()
