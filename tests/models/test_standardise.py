from pathlib import Path

import torch

from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.models.pretrained import Standardise


def test_values_per_channel() -> None:
    standardise = Standardise(2)
    image = torch.rand(3, 2, 4, 5)
    assert torch.equal(standardise(image), image)
    standardise.use([0.5, 0.25], [2.0, 0.5])
    expected = torch.stack([(image[:, 0] - 0.5) / 2, (image[:, 1] - 0.25) / 0.5], 1)
    assert torch.allclose(standardise(image), expected)


def test_a_model_standardises_wherever_an_image_comes_in(tmp_path: Path) -> None:
    image = torch.rand(2, 1, 32, 32)
    for model in (ParseCaps.from_preset("tiny", num_classes=2), PlainCNN(num_classes=2, image_size=32)):
        model.eval()
        scaled = (image - 0.3) / 0.2
        logits = model(scaled).logits
        model.standardise.use([0.3], [0.2])
        assert torch.allclose(model(image).logits, logits, atol=1e-5)
        model.save_pretrained(tmp_path)
        assert torch.equal(type(model).from_pretrained(tmp_path)(image).logits, model(image).logits)
