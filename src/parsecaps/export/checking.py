"""Does an exported file give what PyTorch gives? Asked before the file takes its name, on images it has not seen."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

PROBABILITY = 1e-4  # how far a probability or a presence may be off
MAP = 1e-3  # how far a number of a map or a tree may be off, of its maximum
_FAINT = 1e-2  # of the strongest map of an image: a map below is measured by this
_ROUNDING, _DRAWS = 1e-6, 16  # noise of an image that stands for rounding, and how often it is drawn
_NO_EVIDENCE = 1e-2  # of presence or logit: below, rounding is too large a part of what a tree shares out
_ELSEWHERE = 1e-2  # the share of all evidence that may take other routes

Arrays = Mapping[str, np.ndarray]


def open_session(model: Path | bytes, *, threads: int | None = None) -> Any:
    """A session of ONNX Runtime on the CPU, with as many threads as PyTorch has unless it is said."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads() if threads is None else threads
    given = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def run(session: Any, image: Tensor) -> Arrays:
    """What a session gives for prepared images, by name."""
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(names, {"image": image.numpy()}), strict=True))


def arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    """Tensors as NumPy arrays."""
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def compare_answers(want: Arrays, got: Arrays) -> float:
    """Refuse other answers than those wanted; gives how far probabilities and presences are off.

    Of classes that are equally probable, as far as is compared, any may come first.
    """
    _check_finite(got)
    worst = max(float(np.abs(want[name] - got[name]).max()) for name in want.keys() & {"probabilities", "presence"})
    if worst > PROBABILITY:
        raise _wrong(f"a probability or presence is off by {worst:.1g}")
    if (weights := want.get("concept_weights")) is not None:
        off = float(np.abs(weights - got["concept_weights"]).max())
        if off > PROBABILITY * max(1.0, float(np.abs(weights).max())):
            raise _wrong(f"a weight of a concept is off by {off:.1g}")
    named = want["probabilities"][np.arange(len(got["logits"])), got["logits"].argmax(1)]
    if (want["probabilities"].max(1) - named > 2 * PROBABILITY).any():
        raise _wrong("it names another class than the model")
    return worst


def compare_maps(want: Arrays, got: Arrays, by_rounding: Callable[[], Iterable[np.ndarray]] = tuple) -> float:
    """Refuse other maps than those wanted; gives how far they are off, of the maximum of each map.

    A ReLU that gets nearly 0, or a child that is hardly chosen, may let the gradient through in one of the two and not
    in the other. So where they differ, each pixel may be anywhere between the maps that PyTorch itself gives for the
    image with noise as small as rounding: `by_rounding` gives these (T, size, size) one by one, as long as needed.
    """
    _check_finite(got)
    known = _compared(want)
    maps, others = want["maps"][0][:known], got["maps"][0][:known]
    largest = maps.max((1, 2), initial=0)
    scale = np.maximum(np.maximum(largest, _FAINT * largest.max(initial=0)), np.finfo(np.float32).tiny)[:, None, None]
    low = high = maps
    worst = float((np.abs(maps - others) / scale).max(initial=0))
    for possible in by_rounding() if worst > MAP else ():
        low, high = np.minimum(low, possible[:known]), np.maximum(high, possible[:known])
        worst = float((np.maximum(low - others, others - high) / scale).max(initial=0))
        if worst <= MAP:
            break
    if worst > MAP:
        raise _wrong(f"a map is off by {worst:.1g} of its maximum")
    return max(worst, 0.0)


def maps_by_rounding(explain: Callable[[Tensor], dict[str, Tensor]], image: Tensor) -> Iterator[np.ndarray]:
    """The maps of an image with noise as small as rounding: (T, size, size) for each draw."""
    noise = torch.Generator().manual_seed(0)
    for _ in range(_DRAWS):
        yield explain(image + _ROUNDING * torch.randn(image.shape, generator=noise))["maps"][0].numpy()


def compare_trees(want: Arrays, got: Arrays) -> None:
    """Refuse other parse trees than those wanted, by the evidence that flows between the capsules of each level.

    What a capsule gets counts if it speaks for the target in all. Where that sum is nearly 0 it may count in one of the
    two and not in the other; so a little of all evidence may take routes that the other has not.
    """
    for target in range(_compared(want)):
        if want["maps"][0, target].sum() < _NO_EVIDENCE:
            continue
        for wanted, given in zip(flows(want, target), flows(got, target), strict=True):
            off, most = np.abs(wanted - given), float(wanted.max())
            other_routes = bool(((wanted > 0) != (given > 0)).any())
            if off.max() > MAP * most and not (other_routes and off.sum() / 2 <= _ELSEWHERE):
                raise _wrong(f"a tree is off by {off.max() / max(most, 1e-30):.1g} of its maximum")


def flows(outputs: Arrays, target: int) -> Iterator[np.ndarray]:
    """The shares of the capsules of the top level (n_L,), then what flows to each level from that below, (n', n)."""
    shares = outputs["tree_top"][target]
    yield shares
    for level in range(sum(name.startswith("tree_down_") for name in outputs), 0, -1):
        flow = shares[:, None] * outputs[f"tree_down_{level}"][target]
        yield flow
        shares = flow.sum(0)


def _compared(want: Arrays) -> int:
    """How many targets can be compared: all, but not the class where two are equally probable."""
    falling = -np.sort(-want["probabilities"][0])
    tied = len(falling) > 1 and falling[0] - falling[1] <= 2 * PROBABILITY
    return len(want["maps"][0]) - int(tied)


def _check_finite(got: Arrays) -> None:
    for name, array in got.items():
        if not np.isfinite(array).all():
            raise _wrong(f"its {name} are not finite on some image")


def _wrong(reason: str) -> ValueError:
    return ValueError(f"the exported file is wrong: {reason}; nothing is kept")
