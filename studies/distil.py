"""Teach the tree what a network with ImageNet weights sees, level by level, on medical images without their labels.

    python -m studies.distil DATA --sets bus lidc wbcatt --out runs/distil/no-isic-cemri
    parsecaps train MY-IMAGES --start runs/distil/no-isic-cemri

`DATA` is a folder with `isic`, `bus`, `lidc`, `cemri` and `wbcatt`. The teacher is EfficientNet-Lite0. On images of
112 px its features lie on grids of 28, 14, 7 and 4, as the capsules of `medical` do. So each level of the tree learns,
by a linear map that is thrown away afterwards, to tell the teacher's features at its own places (FitNets, Romero et al.
2015). Both see the same randomly changed image. What the sources call test, and a fifth of the patients of the others,
takes no part.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.data.batches import Augmentation, Batches
from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet, join
from parsecaps.data.leaks import FINGERPRINTS_FILE, write_fingerprints
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.data.splits import hold_out, official
from parsecaps.models import ParseCaps
from parsecaps.rivals import EfficientNetLite0
from parsecaps.rivals.efficientnet import imagenet_weights
from parsecaps.training.build import pixel_statistics
from parsecaps.training.optimizer import Schedule

PLACES = {
    "isic": ("isic/manifest.csv", "CC0"),
    "bus": ("bus/manifest.csv", "free use with citation of Gomez-Flores et al."),
    "lidc": ("lidc/manifest.csv", "CC BY 3.0"),
    "cemri": ("cemri", "CC BY 4.0"),
    "wbcatt": ("wbcatt", "labels MIT, images CC BY 4.0"),
}
SIDE = 112
STAGES = (2, 4, 10, 15)  # the teacher's last blocks on the grids of 28, 14, 7 and 4
_AUGMENTATION = Augmentation(rotation=180.0, scale=0.3, shear=0.1, shift=0.05, colour=0.2, resampling="bicubic")
_STATISTICS = 12  # batches that the scale of the teacher's features is measured on
_FARTHEST = 4.0  # standard deviations of a feature that count


class Teacher(nn.Module):
    """The features of EfficientNet-Lite0 at four stages, each with mean 0 and standard deviation 1 over some batches.

    Shapes:
        - input: images (B, 3, 112, 112) in [0, 1]
        - output: four tensors (B, places, channels)
    """

    def __init__(self) -> None:
        super().__init__()
        self.network = EfficientNetLite0(num_classes=2, in_channels=3, image_size=SIDE).eval()
        self.network.load_state_dict(imagenet_weights(), strict=False)
        self.scales: list[tuple[Tensor, Tensor]] = []

    @torch.no_grad()
    def forward(self, image: Tensor) -> list[Tensor]:
        # each image by its own mean and spread: the sets differ far more than photographs do
        spread = image.std((2, 3), keepdim=True).clamp(min=0.05)
        x = self.network.stem((image - image.mean((2, 3), keepdim=True)) / spread)
        found = []
        for number, block in enumerate(self.network.blocks):
            x = block(x)
            if number in STAGES:
                found.append(x.flatten(2).mT)
        if not self.scales:
            return found
        return [
            ((each - mean) / std).clamp(-_FARTHEST, _FARTHEST)
            for each, (mean, std) in zip(found, self.scales, strict=True)
        ]

    def measure(self, images: Iterator[Tensor]) -> None:
        """Take the mean and standard deviation of each channel from some batches."""
        stages = zip(*(self(image) for image in images), strict=True)
        flat = [torch.cat(stage).flatten(0, 1) for stage in stages]
        self.scales = [(each.mean(0), each.std(0).clamp(min=1e-3)) for each in flat]


class Student(nn.Module):
    """A ParseCaps with a linear map from each level (initial block, block 1, 2 and 3) to the teacher's features there.

    Shapes:
        - input: images (B, 3, 112, 112) in [0, 1]
        - output: four tensors (B, places, channels)
    """

    def __init__(self, model: ParseCaps, channels: list[int]) -> None:
        super().__init__()
        self.model = model
        dims = [model.config["stem_channels"][-1], *model.config["dims"][1:]]
        self.readers = nn.ModuleList(nn.Linear(dim, count) for dim, count in zip(dims, channels, strict=True))

    def forward(self, image: Tensor) -> list[Tensor]:
        features = self.model.initial(self.model.standardise(image))
        levels, u = [features.flatten(2).mT], self.model.primary(features)
        for block in self.model.blocks:
            u = block(u)
            levels.append(u)
        return [reader(level.float()) for reader, level in zip(self.readers, levels, strict=True)]


@dataclass(frozen=True)
class Images:
    """The images of some sets that are learned from, by name, and prepared."""

    names: list[str]
    data: DataSet
    prepared: PreparedImages


def open_images(folder: Path, names: list[str]) -> Images:
    """The training images of these sets."""
    sets = []
    for name in names:
        whole = open_data(folder / PLACES[name][0])
        sets.append(whole.subset(learned_rows(whole)))
    data = join(names, sets)
    return Images(names, data, prepare_all(data, Preparation(size=SIDE, channels=3)))


def learned_rows(data: DataSet) -> list[int]:
    """The cases to learn from: those of the official training part, or all but a fifth of the patients."""
    named = any(case.split == "train" for case in data.cases)
    division = official(data, val=0.0) if named else hold_out(data, val=0.0, test=0.2)
    return [i for i, part in enumerate(division) if part == "train"]


def distil(
    images: Images, *, epochs: int, seed: int = 0, bf16: bool = False
) -> Iterator[tuple[ParseCaps, list[float]]]:
    """The tree after each epoch, with the mean loss of each level."""
    rows = list(range(len(images.data)))
    batches = Batches(
        CaseSet(images.data, images.prepared, rows), batch_size=32, shuffle=True, augmentation=_AUGMENTATION, seed=seed
    )
    teacher, some = Teacher(), batches.epoch(epochs)
    teacher.measure(batch.image for batch, _ in zip(some, range(_STATISTICS), strict=False))
    torch.manual_seed(seed)
    model = ParseCaps.from_preset(
        "medical", num_classes=1, num_concepts=0, in_channels=3, image_size=SIDE, whole_values=True, dropout=0.0
    )
    model.standardise.use(*pixel_statistics(images.prepared.images, rows))
    student = Student(model, [len(mean) for mean, _ in teacher.scales])
    schedule = Schedule(epochs=epochs, warm_up_epochs=1)
    optimizer, step = schedule.build_optimizer(student), 0
    for epoch in range(epochs):
        sums = torch.zeros(len(STAGES))
        student.train()
        for batch in batches.epoch(epoch):
            for group in optimizer.param_groups:
                group["lr"] = schedule.rate(step, len(batches))
            wanted = teacher(batch.image)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
                told = student(batch.image)
            losses = torch.stack([F.smooth_l1_loss(a.float(), b) for a, b in zip(told, wanted, strict=True)])
            optimizer.zero_grad()
            losses.sum().backward()
            nn.utils.clip_grad_norm_(student.parameters(), schedule.max_grad_norm)
            optimizer.step()
            sums, step = sums + losses.detach(), step + 1
        yield model, (sums / len(batches)).tolist()


def save(model: ParseCaps, images: Images, losses: list[float], epochs: int, folder: Path) -> None:
    """A model folder with the fingerprints of what it learned from, and its card."""
    model.save_pretrained(folder)
    write_fingerprints(folder / FINGERPRINTS_FILE, np.asarray(images.prepared.fingerprints.bits))
    rows = [
        f"| {name} | {PLACES[name][1]} | {len(data):,} | {len({case.patient for case in data.cases}):,} |"
        for name, (_, data) in zip(images.names, images.data.members, strict=True)
    ]
    told = ", ".join(f"{loss:.3f}" for loss in losses)
    text = [
        "# Weights to start from",
        "",
        f"A ParseCaps trunk ({SIDE} px, colour) that learned to tell the features of EfficientNet-Lite0 with ImageNet",
        "weights (Apache 2.0), level by level, from medical images without their labels. It has no heads: start a",
        "training from it, `parsecaps train MY-IMAGES --start WEIGHTS`. For research and teaching; this is not a",
        "medical device.",
        "",
        "| data set | licence | images | patients |",
        "| --- | --- | ---: | ---: |",
        *rows,
        "",
        f"{epochs} epochs. Loss of the four levels (smooth L1 of features with standard deviation 1): {told}.",
        f"Made by `python -m studies.distil DATA --sets {' '.join(images.names)} --epochs {epochs} --out WEIGHTS`.",
        "",
    ]
    (folder / "README.md").write_text("\n".join(text), encoding="utf-8")


def main() -> None:
    """Distil into a folder of weights, saved after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=PLACES, default=list(PLACES))
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--bf16", action="store_true", help="for processors that have it: less time")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    images, started = open_images(options.data, options.sets), time.monotonic()
    print(f"{len(images.data):,} images")
    for epoch, (model, losses) in enumerate(distil(images, epochs=options.epochs, bf16=options.bf16), 1):
        save(model, images, losses, options.epochs, options.out)
        minutes = (time.monotonic() - started) / 60
        print(f"epoch {epoch}: {', '.join(f'{loss:.3f}' for loss in losses)}; {minutes:.1f} minutes", flush=True)


if __name__ == "__main__":
    main()
