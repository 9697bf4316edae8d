"""A strict tree: each child keeps its single strongest parent (the paper's first stated limitation, Sec. 5).

Parents that lose children are no longer what the batch normalisations of the network have learned to expect, and that
is most of what strictness costs: with means and variances taken anew from training images, about six
tenths of the loss are won back (`docs/explain.md`). `parsecaps remember` takes them, and they lie beside the model.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.nn.couplings import Coupling, replace_couplings
from parsecaps.nn.normalisation import CapsuleBatchNorm

STATISTICS_FILE = "strict.safetensors"
STATISTICS_CASES = 256
_KEPT = ("running_mean", "running_var")


def strict_tree(module: Coupling, c: Tensor) -> Tensor:
    """The rule, for `replace_couplings`, by which each child keeps the parent that chose it most, over all heads.

    What is left sums to 1 again: over a parent's children, or over a child's parents with `over="parents"`. A parent
    that no child keeps in some head gets nothing in it. Where the grid stays as it is, a capsule already stays at its
    own place, and that is its parent. Couplings between instantiation parameters, as those of the axial branch, stay as
    they are; its mean children are each parent's own.

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
        for name, value in (statistics or {}).items():
            buffers[name].copy_(value)
        with replace_couplings(model, strict_tree):
            yield
    finally:
        for name, value in before.items():
            buffers[name].copy_(value)


@torch.no_grad()
def strict_statistics(model: nn.Module, images: Iterable[Tensor]) -> dict[str, Tensor]:
    """What the batch normalisations of capsules see in the strict network: their means and variances, by buffer.

    The mean over batches (B, channels, size, size) of training images. The model itself is left as it was; one with
    layer normalisation has none of these, and needs none.
    """
    norms = {name: module for name, module in model.named_modules() if isinstance(module, CapsuleBatchNorm)}
    was_training = model.training
    model.eval()
    before = {
        norm: (norm.momentum, {key: value.clone() for key, value in norm.state_dict().items()})
        for norm in norms.values()
    }
    try:
        for norm in norms.values():
            norm.train()
            norm.reset_running_stats()
            norm.momentum = None  # a plain mean
        with replace_couplings(model, strict_tree):
            for batch in images:
                model(batch)
        return {f"{name}.{key}": getattr(norm, key).clone() for name, norm in norms.items() for key in _KEPT}
    finally:
        for norm, (momentum, state) in before.items():
            norm.momentum = momentum
            norm.load_state_dict(state)
        model.train(was_training)


def save_statistics(folder: str | Path, statistics: Mapping[str, Tensor], digest: str) -> None:
    """Write what `strict_statistics` gave beside the model with this digest of its weights."""
    from safetensors.torch import save

    (Path(folder) / STATISTICS_FILE).write_bytes(save(dict(statistics), {"model": digest}))


def load_statistics(folder: str | Path, digest: str) -> dict[str, Tensor] | None:
    """Read what `save_statistics` wrote, None where it did not; those of another model are refused."""
    from safetensors import SafetensorError, safe_open

    path = Path(folder) / STATISTICS_FILE
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            model = (file.metadata() or {}).get("model")
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read ({error}); run parsecaps remember again") from None
    if model != digest:
        raise ValueError(f"{path} is of another model than the one beside it; run parsecaps remember again")
    return found
