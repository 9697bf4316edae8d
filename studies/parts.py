"""A synthetic task that needs part-whole composition: every image has the same parts, only composed otherwise.

Four glyphs lie on a grey image of 32 x 32 pixels. One of them stands next to the ring, beside it or below it; the two
left over lie alone, in quarters of their own. The class is the ring's partner and the side it is on. So a class shows
neither in which parts are there nor in where they are, and a parent has to find the composed pair among parts that
are the same but alone.
"""

import os
from pathlib import Path

import torch
from PIL import Image
from torch import Generator, Tensor

IMAGE_SIZE = 32
CLASSES = (
    "cross beside ring",
    "cross below ring",
    "plus beside ring",
    "plus below ring",
    "tee beside ring",
    "tee below ring",
)

_RING, _CROSS, _PLUS, _TEE = range(4)
_GLYPHS = (
    ("#####", "#...#", "#...#", "#...#", "#####"),
    ("#...#", ".#.#.", "..#..", ".#.#.", "#...#"),
    ("..#..", "..#..", "#####", "..#..", "..#.."),
    ("#####", "..#..", "..#..", "..#..", "..#.."),
)
_SIDE = 5  # of a glyph
_QUARTER = IMAGE_SIZE // 2
_CLEAR = 2  # pixels between a lone glyph and the edge of its quarter; partners are 1 pixel apart


def draw_parts(count: int, *, seed: int, noise: float = 0.15) -> tuple[Tensor, Tensor]:
    """Draw `count` images `(count, 1, 32, 32)` in [0, 1] with their labels `(count,)`, indices into `CLASSES`.

    >>> image, label = draw_parts(2, seed=0)
    >>> image.shape, [CLASSES[i] for i in label]
    (torch.Size([2, 1, 32, 32]), [...])
    """
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(len(CLASSES), (count,), generator=generator)
    partner, below = label // 2 + 1, label % 2
    alone = _others(partner)
    order = torch.rand(count, 4, generator=generator).argsort(1)
    quarter = torch.stack([order // 2, order % 2], -1) * _QUARTER  # (count, 4, 2): top left corners, shuffled
    step = (_SIDE + 1) * torch.stack([below, 1 - below], -1)  # from the ring to its partner
    ring = quarter[:, 0] + _draw(_QUARTER - _SIDE - step + 1, generator)
    image = torch.zeros(count, IMAGE_SIZE, IMAGE_SIZE)
    _paint(image, torch.full_like(label, _RING), ring, generator)
    _paint(image, partner, ring + step, generator)
    for i in range(2):
        room = torch.full((count, 2), _QUARTER - _SIDE - 2 * _CLEAR + 1)
        _paint(image, alone[:, i], quarter[:, i + 1] + _CLEAR + _draw(room, generator), generator)
    image += noise * torch.randn(image.shape, generator=generator)
    return image.clamp_(0, 1).unsqueeze(1), label


def write_parts(folder: Path, *, num_train: int = 4000, num_test: int = 1000) -> Path:
    """Write images as PNG files, a folder per class below `train` and `test`; a folder that is there stays as it is."""
    if folder.exists():
        return folder
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    image, label = draw_parts(num_train + num_test, seed=0)
    levels = (255 * image[:, 0]).round().byte().numpy()
    for part in ("train", "test"):
        for name in CLASSES:
            (unfinished / part / name).mkdir(parents=True, exist_ok=True)
    for i, index in enumerate(label.tolist()):
        part = "train" if i < num_train else "test"
        Image.fromarray(levels[i]).save(unfinished / part / CLASSES[index] / f"{i:05}.png")
    unfinished.rename(folder)
    return folder


def _others(partner: Tensor) -> Tensor:
    """(N,) -> (N, 2): the two glyphs that are neither the ring nor its partner."""
    glyphs = torch.tensor([_CROSS, _PLUS, _TEE]).expand(len(partner), -1)
    return glyphs[glyphs != partner.unsqueeze(1)].view(-1, 2)


def _draw(bound: Tensor, generator: Generator) -> Tensor:
    """Whole numbers from 0 up to, not including, each bound."""
    return (torch.rand(bound.shape, generator=generator) * bound).long()


def _paint(image: Tensor, glyph: Tensor, corner: Tensor, generator: Generator) -> None:
    """Draw one glyph into each image, with its top left at `corner` (N, 2), in a grey of its own."""
    shapes = torch.tensor([[[mark == "#" for mark in line] for line in lines] for lines in _GLYPHS]).float()
    grey = 0.6 + 0.4 * torch.rand(len(image), 1, 1, generator=generator)
    steps = torch.arange(_SIDE)
    rows = corner[:, 0].view(-1, 1, 1) + steps.view(1, -1, 1)
    columns = corner[:, 1].view(-1, 1, 1) + steps
    image[torch.arange(len(image)).view(-1, 1, 1), rows, columns] = shapes[glyph] * grey
