"""Pixels on the scale that a network learns best on, as part of the network."""

import hashlib
import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from inspect import Parameter, signature
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from parsecaps.types import Output


class Standardise(nn.Module):
    """`(image - mean) / std` with a mean and a standard deviation per channel, which are saved with the weights.

    They are those of the images that a model was trained on; 0 and 1, which changes nothing, until `use` sets them.

    Shapes:
        - input and output: (B, channels, H, W)

    >>> standardise = Standardise(1)
    >>> standardise.use([0.5], [0.25])
    >>> standardise(torch.ones(1, 1, 1, 1)).item()
    2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("std", torch.ones(channels, 1, 1))

    def use(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Set both, one number per channel."""
        self.mean.copy_(torch.tensor(mean).view_as(self.mean))
        self.std.copy_(torch.tensor(std).view_as(self.std))

    def forward(self, image: Tensor) -> Tensor:
        return (image - self.mean) / self.std


CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
SMALLEST_IMAGE = 28

Head = Literal["parallel", "bottleneck"]


class PretrainedModel(nn.Module, ABC):
    """A classifier that knows how it was built and can be written to a folder and read back.

    The folder has `config.json` and `model.safetensors`; reading it runs no code from it. Images come with values in
    [0, 1]; `standardise` brings them to the scale that the model was trained on. `has_capsules`: a model with concepts
    has a capsule for each, and a decoder behind them; one without has presences alone.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output`
    """

    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    has_capsules: ClassVar[bool] = False

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = {name: _plain(value) for name, value in config.items()}
        self.num_classes: int = config["num_classes"]
        self.num_concepts: int = config["num_concepts"]
        self.in_channels: int = config["in_channels"]
        self.image_size: int = config["image_size"]
        check_sizes(
            num_classes=self.num_classes,
            num_concepts=self.num_concepts,
            in_channels=self.in_channels,
            image_size=self.image_size,
        )
        self.standardise = Standardise(self.in_channels)

    def forward(self, image: Tensor, reconstruct: bool = False) -> Output:
        check_image(image, in_channels=self.in_channels, image_size=self.image_size)
        return self.classify(self.standardise(image), reconstruct)

    @abstractmethod
    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        """`forward` on an image that has been checked and standardised."""

    @classmethod
    def from_preset(cls, preset: str, **changes: Any) -> Self:
        """Build a named size of the model, with some numbers changed."""
        if preset not in cls.presets:
            advice = _suggest(preset, cls.presets) if cls.presets else f"{cls.__name__} has none, give its numbers"
            raise ValueError(f"preset {preset!r} is unknown; {advice}")
        return cls.from_config({**cls.presets[preset], **changes})

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build from a dictionary; a name the model does not know is an error."""
        known = cls.settings()
        for name in config:
            if name not in known:
                raise ValueError(f"{cls.__name__} has no setting {name!r}; {_suggest(name, known)}")
        return cls(**config)

    @classmethod
    def settings(cls) -> list[str]:
        """The names that `from_config` knows."""
        parameters = signature(cls).parameters.values()
        return [each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD]

    def summary(self) -> None:
        """Print the layer table: name, n, d, parameters and FLOPs of each layer (the paper's Tab. 4, counted)."""
        from parsecaps.models.summary import format_summary, summarize  # which knows this class

        print(format_summary(summarize(self)))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the weights and the configuration into `folder`, which is made if it is not there."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        save_file(tensors, folder / WEIGHTS_FILE)
        text = json.dumps({"model": type(self).__name__, "config": self.config}, indent=2)
        (folder / CONFIG_FILE).write_text(text + "\n", encoding="utf-8")
        shutil.copymode(folder / CONFIG_FILE, folder / WEIGHTS_FILE)  # others may read it as they may any other file

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Read what `save_pretrained` wrote, ready to predict (in evaluation mode)."""
        folder = Path(folder)
        stored = read_config(folder)
        if stored["model"] != cls.__name__:
            raise ValueError(f"{folder / CONFIG_FILE} holds a {stored['model']}, not a {cls.__name__}; use load_model")
        try:
            model = cls.from_config(stored["config"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"{folder / CONFIG_FILE}: {error}; save the model again") from None
        weights = folder / WEIGHTS_FILE
        if not weights.is_file():
            raise FileNotFoundError(f"{weights} is missing; give a folder written by save_pretrained")
        try:
            model.load_state_dict(load_file(weights))
        except (RuntimeError, SafetensorError) as error:
            reason = str(error).splitlines()[0].rstrip(":")
            raise ValueError(
                f"{weights} does not fit {folder / CONFIG_FILE} ({reason}); save the model again"
            ) from None
        return model.eval()


def read_config(folder: Path) -> dict[str, Any]:
    """The content of a model folder's `config.json`: `model`, its class, and `config`, its arguments."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; give a folder written by save_pretrained")
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}); save the model again") from None
    model, config = (stored.get("model"), stored.get("config")) if isinstance(stored, dict) else (None, None)
    if not isinstance(model, str) or not isinstance(config, dict):
        raise ValueError(f"{path} has no 'model' and 'config', a name and its settings; save the model again")
    return {"model": model, "config": config}


