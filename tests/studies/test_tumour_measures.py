"""Measures of outlined lesions, by discs on a disc."""

import numpy as np
import pytest

from studies.tumour_measures import MEASURES, measure


def disc(size: int, y: float, x: float, radius: float) -> np.ndarray:
    rows, columns = np.mgrid[:size, :size]
    return np.asarray((rows - y * size) ** 2 + (columns - x * size) ** 2 <= (radius * size) ** 2)


def head(size: int = 128, y: float = 0.5, x: float = 0.5, radius: float = 0.08, core: float = 0.8, rim: float = 0.8):
    """A head of brightness 0.3 with a round lesion, whose core may be of another brightness than its rim."""
    image, mask = 0.3 * disc(size, 0.5, 0.5, 0.4), disc(size, y, x, radius)
    image[mask] = rim
    image[disc(size, y, x, 0.6 * radius)] = core
    return image, mask


def measures(*arguments, **changes) -> dict[str, float]:
    return dict(zip(MEASURES, measure(*head(*arguments, **changes)), strict=True))


def test_values_of_a_disc_in_a_disc() -> None:
    found = measures(y=0.3)
    assert found["height in the body"] == pytest.approx(0.25, abs=0.01)  # from 0.1 to 0.9
    assert found["distance from the middle line"] == pytest.approx(0, abs=0.01)
    assert found["size"] == pytest.approx(0.08 / 0.4, abs=0.005)
    assert found["depth of the centre"] == pytest.approx(0.2 / (0.4 * np.sqrt(np.pi)), abs=0.02)
    assert found["depth of the nearest point"] == pytest.approx(0.12 / (0.4 * np.sqrt(np.pi)), abs=0.02)
    assert found["elongation"] == pytest.approx(1, abs=0.06)
    assert found["brightness"] == pytest.approx(0.8)
    assert found["unevenness"] == pytest.approx(0)
    assert found["brightness around"] == pytest.approx(0.3)
    assert found["lesion against around"] == pytest.approx(0.5)
    assert found["shape of the body"] == pytest.approx(1)
    assert found["share of the body"] == pytest.approx(np.pi * 0.4**2, abs=0.01)
    assert found["median of the body"] == pytest.approx(0.3)


def test_what_differs_is_told_apart() -> None:
    plain = measures()
    assert measures(x=0.3)["distance from the middle line"] > plain["distance from the middle line"] + 0.2
    assert measures(radius=0.16)["size"] == pytest.approx(2 * plain["size"], rel=0.03)
    ring = measures(core=0.1, rim=0.9)
    assert ring["core against rim"] < -0.3 < plain["core against rim"]
    assert ring["darkest of the core against the rim"] < 0.2 < plain["darkest of the core against the rim"]
    assert ring["unevenness"] > 0.2
    image, mask = head()
    image[disc(128, 0.5, 0.2, 0.1)] = 0.6
    assert measure(image, mask)[MEASURES.index("symmetry of the body")] > plain["symmetry of the body"] + 0.01


def test_left_and_right_and_the_number_of_pixels_do_not_count() -> None:
    image, mask = head(x=0.35, y=0.4, core=0.5)
    np.testing.assert_allclose(measure(image[:, ::-1], mask[:, ::-1]), measure(image, mask), atol=0.02)
    small, large = (np.array(list(measures(size, x=0.35, core=0.5).values())) for size in (128, 256))
    rough = MEASURES.index("sharpness of the border")  # by the pixel
    np.testing.assert_allclose(np.delete(small, rough), np.delete(large, rough), rtol=0.12, atol=0.04)


@pytest.mark.parametrize("image", [np.zeros((32, 32)), np.ones((32, 32))], ids=["black", "white"])
@pytest.mark.parametrize("mask", [np.ones((32, 32), bool), np.eye(32, dtype=bool) & (np.arange(32) == 5)])
def test_any_image_and_any_outline_have_finite_measures(image: np.ndarray, mask: np.ndarray) -> None:
    assert np.isfinite(measure(image, mask)).all()
