"""Augmentation: its own seed, its own image, and nothing when everything is off."""

import torch

from parsecaps.data.batches import Augmentation

OFF = Augmentation(flip=False, rotation=0, scale=0, shear=0, shift=0, gamma=0, contrast=0, brightness=0)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_everything_off_gives_the_image_back() -> None:
    image = torch.rand(3, 2, 16, 16)
    torch.testing.assert_close(OFF(image, generator()), image, rtol=1e-4, atol=1e-4)


def test_the_same_seed_gives_the_same_images_whatever_the_global_one() -> None:
    image = torch.rand(4, 1, 16, 16)
    first = Augmentation()(image, generator(1))
    torch.manual_seed(123)
    torch.testing.assert_close(Augmentation()(image, generator(1)), first, rtol=0, atol=0)
    assert not torch.allclose(Augmentation()(image, generator(2)), first)


def test_each_image_is_changed_in_its_own_way() -> None:
    image = torch.rand(1, 1, 16, 16).expand(4, -1, -1, -1)
    changed = Augmentation()(image, generator())
    assert not torch.allclose(changed[0], changed[1])


def test_flip_mirrors_left_and_right_only() -> None:
    image = torch.rand(8, 1, 16, 16)
    flip = Augmentation(rotation=0, scale=0, shear=0, shift=0, gamma=0, contrast=0, brightness=0)
    changed = flip(image, generator())
    kinds = set()
    for before, after in zip(image, changed, strict=True):
        same = torch.allclose(before, after, atol=1e-4)
        assert same or torch.allclose(before.flip(-1), after, atol=1e-4)
        kinds.add(same)
    assert kinds == {True, False}


def test_without_colour_the_random_numbers_are_as_before() -> None:
    """Flip, angle, size, shear, shift, gamma, contrast and brightness are drawn, and nothing else."""
    image = torch.rand(4, 3, 16, 16)
    before, without, with_it = (generator(1) for _ in range(3))
    for shape in ((4,), (4,), (4,), (4,), (4, 2), (4, 1, 1, 1), (4, 1, 1, 1), (4, 1, 1, 1)):
        torch.rand(shape, generator=before)
    plain = Augmentation()(image, without)
    assert torch.equal(without.get_state(), before.get_state())
    assert not torch.allclose(Augmentation(colour=0.3)(image, with_it), plain)
    assert not torch.equal(with_it.get_state(), before.get_state())


def test_colour_scales_each_channel_of_each_image_on_its_own() -> None:
    image = 0.5 * torch.rand(64, 3, 8, 8) + 0.25
    tinted = OFF.model_copy(update=dict(colour=0.3))(image, generator())
    scale = (tinted / image).flatten(2)
    torch.testing.assert_close(scale, scale.mean(2, keepdim=True).expand_as(scale), rtol=1e-3, atol=1e-3)
    factors = scale.mean(2)  # (64, 3)
    assert 0.7 <= factors.min() < 0.75
    assert 1.25 < factors.max() <= 1.3001
    assert float((factors[:, 0] - factors[:, 1]).abs().mean()) > 0.1
    between = torch.corrcoef(factors.T)
    assert float((between - torch.eye(3)).abs().max()) < 0.4
    assert abs(float(factors.mean()) - 1) < 0.05


def test_bicubic_resampling_keeps_an_image_sharp() -> None:
    noise = torch.rand(8, 1, 36, 36, generator=generator())
    image = torch.nn.functional.avg_pool2d(noise, 5, 1)  # no finer than a photo is
    moved = {"flip": False, "scale": 0, "gamma": 0, "contrast": 0, "brightness": 0}

    def sharpness(changed: torch.Tensor) -> float:
        inside = changed[..., 8:24, 8:24]
        return float(inside.diff(dim=-1).abs().mean() / image[..., 8:24, 8:24].diff(dim=-1).abs().mean())

    soft, sharp = (Augmentation(**moved, resampling=how)(image, generator(5)) for how in ("bilinear", "bicubic"))
    assert sharpness(soft) < 0.85
    assert 0.9 < sharpness(sharp) < 1.05
    assert 0 <= sharp.min() <= sharp.max() <= 1
