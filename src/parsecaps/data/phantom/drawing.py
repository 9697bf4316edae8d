"""The whole picture: skin, lesion, the structures that its concepts name, hair, and the light of the dermatoscope."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from parsecaps.data.phantom.canvas import Canvas, Flags, Floats, Integers, Randomness, column, smoothstep
from parsecaps.data.phantom.checklist import CONCEPTS, draw_cases
from parsecaps.data.phantom.lesion import Lesion, hair, lesion, pigmentation, skin_relief, skin_tone
from parsecaps.data.phantom.structures import STRUCTURES, veil

SMALLEST, LARGEST = 32, 512

# How much of red, green and blue a unit of pigment takes away (in the exponent, of sRGB values).
_BROWN = (0.50, 0.80, 1.00)
_BLUE = (0.80, 0.62, 0.38)
_RED = (0.05, 0.50, 0.40)
_HAIR = (0.13, 0.09, 0.07)
_CHUNK = 2**18  # pixels drawn at once
_VEILED = 0.7  # how much of a structure an opaque veil hides
_GRAIN = 3.0  # of the camera, in grey levels either way


class PhantomBatch(NamedTuple):
    """N pictures with all that is true of them; the last five fields are those of `Cases`.

    Shapes:
        - image: (N, 3, size, size) uint8; lesion: (N, size, size) bool
        - concept_masks: (N, 7, size, size) bool, the pixels of each concept that is drawn, in the order of `CONCEPTS`
    """

    image: npt.NDArray[np.uint8]
    lesion: Flags
    concept_masks: Flags
    concepts: Floats
    label: Integers
    patient: Integers
    true_concepts: Floats
    true_label: Integers


def draw(
    indices: Sequence[int] | Integers,
    *,
    size: int,
    seed: int = 0,
    concept_noise: float = 0.0,
    label_noise: float = 0.0,
    force: Mapping[str, bool] | None = None,
) -> PhantomBatch:
    """Draw the images of these numbers; image i depends on (seed, i, size) alone, and is the same scene at every size.

    `concept_noise` and `label_noise` are the shares of annotations that are flipped. `force` sets concepts to present
    or absent in every scene, all else as it was.

    >>> batch = draw([0, 1], size=32, force={"blue-whitish veil": True})
    >>> batch.image.shape, batch.concepts[:, 2].tolist()
    ((2, 3, 32, 32), [1.0, 1.0])
    """
    if not SMALLEST <= size <= LARGEST:
        raise ValueError(f"size {size} cannot be drawn; choose from {SMALLEST} to {LARGEST} px")
    numbers = np.asarray(indices, np.int64)
    cases = draw_cases(numbers, seed=seed, concept_noise=concept_noise, label_noise=label_noise, force=force)
    canvas = Canvas(size)
    image = np.empty((len(numbers), 3, size, size), np.uint8)
    mask = np.empty((len(numbers), size, size), bool)
    concept_masks = np.empty((len(numbers), len(CONCEPTS), size, size), bool)
    step = max(1, _CHUNK // size**2)
    for start in range(0, len(numbers), step):
        rows = slice(start, start + step)
        present = cases.true_concepts[rows] > 0
        drawn = _scenes(canvas, seed, numbers[rows], cases.patient[rows], present)
        image[rows], mask[rows], concept_masks[rows] = drawn
    return PhantomBatch(image, mask, concept_masks, *cases)


def _scenes(
    canvas: Canvas, seed: int, numbers: Integers, patients: Integers, present: Flags
) -> tuple[npt.NDArray[np.uint8], Flags, Flags]:
    """The pictures, and the pixels of the lesion and of the concepts, of a few images with these concepts (N, 7)."""
    random = Randomness(seed, "image", numbers)
    patient = Randomness(seed, "patient", patients)
    on = lesion(canvas, random)
    brown, red = pigmentation(canvas, random, on)
    structures, blue = np.zeros_like(brown), np.zeros_like(brown)
    concept_masks = np.zeros((len(numbers), len(CONCEPTS), canvas.size, canvas.size), bool)

    def having(concept: str) -> tuple[Integers, Randomness, Lesion]:
        chosen = np.flatnonzero(present[:, CONCEPTS.index(concept)])
        return chosen, Randomness(seed, "image", numbers[chosen]), Lesion._make(values[chosen] for values in on)

    for concept, structure in STRUCTURES.items():
        chosen, own, part = having(concept)
        if len(chosen):
            *pigments, pixels = structure(canvas, own, part)
            for there, pigment in zip((structures, blue), pigments, strict=False):
                there[chosen] += pigment
            concept_masks[chosen, CONCEPTS.index(concept)] = pixels
    structures = np.maximum(structures, -brown)
    brown += skin_relief(canvas, random)
    tone = skin_tone(patient)
    ground = [column(tone[:, c]) * np.exp(-(_BROWN[c] * brown + _RED[c] * red)) for c in range(3)]
    colour = np.stack(ground)  # (3, N, size, size)
    chosen, own, part = having("blue-whitish veil")
    if len(chosen):
        opacity, veil_colour, pixels = veil(canvas, own, part)
        light = column(0.45 + 0.55 * tone[chosen, 1] / 0.75)
        colour[:, chosen] += opacity * (veil_colour * light - colour[:, chosen])
        structures[chosen] *= 1 - _VEILED * opacity
        blue[chosen] *= 1 - _VEILED * opacity
        concept_masks[chosen, CONCEPTS.index("blue-whitish veil")] = pixels
    strand, shadow = hair(canvas, patient, random)
    light = (1 - 0.22 * shadow) * _light(canvas, patient)
    grains = [random.uniform(name, canvas.size, canvas.size) for name in ("grain", "grain 2")]
    grain = _GRAIN * (grains[0] - grains[1])
    image = np.empty((len(numbers), 3, canvas.size, canvas.size), np.uint8)
    for c in range(3):
        channel = colour[c] * np.exp(-(_BROWN[c] * structures + _BLUE[c] * blue))
        channel += 0.92 * strand * (_HAIR[c] - channel)
        image[:, c] = np.clip(255 * channel * light + grain + 0.5, 0, 255).astype(np.uint8)
    return image, on.mask, concept_masks


def _light(canvas: Canvas, patient: Randomness) -> Floats:
    """(N, size, size): light falls off towards the corners; some dermatoscopes show the dark rim of their tube."""
    x = canvas.x - column(patient.between("light x", -0.12, 0.12))
    y = canvas.y - column(patient.between("light y", -0.12, 0.12))
    squared = x * x + y * y
    falloff = column(patient.between("falloff", 0.04, 0.2))
    rim = column(np.where(patient.uniform("tube") < 0.35, patient.between("rim", 1.12, 1.25), np.float32(3)))
    return np.asarray((1 - falloff * squared) * (1 - smoothstep(np.sqrt(squared), rim - 0.05, rim + 0.05)))