def weights_digest(model: nn.Module) -> str:
    """The weights in short: equal where two models are the same, whatever their concepts are called."""
    content = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(model.state_dict().items()):
        content.update(name.encode())
        content.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()


def check_head(head: str, num_concepts: int) -> None:
    """Refuse a way to the classes that a model with so many concepts does not have."""
    if head not in get_args(Head):
        raise ValueError(f"head is {head!r}; choose 'parallel' or 'bottleneck'")
    if head == "bottleneck" and not num_concepts:
        raise ValueError("head='bottleneck' with num_concepts=0 has nothing to decide by; give concepts")


def check_sizes(*, num_classes: int, num_concepts: int, in_channels: int, image_size: int) -> None:
    """Refuse numbers no model can be built from; each error names the value and what would do."""
    given = {"num_classes": num_classes, "num_concepts": num_concepts, "in_channels": in_channels}
    for name, value in {**given, "image_size": image_size}.items():
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}; give a whole number")
    if num_classes < 1:
        raise ValueError(f"num_classes is {num_classes}; give at least 1")
    if num_concepts < 0:
        raise ValueError(f"num_concepts is {num_concepts}; give 0 (no concepts) or more")
    if in_channels < 1:
        raise ValueError(f"in_channels is {in_channels}; give 1 (grey), 3 (colour) or another positive number")
    if image_size < SMALLEST_IMAGE:
        raise ValueError(f"image_size is {image_size}; give at least {SMALLEST_IMAGE}, or enlarge the images")


def check_image(image: Tensor, *, in_channels: int, image_size: int) -> None:
    """Refuse a batch that is not `(B, in_channels, image_size, image_size)`, float and finite."""
    expected = f"(B, {in_channels}, {image_size}, {image_size})"
    if image.dim() != 4:
        raise ValueError(f"image has shape {tuple(image.shape)}; give {expected}, one batch axis first")
    if image.shape[1] != in_channels:
        fix = f"give {expected}, or build the model with in_channels={image.shape[1]}"
        raise ValueError(f"image has {image.shape[1]} channels; {fix}")
    if image.shape[2:] != (image_size, image_size):
        got = f"{image.shape[2]} x {image.shape[3]}"
        raise ValueError(f"image is {got}; resize it to {image_size} x {image_size}, or set image_size")
    if not image.is_floating_point():
        raise ValueError(f"image has dtype {image.dtype}; convert it with image.float() and scale it")
    if not torch.compiler.is_compiling() and not bool(image.sum().isfinite()):
        bad = int((~image.isfinite()).sum())
        if bad:
            raise ValueError(f"image has {bad} pixels that are NaN or infinite; repair or drop these images")


def _plain(value: Any) -> Any:
    """A setting as JSON has it: whole numbers of any kind as int, sequences as lists of their own."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _suggest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(names)}"
