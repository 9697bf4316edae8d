"""The weights that a training starts from (a run's, a model folder's or shipped ones), and what of them was taken."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from parsecaps.data.leaks import FINGERPRINTS_FILE, read_fingerprints
from parsecaps.files.hub_download import is_hub_name
from parsecaps.model import BUNDLE_FILE, Model, find_model_folder
from parsecaps.models import PretrainedModel, all_models, find_model, load_model
from parsecaps.models.pretrained import CONFIG_FILE, tensors_digest
from parsecaps.models.transfer import Transfer, transfer, trunk_settings
from parsecaps.nn.trunk import NO_TRUNK
from parsecaps.run import Origin

IMAGENET = "imagenet"
_SHIPPED = files("parsecaps") / "weights"
_PARTS = {
    "classes": "the head of the classes",
    "concepts": "the head of the concepts",
    "decoder": "the decoder",
    "initial": "the initial block",
}
_LAYERS = "the capsule layers"


@dataclass(frozen=True)
class StartingWeights:
    """A network's tensors, its kind and settings, the names it knows, and the images it learned from.

    `fingerprints` (N, 32) uint8 are of all its images if `whole`, else of some; `name` is as the user gave it.
    """

    name: str
    kind: str
    tensors: dict[str, Tensor]
    settings: dict[str, Any]
    classes: Sequence[str] = ()
    concepts: Sequence[str] = ()
    fingerprints: np.ndarray = field(default_factory=lambda: np.zeros((0, 32), np.uint8))
    whole: bool = False

    @property
    def short_name(self) -> str:
        """The name without its place: that of the run around a model, or of the folder."""
        path = Path(self.name)
        return path.parent.name if path.name == "bundle" and path.parent.name else path.name

    @property
    def known(self) -> bool:
        """Whether all of the images are known; ImageNet is known to hold no medical ones."""
        return self.whole or (self.name == IMAGENET and not len(self.fingerprints))

    @property
    def digest(self) -> str:
        """The weights in short."""
        return tensors_digest(self.tensors)


def read_starting_weights(name: str, kind: str) -> StartingWeights:
    """Weights for a network of a kind; refused if they are for another kind, or damaged."""
    if name == IMAGENET and not Path(name).exists():
        return _read_imagenet(name, kind)
    folder = _find(name)
    network: PretrainedModel
    if (folder / BUNDLE_FILE).is_file():
        model = Model.load(folder, "cpu")
        network, classes, concepts = model.network, model.classes, model.concepts
    else:
        network, classes, concepts = load_model(folder), (), ()
    there = type(network).__name__
    if there != kind:
        raise ValueError(f"{name} holds a {there}, but model.kind is {kind}; add --set model.kind={there}")
    path = folder / FINGERPRINTS_FILE
    known = read_fingerprints(path) if path.is_file() else ()
    return StartingWeights(name, kind, network.state_dict(), trunk_settings(network.config), classes, concepts, *known)


def shipped_weights() -> list[str]:
    """The names of the weights that come with the package.

    >>> "imagenet" in shipped_weights()
    True
    """
    own = [each.name for each in _SHIPPED.iterdir() if each.is_dir()] if _SHIPPED.is_dir() else []
    return sorted([*own, IMAGENET])


def take_weights(
    model: PretrainedModel, weights: StartingWeights, classes: Sequence[str], concepts: Sequence[str]
) -> Origin:
    """Copy all weights that fit into a model; refused if none does."""
    trunk, own = (config.get("trunk", NO_TRUNK) for config in (weights.settings, model.config))
    if trunk != own and weights.kind == "ParseCaps":
        raise ValueError(
            f"{weights.name} has the trunk {trunk}, but this network has {own}; set model.settings.trunk={trunk}, or "
            "leave out model.preset and model.settings"
        )
    there = {"classes": weights.classes, "concepts": weights.concepts}
    moved = transfer(model, weights.tensors, there, {"classes": classes, "concepts": concepts})
    parameters = {name: parameter.numel() for name, parameter in model.named_parameters()}
    taken = [name for name in (*moved.taken, *moved.adapted) if name in parameters]
    adapted = Counter(moved.adapted.values())
    if not taken:
        own = f"this {type(model).__name__} has other layers"
        raise ValueError(f"no tensor of {weights.name} fits: {own}; leave out model.settings and model.preset")
    return Origin(
        weights=weights.name,
        digest=weights.digest,
        images=len(weights.fingerprints) if weights.whole else None,
        taken=sum(parameters[name] for name in taken),
        parameters=sum(parameters.values()),
        adapted=[f"{how} ({count} tensor{'s' * (count > 1)})" for how, count in adapted.items()],
        new=_new(moved, classes, concepts),
        layers=taken,
    )


def describe_origin(origin: Origin) -> list[str]:
    """Two lines: layers loaded, layers initialised."""
    changes = f", of which adapted: {'; '.join(origin.adapted)}" if origin.adapted else ""
    return [
        f"start: {origin.taken:,} of {origin.parameters:,} weights are those of {origin.weights}{changes}",
        f"start: anew: {'; '.join(origin.new) or 'nothing'}",
    ]


def _new(moved: Transfer, classes: Sequence[str], concepts: Sequence[str]) -> list[str]:
    names = {"classes": classes, "concepts": concepts}
    found: Counter[str] = Counter(name.partition(".")[0] for name in moved.new)
    kept = {name.partition(".")[0] for name in (*moved.taken, *moved.adapted)}
    lines = []
    for part, count in found.items():
        what = _PARTS.get(part, _LAYERS)
        about = f" ({', '.join(names[part])})" if part in names and part not in kept else ""
        lines.append(f"{count} tensors of {what}" if part in kept else f"{what}{about}")
    return list(dict.fromkeys(lines))


def _find(name: str) -> Path:
    """The folder of a model, by its path, that of its run, its name on the hub or among those of the package."""
    folder, shipped = Path(name), shipped_weights()
    if not is_hub_name(name) and not folder.exists():
        if name in shipped:
            return Path(str(_SHIPPED / name))
        known = ", ".join(shipped)
        raise FileNotFoundError(f"{name} is not there; start from a run, a model folder, or one of {known}")
    return folder if (folder / CONFIG_FILE).is_file() else find_model_folder(name)


def _read_imagenet(name: str, kind: str) -> StartingWeights:
    read = find_model(kind).imagenet_weights
    if read is None:
        made_for = next(each for each, model in all_models().items() if model.imagenet_weights is not None)
        reason = f"{name} has weights for {made_for}, but model.kind is {kind}"
        trunk = " or, for ParseCaps on a trunk that learned from it, model.settings.trunk=lite0 in place of --start"
        raise ValueError(f"{reason}; add --set model.kind={made_for}{trunk if kind == 'ParseCaps' else ''}")
    return StartingWeights(name, kind, read(), {})
