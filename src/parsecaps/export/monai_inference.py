"""What the configuration of a MONAI bundle of ours names: the images, their preparation, the network, the answers.

The numbers are those of `parsecaps predict`. Nothing here needs MONAI; its `Compose`, `Dataset`, `DataLoader` and
`SimpleInferer` put the pieces together.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.model import Model
from parsecaps.prediction.archive import Table
from parsecaps.prediction.files import ImageFile, find_files
from parsecaps.prediction.predict import NOT_FINITE, Prediction, read_prepared

Item = dict[str, Any]


class MonaiNetwork(nn.Module):
    """The model of a bundle as MONAI wants it, one tensor in and one out; its weights are read from safetensors.

    The calibrated probability of each class comes out; with `concepts` in the call, the presence of each concept after
    these.

    Shapes:
        - image: (B, channels, size, size), prepared, in [0, 1]
        - output: (B, K), or (B, K + m) with `concepts`
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.model = Model.load(folder, "cpu")
        self.network = self.model.network  # a module of this one, so that `.to` and `.eval` reach it
        self.eval()

    def forward(self, image: Tensor, concepts: bool = False) -> Tensor:
        output = self.network(image)
        probabilities = (output.logits / self.model.calibration.temperature).softmax(1)
        if not concepts or output.presence is None:
            return cast(Tensor, probabilities)
        return torch.cat([probabilities, output.presence.clamp(max=1)], 1)  # a length of 1, rounded up


@dataclass(frozen=True)
class PreparedImage:
    """A transform: the image that an item names, read and prepared as the model was trained; or why it cannot be.

    Shapes:
        - image: (channels, size, size) in [0, 1], black where `error` says why there is none
    """

    network: MonaiNetwork

    def __call__(self, item: Item) -> Item:
        image = read_prepared(self.network.model, _file(item))
        if isinstance(image, Tensor):
            return {"image": image, "error": ""}
        preparation = self.network.model.preparation
        return {"image": torch.zeros(preparation.channels, preparation.size, preparation.size), "error": image}


def list_images(dataset_dir: str) -> list[Item]:
    """The images of a file, a folder with all below it, or a manifest, as items of a MONAI data set."""
    return [
        {"image": str(file.path), "frame": file.frame, "patient": file.patient, "error": file.error}
        for file in find_files([dataset_dir])
    ]


def _file(item: Item) -> ImageFile:
    """The image file of an item, of which only `image` must be there."""
    return ImageFile(Path(item["image"]), item.get("frame"), item.get("error", ""), item.get("patient", ""))


@dataclass(frozen=True)
class Evaluator:
    """Asks the network about all images and writes a row for each: a CSV, or by its name a `.jsonl` file.

    `dataloader` is a `DataLoader` over items as `list_images` gives them, in their order.
    """

    dataloader: Any
    network: MonaiNetwork
    inferer: Callable[..., Tensor]
    device: torch.device
    output: str

    def run(self) -> int:
        """Write the rows and return their number."""
        output = Path(self.output)
        if output.suffix not in (".csv", ".jsonl"):
            raise ValueError(f"output_file is {output}; give a .csv or .jsonl file")
        output.parent.mkdir(parents=True, exist_ok=True)
        count, _ = Table(output, self.network.model).write(self.predictions())
        logging.getLogger(__name__).info("%s: %d rows", output, count)
        return count

    def predictions(self) -> Iterator[Prediction]:
        """What the network says of each image, in order; of one that cannot be read, why."""
        model, items = self.network.model, iter(self.dataloader.dataset.data)
        for batch in self.dataloader:
            with torch.no_grad():
                rows = self.inferer(batch["image"].to(self.device), self.network, concepts=True).tolist()
            for error, row in zip(batch["error"], rows, strict=True):
                file = _file(next(items))
                place = str(file.path), file.frame, file.patient
                if error or not np.isfinite(row).all():
                    yield Prediction(*place, error=error or NOT_FINITE)
                    continue
                probabilities = dict(zip(model.classes, row, strict=False))
                label = max(probabilities, key=probabilities.__getitem__)
                yield Prediction(
                    *place, label, probabilities, dict(zip(model.concepts, row[len(probabilities) :], strict=True))
                )
