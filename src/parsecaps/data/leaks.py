"""What must not be on both sides of a split: a patient, a file, or pictures that look the same."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor
from torch.nn import functional as F

from parsecaps.data.cases import SPLITS, DataSet, Division, Split
from parsecaps.files.writing import write_binary

FINGERPRINTS_FILE = "fingerprints.safetensors"
Kind = Literal["patient", "file", "picture"]
_SIDE = 64  # pictures are compared at this size
_LOW = 16  # by this many frequencies along each axis
_BYTES = 32  # that their signs fill
_WHOLE = "whole"
_ROWS = 4096  # pictures compared with all others at a time
MOST_BITS = 24  # of 255 that may differ between pictures that look the same; tested on CE-MRI
LEAST_LIKENESS = 0.985  # correlation of their thumbnails


class Leak(NamedTuple):
    """Two cases, as indices into the data set, that must not be in different parts; or one file listed twice."""

    kind: Kind
    first: int
    second: int

    def describe(self, data: DataSet, division: Division) -> str:
        """One line that names both."""
        first, second = (data.name_of(data.cases[i]) for i in (self.first, self.second))
        sides = f"{division[self.first] or 'unused'} and {division[self.second] or 'unused'}"
        if self.kind == "patient":
            return f"patient {data.cases[self.first].patient} is in {sides}: {first} and {second}"
        same = "are the same file" if self.kind == "file" else "look the same"
        return f"{first} and {second} {same}, in {sides}"


class Fingerprints(NamedTuple):
    """What is kept of pictures to tell which look the same.

    Shapes:
        - bits: (N, 32) uint8, 255 signs of low frequencies, packed
        - thumbnails: (N, 256) uint8, 16 x 16 grey
    """

    bits: np.ndarray
    thumbnails: np.ndarray


def fingerprint(image: Tensor) -> Fingerprints:
    """Perceptual hashes of pictures: for each low frequency, whether it is above the picture's median.

    Scaling, re-encoding and changes of brightness or contrast change few bits; a crop, shift, mirror image or turn
    changes many. It is `phash` of the package imagehash with `hash_size=16`, without the bit of the mean, for a batch:
    99.5 % of the bits agree on CE-MRI. The default of 64 bits would call 35 pairs of different patients copies there to
    find 99.8 % of re-encoded copies; 255 bits call none and find all.

    Shapes:
        - input: (N, C, H, W) in [0, 1]
    """
    grey = F.interpolate(image.mean(1, keepdim=True), (_SIDE, _SIDE), mode="bilinear", antialias=True)[:, 0]
    place = (torch.arange(_SIDE) + 0.5) * torch.pi / _SIDE
    waves = torch.cos(torch.arange(_LOW).unsqueeze(1) * place)  # (16, 64): the slowest of the cosine transform
    spectrum = (waves @ grey @ waves.T).flatten(1)[:, 1:]  # without the mean brightness
    bits = (spectrum > spectrum.median(1, keepdim=True).values).numpy()
    small = F.interpolate(grey.unsqueeze(1), (16, 16), mode="area").flatten(1)
    return Fingerprints(np.packbits(bits, axis=1), (small * 255).round().byte().numpy())


def write_fingerprints(path: Path, bits: np.ndarray, *, whole: bool = True) -> None:
    """Keep the bits (N, 32) of the pictures that were learned from, sorted; not `whole` if starting weights kept none.

    Whoever has a picture can find out whether it is among them, and no more.
    """
    each_once = np.unique(np.asarray(bits, dtype=np.uint8).reshape(-1, _BYTES), axis=0)
    with write_binary(path, private=True) as file:
        file.write(save({"bits": each_once}, {_WHOLE: str(whole).lower()}))


def read_fingerprints(path: Path) -> tuple[np.ndarray, bool]:
    """The bits (N, 32) that `write_fingerprints` kept, and whether they are of all that was learned from."""
    again = "save the model again, or remove the file"
    try:
        with safe_open(path, framework="np") as file:
            part = file.get_slice("bits") if "bits" in file.keys() else None  # noqa: SIM118 (it is no dictionary)
            if part is not None and part.get_dtype() == "U8" and part.get_shape()[1:] == [_BYTES]:
                return file.get_tensor("bits"), (file.metadata() or {}).get(_WHOLE) != "false"
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read ({' '.join(str(error).split())}); {again}") from None
    raise ValueError(f"{path} does not hold fingerprints; {again}")


def learned_before(prints: Fingerprints, rows: Sequence[int], learned: np.ndarray) -> list[int]:
    """The rows whose pictures look the same as one of those with the bits `learned` (N, 32).

    No thumbnails are needed: within and between six data sets (26,306 images), no two pictures of different patients
    have such bits without looking the same by their thumbnails too.
    """
    return sorted({rows[i] for i, _ in _same_bits(prints.bits[list(rows)], learned)})


def find_leaks(data: DataSet, division: Division, digests: Sequence[str], prints: Fingerprints) -> list[Leak]:
    """Every patient in two parts, file listed twice, and pair of other pictures in two parts that look the same."""
    first_in: dict[str, dict[str, int]] = defaultdict(dict)
    for i, (case, part) in enumerate(zip(data.cases, division, strict=True)):
        if part is not None:
            first_in[case.patient].setdefault(part, i)
    leaks = [Leak("patient", first, i) for first, *others in map(dict.values, first_in.values()) for i in others]
    seen: dict[str, int] = {}
    leaks += [Leak("file", first, i) for i, each in enumerate(digests) if (first := seen.setdefault(each, i)) != i]
    for i, j in () if data.look_alikes else _alike_across(division, prints):
        if data.cases[i].patient != data.cases[j].patient and digests[i] != digests[j]:
            leaks.append(Leak("picture", i, j))
    return leaks


def unsafe(leaks: Sequence[Leak], division: Division) -> list[Leak]:
    """The leaks that cross the division: the same file twice within one part is odd, but leaks nothing."""
    sides = [(leak, division[leak.first], division[leak.second]) for leak in leaks]
    return [leak for leak, one, other in sides if None not in (one, other) and one != other]


def move_to_one_side(data: DataSet, division: Division, leaks: Sequence[Leak]) -> Division:
    """A division without these leaks: patients that a leak ties together all go where most of their images are."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    _, patient = np.unique([case.patient for case in data.cases], return_inverse=True)
    ends = patient[np.array([(leak.first, leak.second) for leak in leaks], dtype=int).reshape(-1, 2)].T
    ties = coo_matrix((np.ones(len(leaks)), ends), shape=(len(data), len(data)))
    group = connected_components(ties, directed=False)[1][patient]  # of each case
    tied, count = {*group[[leak.first for leak in leaks]]}, Counter(zip(group, division, strict=True))
    side: dict[int, Split] = {each: max(SPLITS, key=lambda part: count[each, part]) for each in tied}
    return [None if part is None else side.get(own, part) for own, part in zip(group, division, strict=True)]


