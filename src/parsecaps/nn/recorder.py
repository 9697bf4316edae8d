"""The one recorder: what modules of a network did in a forward pass, kept or replaced from outside by hooks."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor, nn

from parsecaps.nn.couplings import Between, Coupling, Rule
from parsecaps.nn.routing import Messages, Way

M = TypeVar("M", bound=nn.Module)


@contextmanager
def hooked(modules: Iterable[M], note: Callable[[M, Any, Any], Any]) -> Iterator[None]:
    """Call `note(module, inputs, output)` after each pass of these modules; a result but None replaces the output."""
    with ExitStack() as handles:
        for module in modules:
            handles.callback(module.register_forward_hook(note).remove)
        yield


@dataclass(frozen=True)
class RecordedCoupling:
    """The couplings of one branch of one cell, for one batch: (B, heads, parents, children)."""

    name: str
    branch: str
    between: Between
    coupling: Tensor


@contextmanager
def record_couplings(model: nn.Module) -> Iterator[list[RecordedCoupling]]:
    """Collect the couplings of each forward pass made inside the `with`, in the order of the cells.

    >>> import torch
    >>> from parsecaps.models import ParseCaps
    >>> model = ParseCaps.from_preset("tiny", num_classes=2).eval()
    >>> with record_couplings(model) as couplings:
    ...     output = model(torch.rand(1, 1, 32, 32))
    >>> couplings[0].name, tuple(couplings[0].coupling.shape)
    ('blocks.0.0', (1, 2, 64, 256))
    """
    recorded: list[RecordedCoupling] = []
    cells = {module: name.split(".routing.")[0] for name, module in model.named_modules()}

    def note(module: Coupling, inputs: Any, c: Tensor) -> None:
        recorded.append(RecordedCoupling(cells[module], module.branch, module.between, module.dense(c).detach()))

    with hooked(_couplings(model), note):
        yield recorded


@contextmanager
def replace_couplings(model: nn.Module, rule: Rule) -> Iterator[None]:
    """Run the model with other couplings: `rule(module, couplings)` gives what the parents use instead."""
    with hooked(_couplings(model), lambda module, inputs, c: rule(module, c)):
        yield


def couplings_of(model: nn.Module) -> list[Coupling]:
    """The modules that compute the couplings of a model, in the order of its layers."""
    return [module for module in model.modules() if isinstance(module, Coupling)]


def _couplings(model: nn.Module) -> list[Coupling]:
    if not (found := couplings_of(model)):
        raise ValueError(f"{type(model).__name__} has no couplings; give a model that routes, such as ParseCaps")
    return found


@dataclass(frozen=True, eq=False)
class RecordedWay:
    """What came to the parents of a cell along one way.

    Shapes:
        - total: (B, n', d'), the sum of the messages before the squash; a graph node that only this way uses
    """

    way: Way
    messages: Messages
    total: Tensor


@contextmanager
def record_ways(model: nn.Module) -> Iterator[list[RecordedWay]]:
    """Collect what passes the ways of a model in each forward pass made inside the `with`, in order."""
    recorded: list[RecordedWay] = []

    def note(way: Way, inputs: tuple[Tensor, Messages], outcome: Tensor) -> Tensor:
        recorded.append(RecordedWay(way, inputs[1], total := outcome.view_as(outcome)))
        return total

    with hooked([module for module in model.modules() if isinstance(module, Way)], note):
        yield recorded


@dataclass(frozen=True, eq=False)
class RecordedStage:
    """One layer in one forward pass, with what passed the ways inside it."""

    module: nn.Module
    given: Tensor
    outcome: Tensor
    ways: tuple[RecordedWay, ...]


@contextmanager
def record_stages(stages: Iterable[nn.Module]) -> Iterator[list[RecordedStage]]:
    """Collect each pass of these layers made inside the `with`, in the order in which they ran.

    >>> import torch
    >>> from parsecaps.models import ParseCaps
    >>> model = ParseCaps.from_preset("tiny", num_classes=2).eval()
    >>> with record_stages([model.primary, *model.blocks[2]]) as stages:
    ...     output = model(torch.rand(1, 1, 32, 32))
    >>> [[each.way.name for each in stage.ways] for stage in stages]
    [[], ['sparse', 'axial'], ['sparse', 'axial', 'residual']]
    """
    modules, recorded = nn.ModuleList(stages), list[RecordedStage]()

    def note(module: nn.Module, inputs: tuple[Tensor, ...], outcome: Tensor) -> None:
        recorded.append(RecordedStage(module, inputs[0], outcome, tuple(ways)))
        ways.clear()

    with record_ways(modules) as ways, hooked(modules, note):
        yield recorded
