"""Concept capsules and concept phrases in one space, for the triplet loss (Sec. 3.3.1)."""

import torch
from torch import Tensor, nn


class PhraseEmbedding(nn.Module):
    """Two linear layers into a joint space, one for concept capsules and one for the phrases that name the concepts.

    The phrase vectors are learned unless given, for instance by a text model; given ones stay as they are.

    Shapes:
        - input: concept capsules (B, m, concept_dim)
        - output: capsules (B, m, joint_dim), phrases (m, joint_dim)
    """

    phrases: Tensor

    def __init__(
        self,
        *,
        num_concepts: int,
        concept_dim: int,
        joint_dim: int = 32,
        phrase_dim: int = 32,
        phrase_vectors: Tensor | None = None,
    ) -> None:
        super().__init__()
        if phrase_vectors is None:
            self.phrases = nn.Parameter(torch.randn(num_concepts, phrase_dim))
        else:
            if phrase_vectors.dim() != 2 or len(phrase_vectors) != num_concepts:
                shape = tuple(phrase_vectors.shape)
                raise ValueError(f"phrase vectors have shape {shape}; give ({num_concepts}, any), one per concept")
            self.register_buffer("phrases", phrase_vectors.float())
            phrase_dim = phrase_vectors.shape[1]
        self.embed_capsule = nn.Linear(concept_dim, joint_dim)
        self.embed_phrase = nn.Linear(phrase_dim, joint_dim)

    def forward(self, concept_capsules: Tensor) -> tuple[Tensor, Tensor]:
        return self.embed_capsule(concept_capsules), self.embed_phrase(self.phrases)
