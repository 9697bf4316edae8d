"""Concept capsules and phrases in one space."""

import pytest
import torch

from parsecaps.nn import PhraseEmbedding


def test_learned_phrases() -> None:
    embedding = PhraseEmbedding(num_concepts=3, concept_dim=4, joint_dim=5)
    capsules, phrases = embedding(torch.randn(2, 3, 4))
    assert capsules.shape == (2, 3, 5)
    assert phrases.shape == (3, 5)
    (capsules.square().sum() + phrases.square().sum()).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in embedding.parameters())


def test_given_phrases_stay_as_they_are_and_are_saved() -> None:
    vectors = torch.randn(3, 7, dtype=torch.float64)
    embedding = PhraseEmbedding(num_concepts=3, concept_dim=4, phrase_vectors=vectors)
    assert not any(name == "phrases" for name, _ in embedding.named_parameters())
    torch.testing.assert_close(embedding.state_dict()["phrases"], vectors.float())
    capsules, phrases = embedding(torch.randn(2, 3, 4))
    assert capsules.shape[-1] == phrases.shape[-1]


@pytest.mark.parametrize("shape", [(2, 7), (3,), (3, 2, 2)])
def test_wrong_vectors(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"phrase vectors have shape .*; give \(3, any\), one per concept") as error:
        PhraseEmbedding(num_concepts=3, concept_dim=4, phrase_vectors=torch.zeros(shape))
    assert str(shape) in str(error.value)
