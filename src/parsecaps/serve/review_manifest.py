"""Reviews as training data: one row for each image, with the classes and concepts on which its reviewers agree.

Of each reviewer the last review of an image counts. What most of them say is taken; where as many say one thing as
another, the cell stays blank, which is "unknown" to training, and the image is reported.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from parsecaps.data.sources.manifest import CONCEPT, IN_FOLDER
from parsecaps.data.tables import NOTE, text_cell
from parsecaps.files.writing import make_private_folder, write_binary, write_text
from parsecaps.serve.review_store import Review, ReviewStore

REVIEWS_FILE = "reviews.json"
_IMAGES = "images"
_SHOWN_DIGITS = 24  # of a digest, in the name of a file
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True)
class ReviewedImage:
    """An image and what its reviewers say together; None and left out is what they do not know or agree on."""

    image: str
    frame: int | None
    label: str | None
    concepts: dict[str, bool]
    reviewers: int
    disputed: list[str]


def settle(reviews: Sequence[Review]) -> list[ReviewedImage]:
    """What counts for each image, in the order in which images were first reviewed."""
    images: dict[tuple[str, int | None], dict[str, Review]] = {}
    for review in reviews:  # the oldest first, so that the last one of a reviewer stays
        images.setdefault((review.image, review.frame), {})[_person(review)] = review
    return [_settle_one(image, frame, list(last.values())) for (image, frame), last in images.items()]


def _settle_one(image: str, frame: int | None, last: list[Review]) -> ReviewedImage:
    label, disputed = _majority([review.label for review in last if review.label is not None])
    doubts = ["class"] if disputed else []
    concepts: dict[str, bool] = {}
    for name in dict.fromkeys(name for review in last for name in review.concepts):
        value, disputed = _majority([review.concepts[name] for review in last if name in review.concepts])
        if value is not None:
            concepts[name] = value
        doubts += [name] if disputed else []
    return ReviewedImage(image, frame, label, concepts, len(last), doubts)


def _majority(votes: Iterable[T]) -> tuple[T | None, bool]:
    """What most say, None where no one thing has most votes; and whether they differ at all.

    >>> _majority(["a", "b", "a"]), _majority(["a", "b"]), _majority([])
    (('a', True), (None, True), (None, False))
    """
    most = Counter(votes).most_common(2)
    if not most:
        return None, False
    if len(most) == 1:
        return most[0][0], False
    return (most[0][0] if most[0][1] > most[1][1] else None), True


def _person(review: Review) -> str:
    return " ".join(review.reviewer.casefold().split())


def manifest_text(store: ReviewStore) -> str:
    """The manifest of all reviewed images, as `parsecaps train` reads it beside the folder with the images.

    Columns are image, label, patient, frame where a file has several, the concepts of which anything is known, and
    notes for people. A patient is a pseudonym: that of the study where a file names one, else of the image.
    """
    reviews = store.reviews()
    settled = settle(reviews)
    known = {name for each in settled for name in each.concepts}
    names = [name for name in _concepts(reviews) if name in known]
    has_frames = any(each.frame is not None for each in settled)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    framed = ["frame"] if has_frames else []
    notes = [f"{NOTE}reviewers", f"{NOTE}disputed"]
    writer.writerow(["image", "label", "patient", *framed, *(text_cell(CONCEPT + name) for name in names), *notes])
    places = _places(store, settled)
    for each in settled:
        file, patient = places[each.image]
        frame = ["" if each.frame is None else each.frame] if has_frames else []
        cells = ["" if name not in each.concepts else int(each.concepts[name]) for name in names]
        doubts = text_cell(", ".join(each.disputed))
        writer.writerow([file, text_cell(each.label or ""), patient, *frame, *cells, each.reviewers, doubts])
    return text.getvalue()


def write_reviews(store: ReviewStore, folder: Path) -> list[ReviewedImage]:
    """Write the manifest, the reviewed images and all reviews into a new folder that is closed to other users."""
    reviews = store.reviews()
    if not reviews:
        raise ValueError(f"{store.path} has no review yet; review some images first")
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is there already; choose another place")
    settled = settle(reviews)
    make_private_folder(folder / _IMAGES)
    for digest, (name, _) in _places(store, settled).items():
        kept = store.content(digest)
        assert kept is not None
        with write_binary(folder / name, private=True) as file:
            file.write(kept.content)
    write_text(folder / REVIEWS_FILE, json.dumps(_documents(reviews), indent=2) + "\n", private=True)
    write_text(folder / IN_FOLDER, manifest_text(store), private=True)
    return settled


def _places(store: ReviewStore, settled: Sequence[ReviewedImage]) -> dict[str, tuple[str, str]]:
    """The name of the file of each image below the folder, and the pseudonym of its patient."""
    found = {}
    for digest in dict.fromkeys(each.image for each in settled):
        suffix, patient = store.place(digest)
        found[digest] = (f"{_IMAGES}/{digest[:_SHOWN_DIGITS]}{suffix}", patient)
    return found


def _concepts(reviews: Sequence[Review]) -> list[str]:
    """All concepts of the models that were reviewed, in their order."""
    return list(
        dict.fromkeys(name for review in reviews for name in (*(review.said["concepts"] or {}), *review.concepts))
    )


def _documents(reviews: Sequence[Review]) -> list[dict[str, Any]]:
    last = {(review.image, review.frame, _person(review)): review.id for review in reviews}
    counting = set(last.values())
    return [{**asdict(review), "counts": review.id in counting} for review in reviews]
