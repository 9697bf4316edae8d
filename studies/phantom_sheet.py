"""The contact sheet of the phantom: `python -m studies.phantom_sheet docs/phantom.jpg`.

One column for each concept. First a lesion that has this concept alone, then one as it comes, with others; under each
the same picture with the outlines of the lesion (white) and of the concept (green). Below, nevi and melanomas as they
come.
"""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from parsecaps.data.phantom import CLASSES, CONCEPTS, PhantomBatch, case_table, draw, score
from parsecaps.report.pictures import contact_sheet

_LESION, _CONCEPT = (255, 255, 255), (60, 255, 90)


def phantom_sheet(*, size: int, seed: int) -> npt.NDArray[np.uint8]:
    """(3, height, width): the whole sheet."""
    rows: list[npt.NDArray[np.uint8]] = []
    captions: list[str] = []
    free = iter(range(0, 10_000, 10))  # every ten images: always another patient
    for alone in (True, False):
        batches = []
        for name in CONCEPTS:
            absent = {other: False for other in CONCEPTS if other != name} if alone else {}
            batches.append(draw([next(free)], size=size, seed=seed, force={**absent, name: True}))
        rows += [batch.image[0] for batch in batches]
        captions += [name if alone else f"{name}, ..." for name in CONCEPTS]
        rows += [outlined(batch, CONCEPTS.index(name)) for name, batch in zip(CONCEPTS, batches, strict=True)]
        captions += ["white: lesion, green: concept"] * len(CONCEPTS)
    labels = case_table(10_000, seed=seed).label
    for label, name in enumerate(CLASSES):
        chosen = [i for i in free if labels[i] == label][: len(CONCEPTS)]
        free = iter(range(max(chosen) + 10, 10_000, 10))
        batch = draw(chosen, size=size, seed=seed)
        rows += list(batch.image)
        captions += [f"{name}: {points} points" for points in score(batch.concepts)]
    return contact_sheet(np.stack(rows), captions, columns=len(CONCEPTS))


def outlined(batch: PhantomBatch, concept: int) -> npt.NDArray[np.uint8]:
    """(3, size, size): the first picture with the outlines of its lesion and of one concept."""
    image: npt.NDArray[np.uint8] = batch.image[0].copy()
    image[:, _edge(batch.lesion[0])] = np.array(_LESION, np.uint8)[:, None]
    image[:, _edge(batch.concept_masks[0, concept])] = np.array(_CONCEPT, np.uint8)[:, None]
    return image


def _edge(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """The pixels of a mask with a neighbour outside it."""
    padded = np.pad(mask, 1)
    within = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return mask & ~within


def main() -> None:
    """Draw the sheet into a picture file."""
    from PIL import Image

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sheet = phantom_sheet(size=options.size, seed=options.seed)
    Image.fromarray(sheet.transpose(1, 2, 0)).save(options.out, quality=80, optimize=True)
    print(f"{options.out}: {sheet.shape[2]} x {sheet.shape[1]} px, {options.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
