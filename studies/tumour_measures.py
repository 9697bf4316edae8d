"""What can be measured of an outlined lesion: where it lies, how large, how bright, how even, how sharp its border is.

Not in the paper. Measures are numbers that a reader of images would give, so they carry over from patient to patient;
they need a mask, so they are for studies, never for answers.
"""

import numpy as np
from scipy import ndimage

MEASURES = (
    *("height in the body", "distance from the middle line", "depth of the nearest point", "depth of the centre"),
    *("size", "roughness of the outline", "elongation"),
    *("brightness", "darkest", "dark", "median", "bright", "brightest", "unevenness"),
    *("brightness of the core", "unevenness of the core", "brightness of the rim", "core against rim"),
    *("darkest of the core against the rim", "brightness around", "unevenness around", "lesion against around"),
    *("sharpness of the border", "shape of the body", "share of the body", "symmetry of the body"),
    *("dark of the body", "median of the body", "bright of the body"),
)
_BODY = 0.1  # brighter than that is not background
_CLEAN = 0.004  # of the image's width: specks in the background that are not body
_CORE, _RIM, _GAP, _AROUND, _BLUR = 0.016, 0.008, 0.004, 0.024, 0.004  # widths, as shares of the image's


def measure(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The measures of one lesion, in the order of `MEASURES`; NaN where the mask is empty.

    Lengths are shares of the square root of the body's area, so that they do not depend on the pixels; brightness is
    that of the image.

    Shapes:
        - image: (size, size) in [0, 1]; mask: (size, size) bool
        - output: (29,) float64
    """
    if not mask.any():
        return np.full(len(MEASURES), np.nan)
    width = len(image)

    def pixels(share: float) -> int:
        return max(1, round(share * width))

    body = ndimage.binary_fill_holes(ndimage.binary_opening(image > _BODY, iterations=pixels(_CLEAN)))
    body = body | mask
    (top, left), (bottom, right) = (edge(np.nonzero(body), axis=1) for edge in (np.min, np.max))
    rows, columns = np.nonzero(mask)
    y, x = rows.mean(), columns.mean()
    scale = np.sqrt(body.sum())
    depth = ndimage.distance_transform_edt(np.pad(body, 1))[1:-1, 1:-1] / scale
    core = ndimage.binary_erosion(mask, iterations=pixels(_CORE))
    core = core if core.any() else mask
    rim = mask & ~ndimage.binary_erosion(mask, iterations=pixels(_RIM))
    gap = ndimage.binary_dilation(mask, iterations=pixels(_GAP))
    around = ndimage.binary_dilation(gap, iterations=pixels(_AROUND)) & ~gap
    around = around if around.any() else rim
    steep = ndimage.gaussian_gradient_magnitude(image, pixels(_BLUR))
    border = mask & ~ndimage.binary_erosion(mask)
    frame = image[top : bottom + 1, left : right + 1]
    lesion, of_core, of_rim = image[mask], image[core], image[rim]
    return np.array(
        [
            (y - top) / max(1, bottom - top),
            abs((x - left) / max(1, right - left) - 0.5),
            depth[mask].min(),
            depth[round(y), round(x)],
            np.sqrt(mask.sum()) / scale,
            border.sum() ** 2 / mask.sum(),
            (np.ptp(rows) + 1) / (np.ptp(columns) + 1),
            lesion.mean(),
            *np.percentile(lesion, (5, 25, 50, 75, 95)),
            lesion.std(),
            of_core.mean(),
            of_core.std(),
            of_rim.mean(),
            of_core.mean() - of_rim.mean(),
            np.percentile(of_core, 10) / max(of_rim.mean(), 0.01),
            image[around].mean(),
            image[around].std(),
            lesion.mean() - image[around].mean(),
            steep[rim].mean(),
            (bottom - top + 1) / (right - left + 1),
            body.mean(),
            np.abs(frame - frame[:, ::-1]).mean(),
            *np.percentile(image[body], (10, 50, 90)),
        ]
    )
