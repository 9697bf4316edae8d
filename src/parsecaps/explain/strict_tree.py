"""A strict tree: each child keeps its single strongest parent (the paper's first stated limitation, Sec. 5).

Most of what strictness costs is that batch normalisation expects other parents: with means and variances taken anew
from training images, about six tenths of it are won back (`docs/explain.md`). `parsecaps remember` takes them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.files.untrusted import checked, read_document
from parsecaps.files.writing import write_binary
from parsecaps.metrics import Score
from parsecaps.metrics.comparison import Difference
from parsecaps.model import Model
from parsecaps.models.pretrained import read_shapes, read_tensors, weights_digest
from parsecaps.nn.capsules import CapsuleBatchNorm
from parsecaps.nn.couplings import Coupling
from parsecaps.nn.recorder import replace_couplings

STATISTICS_FILE = "strict.safetensors"
STATISTICS_CASES = 256
_KEPT = ("running_mean", "running_var")
AUDIT_FILE = "audit.json"


def strict_tree(module: Coupling, c: Tensor) -> Tensor:
    """The rule, for `replace_couplings`, by which each child keeps the parent that chose it most, over all heads.

    What is left sums to 1 again: over a parent's children, or over a child's parents with `over="parents"`. Where the
    grid stays as it is, a capsule's parent is the one at its own place. Couplings between instantiation parameters, as
    those of the axial branch, stay as they are.

    >>> c = torch.tensor([[[[0.7, 0.3, 0.0], [0.0, 0.4, 0.6]]]])  # one head, two parents, three children
    >>> strict_tree(Coupling(branch="sparse", dim=-1, alpha=1.5), c)
    tensor([[[[1.0000, 0.0000, 0.0000],
              [0.0000, 0.4000, 0.6000]]]])
    """
    if module.between == "parameters":
        return c
    dense = module.dense(c)
    num_parents, num_children = dense.shape[-2:]
    strongest = dense.sum(1).argmax(-2)  # (B, children)
    if num_parents == num_children:
        strongest = torch.arange(num_children, device=c.device).expand_as(strongest)
    only = F.one_hot(strongest, num_parents).mT.unsqueeze(1)  # (B, 1, parents, children)
    left = module.kept(dense * only)
    total = left.sum(module.dim, keepdim=True)
    return left / torch.where(total > 0, total, 1)


@contextmanager
def strict_network(model: nn.Module, statistics: Mapping[str, Tensor] | None = None) -> Iterator[None]:
    """Run the model as a strict tree, with the `statistics` of its batch normalisations if they are given."""
    buffers = dict(model.named_buffers())
    before = {name: buffers[name].clone() for name in statistics or {}}
    try:
        model.load_state_dict(statistics or {}, strict=False)
        with replace_couplings(model, strict_tree):
            yield
    finally:
        model.load_state_dict(before, strict=False)


@torch.no_grad()
def strict_statistics(model: nn.Module, images: Iterable[Tensor]) -> dict[str, Tensor]:
    """Means and variances of capsules' batch normalisations in the strict network, over batches of training images."""
    model = deepcopy(model).eval()
    norms = {name: module for name, module in model.named_modules() if isinstance(module, CapsuleBatchNorm)}
    for norm in norms.values():
        norm.train()
        norm.reset_running_stats()
        norm.momentum = None  # a plain mean
    with replace_couplings(model, strict_tree):
        for batch in images:
            model(batch)
    return {f"{name}.{key}": getattr(norm, key).cpu() for name, norm in norms.items() for key in _KEPT}


def save_statistics(folder: str | Path, statistics: Mapping[str, Tensor], digest: str) -> None:
    """Write what `strict_statistics` gave beside the model with this digest of its weights."""
    from safetensors.torch import save

    with write_binary(Path(folder) / STATISTICS_FILE) as file:
        file.write(save(dict(statistics), {"model": digest}))