def _alike_across(division: Division, prints: Fingerprints) -> Iterator[tuple[int, int]]:
    """Pairs of pictures in different parts that look the same."""
    part = np.array([-1 if each is None else SPLITS.index(each) for each in division])
    pixels = torch.from_numpy(np.array(prints.thumbnails)).float()  # a copy: what is mapped is read-only
    pixels = F.normalize(pixels - pixels.mean(1, keepdim=True), dim=1)
    for one in range(len(SPLITS)):
        here, there = np.flatnonzero(part == one).tolist(), np.flatnonzero(part > one).tolist()
        for i, j in _same_bits(prints.bits[here], prints.bits[there]):
            if float(pixels[here[i]] @ pixels[there[j]]) >= LEAST_LIKENESS:
                yield here[i], there[j]


def _same_bits(one: np.ndarray, other: np.ndarray) -> Iterator[tuple[int, int]]:
    """The places of pairs of bits (N, 32) and (M, 32) that nearly agree, by a product of +-1."""
    bits = (np.unpackbits(each, axis=1, count=_LOW**2 - 1) for each in (one, other))
    signs, others = (torch.from_numpy(each).float() * 2 - 1 for each in bits)
    for start in range(0, len(signs), _ROWS):
        agreeing = signs[start : start + _ROWS] @ others.T  # bits that agree minus bits that differ
        for i, j in torch.nonzero(agreeing >= signs.shape[1] - 2 * MOST_BITS).tolist():
            yield start + i, j
