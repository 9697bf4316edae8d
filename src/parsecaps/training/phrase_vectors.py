"""The vectors of the phrases that name concepts, for the triplet loss: a text model's, or hashed from their letters."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from parsecaps.files.untrusted import checked, read_document

HASHED = "hashed"
_HASHED_NUMBERS = 128


def phrase_vectors(given: str, concepts: Sequence[str]) -> Tensor:
    """The vectors of these concepts (m, d) from a JSON file `{"concept": [numbers]}`, or `hashed`, standardised.

    Hashed vectors count runs of two to four letters, so that phrases that share words or stems are alike. They know
    spelling and no meaning, and need no text model. What all concepts share is subtracted, and the numbers are scaled
    to a mean square of 1, as those of learned vectors have.

    >>> first, second, third = phrase_vectors("hashed", ["irregular streaks", "regular streaks", "blue veil"])
    >>> bool(first @ second > 0 > first @ third)
    True
    """
    if given == HASHED:
        from sklearn.feature_extraction.text import HashingVectorizer

        hashing = HashingVectorizer(analyzer="char_wb", ngram_range=(2, 4), n_features=_HASHED_NUMBERS)
        return _standardised(torch.from_numpy(hashing.transform(concepts).toarray()))
    path, advice = Path(given), 'write {"concept": [numbers], ...}, with equally many for each'
    if not path.is_file():
        raise FileNotFoundError(f"phrase_vectors is {given!r}, which is no file; give a JSON file, or {HASHED}")
    vectors = checked(dict[str, list[float]], read_document(path, advice), path, advice, strict=True)
    if missing := [name for name in concepts if name not in vectors]:
        raise ValueError(f"{path} has no vector of {missing[0]!r}; add one for each concept of the data")
    if len({len(vectors[name]) for name in concepts}) > 1 or not vectors[concepts[0]]:
        raise ValueError(f"{path}: the vectors differ in length, or are empty; {advice}")
    return _standardised(torch.tensor([vectors[name] for name in concepts], dtype=torch.float64))


def _standardised(vectors: Tensor) -> Tensor:
    centred = vectors - vectors.mean(0)
    return (centred / centred.square().mean().sqrt().clamp_min(1e-12)).float()