def load_statistics(folder: str | Path, model: nn.Module) -> dict[str, Tensor] | None:
    """Read what `save_statistics` wrote, None where it did not; those of another model, or not finite, are refused."""
    path, again = Path(folder) / STATISTICS_FILE, "run parsecaps remember again"
    if not path.is_file():
        return None
    read_shapes(path, again)  # a file that is none is refused here
    with safe_open(path, framework="pt") as file:
        if (file.metadata() or {}).get("model") != weights_digest(model):
            raise ValueError(f"{path} is of another model than the one beside it; {again}")
    norms = [(name, module) for name, module in model.named_modules() if isinstance(module, CapsuleBatchNorm)]
    wanted = {f"{name}.{key}": tuple(getattr(norm, key).shape) for name, norm in norms for key in _KEPT}
    return read_tensors(path, wanted, again)


@dataclass(frozen=True)
class Paired:
    """A score of both networks on the same cases, each with its interval, and their difference with its own."""

    ordinary: Score
    strict: Score
    difference: Difference


@dataclass(frozen=True)
class StrictCost:
    """What the strict network scores beside the ordinary one; None where labels or concepts are not known.

    `auroc` is the mean over the concepts. `adjusted`: it had batch statistics of its own. `model` is the digest of the
    weights that were measured.
    """

    accuracy: Paired | None
    auroc: Paired | None
    adjusted: bool
    model: str

    def sentence(self) -> str:
        parts = [
            f"{name} {each.strict.value:{form}} instead of {each.ordinary.value:{form}}"
            + _interval(each.difference, form)
            for name, each, form in (("accuracy", self.accuracy, ".1%"), ("mean concept AUROC", self.auroc, ".3f"))
            if each is not None and each.difference.difference is not None
        ]
        known = self.accuracy or self.auroc
        if not parts or known is None:
            return "What strictness costs could not be measured: neither labels nor concepts are known."
        return f"Measured on {known.strict.n:,} cases, the strict network has {' and '.join(parts)}."


@dataclass(frozen=True)
class Strictness:
    """That an explanation is of the strict network, beside what the ordinary one says of the same image."""

    diagnosis: str
    probability: float
    seen: tuple[str, ...]
    adjusted: bool
    cost: StrictCost | None

    def sentences(self, diagnosis: str, seen: Sequence[str]) -> list[str]:
        """What a reader must know, beside the `diagnosis` and the concepts that the strict network sees."""
        same = "the same" if diagnosis == self.diagnosis else f"otherwise: {self.diagnosis}"
        ordinary = f"The ordinary network says {same} ({self.probability:.1%})"
        only = [name for name in self.seen if name not in seen]
        extra = [name for name in seen if name not in self.seen]
        if only:
            ordinary += f", and also sees {', '.join(only)}"
        if extra:
            ordinary += f", and does not see {', '.join(extra)}"
        lines = ["Strict tree: each capsule keeps the one parent that chose it most.", f"{ordinary}."]
        if not self.adjusted:
            lines.append(
                "Its batch statistics are those of the ordinary network: `parsecaps remember RUN` adjusts them."
            )
        unknown = "What strictness costs was not measured for it: `parsecaps audit RUN` does."
        return [*lines, unknown if self.cost is None else self.cost.sentence()]


def load_cost(folder: str | Path, model: Model, adjusted: bool) -> StrictCost | None:
    """What an audit of this very model measured, from `audit.json` beside the model or in its run; None without one."""
    for place in (Path(folder), Path(folder).parent):
        try:
            stored = read_document(place / AUDIT_FILE, "audit again")
            cost = checked(StrictCost, stored["strict"], place / AUDIT_FILE, "audit again")
        except (OSError, KeyError, ValueError):  # no audit, an older one, or of a model without routes
            continue
        if cost.model == weights_digest(model.network) and cost.adjusted == adjusted:
            return cost
    return None


def _interval(difference: Difference, form: str) -> str:
    if difference.low is None or difference.high is None:
        return ""
    return f" (95 % interval of the difference {difference.low:+{form}} to {difference.high:+{form}})"
