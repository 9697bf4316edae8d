"""What the choices of a context say by themselves, which no map can show: it shows the evidence that was chosen."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from parsecaps.explain.strict_tree import AUDIT_FILE
from parsecaps.files.untrusted import read_document
from parsecaps.model import Model
from parsecaps.models.pretrained import PretrainedModel, weights_digest
from parsecaps.nn.capsules import InitialBlock
from parsecaps.nn.recorder import hooked
from parsecaps.nn.trunk import TrunkBlock

TESTIMONY = "its own, evidence of the mean image"  # the row of an audit's couplings
_METRIC = "macro_auroc"


@contextmanager
def evidence_of(network: PretrainedModel, image: Tensor) -> Iterator[None]:
    """Let a network with a context see the evidence of one image (1, channels, size, size), and choose by each own."""
    assert network.evidence is not None
    with torch.inference_mode():
        same = network.evidence(network.standardise(image))
    with hooked([network.evidence], lambda module, inputs, maps: same.expand_as(maps)):
        yield


def describe_choice(model: Model) -> str | None:
    """Caption for maps: the receptive field, and how a context chose; None without a trunk or context."""
    initial, by_context = getattr(model.network, "initial", None), model.network.evidence is not None
    if not (isinstance(initial, TrunkBlock) or (by_context and isinstance(initial, InitialBlock))):
        return None
    side = initial.receptive_field
    seen = "the whole image" if side >= model.network.image_size else f"{side} x {side} pixels"
    chosen = f", chosen by looking at everything. {_measured(model)}" if by_context else "."
    return f"Each place shows evidence from {seen}{chosen}"


def _measured(model: Model) -> str:
    for place in () if model.folder is None else (model.folder, model.folder.parent):
        try:
            stored = read_document(place / AUDIT_FILE, "audit again")
            auroc = float(stored["couplings"][TESTIMONY]["differences"][_METRIC]["second"])
            same = stored["strict"]["model"] == weights_digest(model.network)
        except (OSError, KeyError, TypeError, ValueError):  # no audit, or an older one
            continue
        if same:
            return f"By the choices alone, the diagnosis has an AUROC of {auroc:.2f}, where 0.5 says nothing."
    return "What the choices say by themselves was not measured: `parsecaps audit RUN` does."
