"""Augmentation of a whole batch at once, with a generator of its own."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

Resampling = Literal["bilinear", "bicubic"]


@dataclass(frozen=True)
class Augmentation:
    """Random flip, crop, small affine change and small change of intensity, drawn for each image on its own.

    Angles are in degrees; `shift` is a share of the image's width; an image is padded by `padding` pixels before a crop
    of its own size is taken; `gamma`, `contrast` and `brightness` change an image in [0, 1]; `colour` scales each
    channel on its own, as another lamp, stain or camera would. All changes of place are one resampling: "bilinear"
    blurs, so that a model trains on images that are softer than those it is asked about; "bicubic" keeps them nearly
    as sharp.

    Shapes:
        - input and output: (B, C, H, W)
    """

    flip: bool = True
    rotation: float = 15.0
    scale: float = 0.1
    shear: float = 0.05
    shift: float = 0.03
    padding: int = 0
    gamma: float = 0.25
    contrast: float = 0.15
    brightness: float = 0.05
    colour: float = 0.0
    resampling: Resampling = "bilinear"

    def __call__(self, image: Tensor, generator: Generator) -> Tensor:
        return self.with_mask(image, None, generator)[0]

    def with_mask(self, image: Tensor, mask: Tensor | None, generator: Generator) -> tuple[Tensor, Tensor | None]:
        """The changed images, and masks (B, C', h, w) of them that were moved alike."""

        def draw(*shape: int) -> Tensor:  # uniform in [-1, 1]
            return torch.rand(len(image), *shape, generator=generator).to(image.device) * 2 - 1

        mirror = torch.where(draw() < 0, -1.0, 1.0) if self.flip else torch.ones(len(image), device=image.device)
        angle = draw() * math.radians(self.rotation)
        size = 1 + draw() * self.scale
        matrix = image.new_zeros(len(image), 2, 3)
        matrix[:, 0, 0] = angle.cos() * size * mirror
        matrix[:, 0, 1] = -angle.sin() * size + draw() * self.shear
        matrix[:, 1, 0] = angle.sin() * size * mirror
        matrix[:, 1, 1] = angle.cos() * size
        matrix[:, :, 2] = draw(2) * 2 * self.shift
        if self.padding:
            step = (draw(2) * (self.padding + 0.5)).round().clamp(-self.padding, self.padding)  # whole pixels
            matrix[:, :, 2] += step * 2 / torch.tensor([image.shape[-1], image.shape[-2]], device=image.device)
        grid = F.affine_grid(matrix, list(image.shape), align_corners=False)
        image = F.grid_sample(image, grid, mode=self.resampling, align_corners=False)
        if self.resampling == "bicubic":
            image = image.clamp(0, 1)  # it overshoots at edges
        if mask is not None:
            places = F.affine_grid(matrix, list(mask.shape), align_corners=False)
            mask = F.grid_sample(mask, places, align_corners=False)
        if self.gamma:
            image = image.clamp(min=1e-4) ** torch.exp(draw(1, 1, 1) * self.gamma)
        if self.colour:
            image = image * (1 + draw(image.shape[1], 1, 1) * self.colour)
        return image * (1 + draw(1, 1, 1) * self.contrast) + draw(1, 1, 1) * self.brightness, mask
