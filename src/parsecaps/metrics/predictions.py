"""What a model said about cases, beside what is true of them: all that scores are computed from."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from parsecaps.files.untrusted import read_arrays
from parsecaps.files.writing import write_atomically

_ARRAYS = ("logits", "label", "presence", "concepts", "consistency")
_NAMES = ("patient", "name", "classes", "concept_names")


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """The outputs of a model for N cases, K classes and m concepts, with the truth as far as it is known.

    `patient` groups the images of one person; a blank one means that the image stands for itself. `name` tells the
    cases apart. A model without concepts has no `presence`, a data set without them no `concepts`.
    `consistency` is the share of changed views of an image that get the answer the image itself gets; None without any.

    Shapes:
        - logits: (N, K); label: (N,) int64, -1 = unknown
        - presence: (N, m) in [0, 1], or None; concepts: (N, m), 1, 0 or NaN = unknown, or None
        - consistency: (N,) in [0, 1], or None
    """

    logits: np.ndarray
    label: np.ndarray
    patient: Sequence[str]
    name: Sequence[str]
    classes: tuple[str, ...]
    presence: np.ndarray | None = None
    concepts: np.ndarray | None = None
    concept_names: tuple[str, ...] = ()
    consistency: np.ndarray | None = None

    def __post_init__(self) -> None:
        count, num_classes, num_concepts = len(self.name), len(self.classes), len(self.concept_names)
        wanted = {"logits": (count, num_classes), "label": (count,), "consistency": (count,)}
        wanted |= dict.fromkeys(("presence", "concepts"), (count, num_concepts))
        for field, array in self._arrays().items():
            array = np.asarray(array, dtype=np.int64 if field == "label" else np.float64)
            if array.shape != wanted[field]:
                raise ValueError(f"{field} has the shape {array.shape}; {wanted[field]} is wanted")
            object.__setattr__(self, field, array)
        if len(self.patient) != count:
            raise ValueError(f"{len(self.patient)} patients for {count} cases; give one for each, blank if unknown")
        for field in ("classes", "concept_names"):
            names = getattr(self, field)
            if len(set(names)) != len(names):
                twice = Counter(names).most_common(1)[0][0]
                raise ValueError(f"{field} has {twice!r} twice; give each its own name")
        rules: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
            "logits": (np.isfinite, "are not finite"),
            "label": (lambda x: (x >= -1) & (x < num_classes), f"is not from -1 to {num_classes - 1}"),
            "presence": (lambda x: (x >= 0) & (x <= 1), "is not within 0 and 1"),
            "concepts": (lambda x: np.isin(x, (0, 1)) | np.isnan(x), "are not 0, 1 or NaN"),
            "consistency": (lambda x: (x >= 0) & (x <= 1), "is not within 0 and 1"),
        }
        for field, array in self._arrays().items():
            good, reason = rules[field]
            wrong = np.nonzero(~good(array))[0]
            if len(wrong):
                case = f"{field} of {self.name[wrong[0]]} {reason}: {array[wrong[0]].tolist()}"
                raise ValueError(f"{case}; leave this case out, or mend it")

    def __len__(self) -> int:
        return len(self.name)

    def probabilities(self, temperature: float = 1.0) -> np.ndarray:
        """Softmax of the logits divided by a temperature: (N, K) float64."""
        return np.asarray(softmax(self.tempered(temperature).logits, axis=1))

    def tempered(self, temperature: float) -> "Predictions":
        """The same with the logits divided by a temperature; folds that are pooled each have their own."""
        if not (np.isfinite(temperature) and temperature > 0):
            raise ValueError(f"temperature is {temperature}; give a number above 0")
        return self if temperature == 1 else replace(self, logits=self.logits / temperature)

    def groups(self) -> np.ndarray:
        """The number of each case's patient, from 0: (N,) int64. A case without patient is a patient of its own."""
        return group_numbers(self.patient)

    def subset(self, rows: Sequence[int] | np.ndarray) -> "Predictions":
        """Only these cases, in this order; a row that is given twice is there twice."""
        index = np.asarray(rows, dtype=np.int64)
        patient, name = ([names[i] for i in index] for names in (self.patient, self.name))
        arrays: dict[str, Any] = {field: array[index] for field, array in self._arrays().items()}
        return replace(self, patient=patient, name=name, **arrays)

    def _arrays(self) -> dict[str, Any]:
        return {field: array for field in _ARRAYS if (array := getattr(self, field)) is not None}

    def save(self, path: str | Path) -> None:
        """Write an .npz file: arrays, and the names as JSON in bytes, so that nothing needs pickle to be read."""
        names = json.dumps({field: list(getattr(self, field)) for field in _NAMES}).encode()
        with write_atomically(path) as file:
            np.savez_compressed(file.buffer, names=np.frombuffer(names, dtype=np.uint8), **self._arrays())

    @classmethod
    def load(cls, path: str | Path) -> "Predictions":
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing; give a file written by Predictions.save")
        try:
            arrays = read_arrays(path)
            names = json.loads(arrays.pop("names").tobytes().decode())
            patient, name, classes, concept_names = ([str(text) for text in names[field]] for field in _NAMES)
            return cls(patient=patient, name=name, classes=tuple(classes), concept_names=tuple(concept_names), **arrays)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a file of predictions ({error}); write it again by evaluating") from None


def group_numbers(patient: Sequence[str]) -> np.ndarray:
    """The number of each case's patient, from 0: (N,) int64; a blank patient is one of its own.

    >>> group_numbers(["ann", "", "bob", "", "ann"]).tolist()
    [0, 1, 2, 3, 0]
    """
    keys = [(who, -1) if who else ("", i) for i, who in enumerate(patient)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], dtype=np.int64)


def concatenate(parts: Sequence[Predictions]) -> Predictions:
    """All cases of several predictions, as of the folds of a cross-validation; a case may be in one part only.

    Give each part the temperature that was fitted for it (`tempered`) before. Classes and concepts must be the same.
    """
    if not parts:
        raise ValueError("there are no predictions to put together; give at least one")
    first = parts[0]
    for part in parts[1:]:
        for field in ("classes", "concept_names"):
            if getattr(part, field) != getattr(first, field):
                both = f"{getattr(first, field)} and {getattr(part, field)}"
                raise ValueError(f"{field} differ: {both}; give predictions of models with the same {field}")
        for field in part._arrays().keys() ^ first._arrays().keys():
            raise ValueError(f"only some of the predictions have {field}; give all of them or none")
    names = [name for part in parts for name in part.name]
    if len(set(names)) != len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ValueError(f"{twice} is in two of the predictions; each case may be tested once")
    arrays = [part._arrays() for part in parts]
    joined: dict[str, Any] = {field: np.concatenate([each[field] for each in arrays]) for field in arrays[0]}
    return replace(first, patient=[patient for part in parts for patient in part.patient], name=names, **joined)
