"""From prepared images to batches, changed at random and made ahead of the model that waits for them."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from parsecaps.config import AugmentationSection
from parsecaps.types import Batch, Mixed

if TYPE_CHECKING:
    from parsecaps.data.case_set import CaseSet

T = TypeVar("T")
_AHEAD = 2  # batches that are kept ready


class Augmentation(AugmentationSection):
    """Random flip, crop, affine change and change of intensity for each image, by the settings without `auto`.

    Shapes:
        - input and output: (B, C, H, W)
    """

    flip: bool = True
    rotation: float = 15.0
    colour: float = 0.0
    resampling: Literal["bilinear", "bicubic"] = "bilinear"

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


@dataclass(eq=False, repr=False)
class Batches:
    """Cases, epoch by epoch, as batches of images in [0, 1]; iterating gives the first epoch.

    Order and augmentation depend on the seed, the epoch and the number of the batch alone, so an epoch can be resumed.
    With `weights`, one per row, an epoch draws its rows with replacement. `batch_size` is that of all processes
    together. With several `views`, a batch holds its rows that many times, each time augmented anew. With `mixup`,
    every image is mixed with another one of its batch, its own share of at least a half being drawn for each batch from
    Beta(mixup, mixup) (Zhang et al., 2018), the same for all views. `masks` of all cases (`lesion_masks`) are moved
    like their images. A thread of its own keeps a few batches ready.

    Shapes of a batch:
        - B: images of the batch, times `views`
        - image: (B, channels, size, size) float32; label: (B,) int64; concepts: (B, m), None without concepts
        - mask: (B, 1, side, side) float32, None without masks
    """

    cases: "CaseSet"
    _: KW_ONLY
    batch_size: int
    seed: int = 0
    shuffle: bool = False
    weights: Sequence[float] | None = None
    augmentation: Augmentation | None = None
    views: int = 1
    mixup: float = 0.0
    masks: np.ndarray | None = None
    process: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.batch_size % self.processes:
            wanted = f"a positive multiple of the {self.processes} processes"
            raise ValueError(f"batch_size is {self.batch_size}; give {wanted}")
        self.images, data = self.cases.prepared.images, self.cases.data
        self.rows = np.asarray(self.cases.rows, dtype=np.int64)
        self.label = torch.tensor([case.label for case in data.cases], dtype=torch.long)
        concepts = torch.tensor([case.concepts for case in data.cases], dtype=torch.float32)
        self.concepts = concepts if data.concepts else None

    def __len__(self) -> int:
        """Batches per epoch; when shuffled, without the last one if it is not full."""
        whole, rest = divmod(len(self.rows), self.batch_size)
        return whole if self.shuffle and whole else whole + (rest > 0)

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch(0)

    def epoch(self, number: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from the batch `start` on."""
        order, own = self._order(number), slice(self.process, None, self.processes)
        return prefetch((self._batch(self._slice(order, i)[own], number, i) for i in range(start, len(self))), _AHEAD)

    def plain(self) -> "Batches":
        """The same rows, each once, in their order, not augmented, and all of them in this process."""
        return Batches(self.cases, batch_size=self.batch_size, seed=self.seed, masks=self.masks)

    def rows_in(self, number: int, i: int) -> list[int]:
        """The rows of the data set in batch `i` of an epoch, those of all processes."""
        return [int(row) for row in self._slice(self._order(number), i)]

    def _order(self, number: int) -> np.ndarray:
        if not self.shuffle:
            return self.rows
        random = np.random.default_rng([self.seed, number])
        if self.weights is None:
            return random.permutation(self.rows)
        share = np.asarray(self.weights, dtype=np.float64) / np.sum(self.weights)
        return random.choice(self.rows, len(self.rows), p=share)

    def _slice(self, order: np.ndarray, i: int) -> np.ndarray:
        return order[i * self.batch_size : (i + 1) * self.batch_size]

    def _batch(self, rows: np.ndarray, epoch: int, i: int) -> Batch:
        rows = np.tile(rows, self.views)
        image = torch.from_numpy(self.images[rows]).float() / 255
        mask = None if self.masks is None else torch.from_numpy(self.masks[rows]).float().unsqueeze(1) / 255
        if self.augmentation is not None:
            seed = np.random.SeedSequence([self.seed, epoch, i, self.process]).generate_state(1, np.uint64)
            generator = torch.Generator().manual_seed(int(seed[0] >> np.uint64(1)))
            image, mask = self.augmentation.with_mask(image, mask, generator)
        index = torch.from_numpy(rows)
        concepts = None if self.concepts is None else self.concepts[index]
        batch = Batch(image, self.label[index], concepts, self.views, mask=mask)
        if self.mixup:
            batch = mix(batch, self.mixup, np.random.default_rng([self.seed, epoch, i, self.process]))
        return batch


def mix(batch: Batch, mixup: float, random: np.random.Generator) -> Batch:
    """Mix every image of a batch, and its labels, with another one; unknown of either is unknown of the mixture.

    Two images of which only one has a known class are not mixed.
    """
    share = float(random.beta(mixup, mixup))
    share = max(share, 1 - share)
    count = len(batch.label) // batch.views
    partner = random.permutation(count)
    other = torch.from_numpy(np.concatenate([partner + view * count for view in range(batch.views)]))
    alone = (batch.label < 0) != (batch.label[other] < 0)
    other = torch.where(alone, torch.arange(len(other)), other)

    def blend(x: Tensor) -> Tensor:
        return share * x + (1 - share) * x[other]

    blended: dict[str, Any] = {
        name: blend(x) for name in ("image", "concepts", "mask") if (x := getattr(batch, name)) is not None
    }
    return batch._replace(**blended, mixed=Mixed(batch.label[other], share))


def prefetch(source: Iterator[T], count: int) -> Iterator[T]:
    """What a source yields, made by a thread that runs up to `count` ahead; its errors come out where they belong.

    >>> list(prefetch(iter("abc"), 2))
    ['a', 'b', 'c']
    """
    threads, end = torch.get_num_threads(), cast(Any, object())
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_compute_alone).result()
        torch.set_num_threads(threads)  # what the other thread chose for itself is not for threads to come
        ready = deque(pool.submit(next, source, end) for _ in range(max(1, count)))
        try:
            while (item := ready.popleft().result()) is not end:
                ready.append(pool.submit(next, source, end))
                yield item
        finally:
            pool.shutdown(cancel_futures=True)


def _compute_alone() -> None:
    """With more threads than cores, the OpenMP runtime lets all of them sleep after each operation: half the speed."""
    torch.get_num_threads()  # a thread takes the number of the others when it first asks, so let it ask before
    torch.set_num_threads(1)
