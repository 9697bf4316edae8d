"""Answers to the cases of a data set."""

from pathlib import Path

import numpy as np
import torch

from parsecaps.data.batches import Augmentation
from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.preparation import Preparation
from parsecaps.model import Model
from parsecaps.models import ParseCaps
from parsecaps.prediction.predict import predict_cases
from tests.data.make import folder_of_pictures


def test_several_views_of_a_model_that_is_sure_have_finite_logits(tmp_path: Path) -> None:
    """The probabilities of its other class round to 0 in every view."""
    network = ParseCaps.from_preset("tiny", num_classes=2, num_concepts=0)
    preparation = Preparation(size=32, channels=1)
    model = Model(network, preparation, ("a", "b"), ())
    data = folder_of_pictures(tmp_path / "pictures", per_class=4)
    prepared = prepare_all(data, preparation, folder=tmp_path / "cache")
    for scale in (1.0, 1e5):
        with torch.no_grad():
            network.classes.scale.fill_(scale)
        changed = Augmentation(rotation=5.0)
        found = predict_cases(model, CaseSet(data, prepared, range(8)), changes=changed, views=3)
        assert np.isfinite(found.logits).all()
        np.testing.assert_allclose(np.exp(found.logits).sum(1), 1)  # logarithms of mean probabilities
    assert (found.probabilities() == 0).any()
    assert (found.logits.max(1) > -np.log(3) - 1e-9).all()  # of three views, one at least is for this class
