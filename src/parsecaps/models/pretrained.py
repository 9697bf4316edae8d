"""The base class of all models: settings, standardised pixels, and folders that are read without running code."""

import hashlib
import json
import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import Parameter, Signature, signature
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, get_args

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from parsecaps.config import LARGEST_IMAGE, SMALLEST_IMAGE
from parsecaps.files.untrusted import checked, read_document, shown
from parsecaps.functional.squash import is_exporting
from parsecaps.nn.capsules import CapsuleGrid, InitialBlock
from parsecaps.nn.heads import ConceptDecision, LinearReasoning
from parsecaps.nn.routes import RouteForm, RouteLayer, RouteTree
from parsecaps.nn.routing import Way
from parsecaps.nn.trunk import TrunkBlock
from parsecaps.types import Output


class Standardise(nn.Module):
    """`(image - mean) / std` with the mean and standard deviation of the training images per channel; first 0 and 1.

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
_AGAIN = "save the model again"
_SLACK, _TIMES = 2**24, 8  # numbers that building a model may take beside its weights, and times its weights
_NEW = {torch.empty, torch.zeros, torch.ones, torch.full, torch.randn, torch.rand, torch.eye, torch.arange}

Head = Literal["parallel", "bottleneck"]
Presets = dict[str, dict[str, Any]]
SIZES = {  # the settings of every model: the least that each may be, and what to give in place of less
    "num_classes": (1, "give at least 1"),
    "num_concepts": (0, "give 0 (no concepts) or more"),
    "in_channels": (1, "give 1 (grey), 3 (colour) or another positive number"),
    "image_size": (SMALLEST_IMAGE, f"give at least {SMALLEST_IMAGE}, or enlarge the images"),
}


class PretrainedModel(nn.Module, ABC):
    """A classifier that knows how it was built and can be written to a folder and read back.

    The settings are `num_classes`, `num_concepts`, `in_channels`, `image_size`, and the keyword arguments of
    `build_layers`; all are given by name, checked and kept in `config`. A folder has them in `config.json`, beside
    `model.safetensors`; reading it runs no code from it. Images have values in [0, 1].

    A subclass says what kind of model it is. `has_capsules`: a capsule for each concept, and a decoder behind them, not
    presences alone. `losses` are the weights of the terms that it was published with. `names_concepts`: it can learn
    concepts; `needs_concepts`: it must. `without_decoder` is the advice if a picture is asked of a model without a
    decoder. Above `largest_image` it would have too many weights. `intervention_probability`: how often training
    corrects a concept before the loss of the classes.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output`
    """

    presets: ClassVar[Presets] = {}
    has_capsules: ClassVar[bool] = False
    names_concepts: ClassVar[bool] = True
    needs_concepts: ClassVar[bool] = False
    without_decoder: ClassVar[str] = "call it without reconstruct"
    largest_image: ClassVar[int] = LARGEST_IMAGE
    losses: ClassVar[Mapping[str, float]] = {
        "classification": 1.0,
        "presentation": 0.5,
        "triplet": 0.1,
        "reconstruction": 0.0005,
        "intervention": 1.0,
        "diversity": 0.3,
    }

    imagenet_weights: ClassVar[Callable[[], dict[str, Tensor]] | None] = None
    num_classes: int
    num_concepts: int = 0
    in_channels: int = 1
    image_size: int = 224
    intervention_probability: float = 0.0

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        bound = self.signature().bind(**settings)
        bound.apply_defaults()
        given = bound.kwargs
        self.config = {name: _plain(value) for name, value in given.items()}
        for name in SIZES:
            setattr(self, name, given.pop(name))
        check_sizes(**{name: getattr(self, name) for name in SIZES})
        kind = type(self).__name__
        if self.num_concepts and not self.names_concepts:
            raise ValueError(f"{kind} has no place for concepts, and num_concepts is {self.num_concepts}; give 0")
        if not self.num_concepts and self.needs_concepts:
            raise ValueError(f"{kind} decides by concepts, and num_concepts is 0; give the number of those to learn")
        if self.image_size > self.largest_image:
            limit = f"{kind} has too many weights for larger images; give at most {self.largest_image}"
            raise ValueError(f"image_size is {self.image_size}, but {limit}")
        self.standardise = Standardise(self.in_channels)
        self.decoder: nn.Module | None = None
        self.build_layers(**given)

    @abstractmethod
    def build_layers(self, *args: Any, **settings: Any) -> None:
        """Build the layers of the network, by settings of its own: keyword arguments with a default."""

    def forward(self, image: Tensor, reconstruct: bool = False) -> Output:
        check_image(image, in_channels=self.in_channels, image_size=self.image_size)
        if reconstruct:
            self.check_decoder()
        return self.classify(self.standardise(image), reconstruct)

    @abstractmethod
    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        """`forward` on an image that has been checked and standardised."""

    def check_decoder(self) -> None:
        """Refuse to reconstruct without a decoder."""
        if self.decoder is None:
            raise ValueError(f"{type(self).__name__} has no decoder; {self.without_decoder}")

    @property
    def class_children(self) -> tuple[CapsuleGrid, ...]:
        """Where the capsules lie that the model's last `Way` routes to classes or attributes, in order; else empty."""
        return ()

    @property
    def route_form(self) -> RouteForm | None:
        """What routes it has: a tree of cells, one layer to the classes, or None."""
        return "layer" if self.class_children and any(isinstance(part, Way) for part in self.modules()) else None

    def routes(self, image: Tensor) -> RouteTree | RouteLayer | None:
        """Run on images (B, in_channels, image_size, image_size) and keep the routes, if there are any."""
        return None if self.route_form is None else RouteLayer.record(self, image, self.class_children)

    @property
    def evidence(self) -> InitialBlock | TrunkBlock | None:
        """The part whose output alone decides, if another part chooses among it; else None."""
        return None

    def reasoning(self, output: Output | None = None) -> LinearReasoning | None:
        """How the logits of an output (or, without one, of every image) follow from its concepts alone, if they do."""
        return None if self._decision is None else self._decision.reasoning(output)

    def start(self, labels: Tensor, concepts: Tensor) -> None:
        """Load the weights of trunks, and initialise others from the training cases where a model needs that.

        Shapes:
            - labels: (N,) int64, -1 = unknown; concepts: (N, m), 1, 0 or NaN = unknown
        """
        self.load_trunks()

    def load_trunks(self) -> None:
        """Take the weights of every trunk in it that come with the package."""
        for part in self.modules():
            if isinstance(part, TrunkBlock):
                part.load_weights()

    def decide(self, output: Output, presence: Tensor) -> Tensor:
        """The logits (B, num_classes) of an output if these were its presences (B, m)."""
        head = self._decision
        if head is None:
            raise ValueError(f"{type(self).__name__} does not decide by its concepts alone")
        return head.decide(output, presence)

    @property
    def _decision(self) -> ConceptDecision | None:
        return next((part for part in self.children() if isinstance(part, ConceptDecision)), None)

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
    def signature(cls) -> Signature:
        """The settings with their kinds and defaults."""
        sizes = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(cls, name, Parameter.empty), annotation=int)
            for name in SIZES
        ]
        _, *own = signature(cls.build_layers).parameters.values()
        return Signature([*sizes, *own])

    @classmethod
    def settings(cls) -> dict[str, Any]:
        """The names that `from_config` knows, each with the kind of its value."""
        named = cls.signature().parameters.values()
        return {each.name: each.annotation for each in named if each.kind is not Parameter.VAR_KEYWORD}

    def axes(self) -> dict[str, tuple[str, ...]]:
        """The axes of those tensors that know classes, concepts or the top grid."""
        found = {}
        for place, module in self.named_modules():
            for name, axes in getattr(module, "AXES", {}).items():
                head = place.partition(".")[0]
                found[f"{place}.{name}".lstrip(".")] = tuple(head if axis == "outputs" else axis for axis in axes)
        return found

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
        weights = folder / WEIGHTS_FILE
        if not weights.is_file():
            raise FileNotFoundError(f"{weights} is missing; give a folder written by save_pretrained")
        shapes = read_shapes(weights, _AGAIN)
        with within_weights(sum(map(math.prod, shapes.values()))):
            path, kinds = folder / CONFIG_FILE, cls.settings()
            for name, value in stored["config"].items():
                if name in kinds:
                    checked(kinds[name], value, f"{path}: {name}", _AGAIN, strict=True)
            try:
                model = cls.from_config(stored["config"])
            except Exception as error:  # whatever numbers that fit no model make of its parts
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                raise ValueError(f"{path}: {reason}; {_AGAIN}") from None
        wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        model.load_state_dict(read_tensors(weights, wanted, _AGAIN))
        return model.eval()


class within_weights(TorchFunctionMode):  # noqa: N801 (a context, as torch.no_grad)
    """Refuses new tensors that are far more than so many weights, as a damaged configuration may ask for.

    A model on the device `meta` would take no memory, but what PyTorch imports for it takes seconds.
    """

    def __init__(self, weights: int) -> None:
        super().__init__()
        self.values = _SLACK + _TIMES * weights

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _NEW:
            sizes = [args[0]] * 2 if func is torch.eye else args or (kwargs or {}).get("size", ())
            self.values -= math.prod(sizes[0] if isinstance(sizes[0], Sequence) else sizes)
            if self.values < 0:
                raise ValueError("it asks for far more numbers than the weights have")
        return func(*args, **(kwargs or {}))


def read_shapes(path: Path, advice: str) -> dict[str, tuple[int, ...]]:
    """The tensors that a safetensors file has, by its header."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read ({' '.join(str(error).split())}); {advice}") from None


def read_tensors(path: Path, wanted: Mapping[str, tuple[int, ...]], advice: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file, which must be those wanted, by name and shape, and finite."""
    shapes = read_shapes(path, advice)
    for name in sorted(shapes.keys() ^ wanted.keys()):
        what = "has" if name in shapes else "lacks"
        raise ValueError(f"{path} does not fit the model: it {what} {shown(name)}; {advice}")
    for name, shape in wanted.items():
        if shapes[name] != shape:
            there = f"{name} has the shape {shapes[name]}, not {shape}"
            raise ValueError(f"{path} does not fit the model: {there}; {advice}")
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in shapes}
    check_finite(tensors, path, advice)
    return tensors


def check_finite(tensors: Mapping[str, Tensor], path: Path, advice: str) -> None:
    """Refuse weights of which some are NaN or infinite."""
    for name, tensor in tensors.items():
        if not bool(tensor.float().isfinite().all()):
            raise ValueError(f"{path}: {name} has values that are not finite; {advice}")


def read_config(folder: Path) -> dict[str, Any]:
    """The content of a model folder's `config.json`: `model`, its class, and `config`, its arguments."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; give a folder written by save_pretrained")
    stored = read_document(path, _AGAIN)
    model, config = stored.get("model"), stored.get("config")
    if not isinstance(model, str) or not isinstance(config, dict):
        raise ValueError(f"{path} has no 'model' and 'config', a name and its settings; {_AGAIN}")
    return {"model": model, "config": config}


def weights_digest(model: nn.Module) -> str:
    """A hash of the weights, whatever their concepts are called."""
    return tensors_digest(model.state_dict())


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """A hash of named tensors."""
    content = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(tensors.items()):
        content.update(name.encode())
        content.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()


def check_head(head: str, num_concepts: int) -> None:
    """Refuse a head that a model with so many concepts cannot have."""
    if head not in get_args(Head):
        raise ValueError(f"head is {head!r}; choose 'parallel' or 'bottleneck'")
    if head == "bottleneck" and not num_concepts:
        raise ValueError("head='bottleneck' with num_concepts=0 has nothing to decide by; give concepts")


def check_sizes(**given: int) -> None:
    """Refuse sizes from which no model can be built."""
    for name, value in given.items():
        least, advice = SIZES[name]
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}; give a whole number")
        if value < least:
            raise ValueError(f"{name} is {value}; {advice}")
    if given["image_size"] > LARGEST_IMAGE:
        raise ValueError(f"image_size is {given['image_size']}; give at most {LARGEST_IMAGE}")


def check_counts(**given: int | Sequence[int]) -> None:
    """Refuse sizes of layers, or lists of them, that are no positive whole numbers."""
    for name, value in given.items():
        for each in value if isinstance(value, Sequence) else [value]:
            if not isinstance(each, Integral) or isinstance(each, bool) or each < 1:
                raise ValueError(f"{name} is {shown(value)}; give whole numbers from 1")


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
    if not (torch.compiler.is_compiling() or is_exporting()) and not bool(image.sum().isfinite()):
        bad = int((~image.isfinite()).sum())
        if bad:
            raise ValueError(f"image has {bad} pixels that are NaN or infinite; repair or drop these images")


def _plain(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _suggest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(name, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(names)}"
