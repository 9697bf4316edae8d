"""Reviews in one SQLite file: what persons said of images, and the images, which without them could not be trained on.

Nothing is ever changed or removed: a second review of the same reviewer is a row of its own, and the last one counts.
As training data, an image has the classes and concepts on which most of its reviewers agree; where as many say one
thing as another, the cell stays blank, which is "unknown" to training, and the image is reported.
"""

import csv
import hashlib
import hmac
import io
import json
import os
import re
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from parsecaps.data.deidentify import KeptFile
from parsecaps.data.sources.manifest import CONCEPT, IN_FOLDER
from parsecaps.data.spreadsheets import NOTE, text_cell
from parsecaps.files.untrusted import checked
from parsecaps.files.writing import make_private_file, make_private_folder, write_binary, write_text

REVIEWS_FILE = "reviews.json"
SCHEMA = 1
_IMAGES = "images"
_SHOWN_DIGITS = 24  # of a digest, in the name of a file
_APPLICATION = 0x50435256  # "PCRV": the file is one of reviews
_WAIT_SECONDS = 30
_DIGEST, _SUFFIX = re.compile(r"[0-9a-f]{64}"), re.compile(r"(\.[a-z0-9]{1,8}){1,2}")
_Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Point = Annotated[list[_Fraction], Field(min_length=2, max_length=2)]


class Mark(BaseModel):
    """Something drawn on the image: a box by two corners, or a line by its points, with a comment."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["box", "line"]
    points: list[_Point] = Field(
        min_length=2, max_length=2000, description="x and y from 0 to 1 in the prepared image, as pages show it."
    )
    comment: str = Field("", max_length=1000)


class GivenReview(BaseModel):
    """A review as it was written down, with what the model says of the image.

    `weights` is the digest of the model. `label` is the right class, null where the reviewer does not know it;
    `concepts` are those that the reviewer judged.
    """

    id: int = 0
    image: str
    frame: int | None
    reviewer: str
    at: str = ""
    weights: str
    said: dict[str, Any]
    verdict: Literal["agree", "disagree"]
    label: str | None
    concepts: dict[str, bool]
    comment: str = ""
    marks: list[Mark] = []


class Review(GivenReview):
    """A review and how the model made a square of the image, in which the marks are placed."""

    preparation: dict[str, Any]

    @property
    def person(self) -> str:
        """The reviewer, however the name is spaced and capitalised."""
        return " ".join(self.reviewer.casefold().split())


_JSON = ("preparation", "said", "concepts", "marks")


class ReviewStore:
    """The file of reviews. Each call has a connection of its own, so threads and processes may use it at once."""

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self.path = Path(path)
        if not self.path.exists():
            if not create:
                raise FileNotFoundError(f"{self.path} is missing; give the file of parsecaps serve --review")
            if not self.path.parent.is_dir():
                raise OSError(f"{self.path} cannot be written: the folder {self.path.parent} is not there")
            make_private_file(self.path)
        elif not self.path.is_file():
            raise ValueError(f"{self.path} is not a file; give one for reviews, as in reviews.sqlite")
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{self.path} cannot be used for reviews ({error}); give another file") from None

    def _prepare(self) -> None:
        with self._open() as database:
            application = database.execute("PRAGMA application_id").fetchone()[0]
            is_new = not application and not database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if not is_new and application != _APPLICATION:
                raise ValueError(f"{self.path} is a database of another program; give another file for reviews")
            os.chmod(self.path, 0o600)
            database.execute("PRAGMA journal_mode = WAL")
        with self._open(writing=True) as database:
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if not version:
                for statement in (files("parsecaps.serve") / "reviews.sql").read_text("utf-8").split(";\n"):
                    database.execute(statement)
                database.execute("INSERT INTO about VALUES ('key', ?)", (secrets.token_bytes(32),))
                database.execute(f"PRAGMA application_id = {_APPLICATION}")
                database.execute(f"PRAGMA user_version = {SCHEMA}")
            elif version != SCHEMA:
                raise ValueError(f"{self.path} has schema {version}, not {SCHEMA}; use the parsecaps that wrote it")
            self._key = bytes(database.execute("SELECT value FROM about WHERE key = 'key'").fetchone()[0])

    def keep(self, kept: KeptFile, most_bytes: int) -> str | None:
        """Keep an image, unless it is there already; gives its digest, None where there is no room for it."""
        digest = digest_of(kept)
        with self._open(writing=True) as database:
            if database.execute("SELECT 1 FROM images WHERE digest = ?", (digest,)).fetchone() is None:
                if self.num_bytes + len(kept.content) > most_bytes:
                    return None
                # for the patient stands a word: one for all images of a study, of no use without the key in the file
                study = kept.study and f"study-{hmac.new(self._key, kept.study.encode(), 'sha256').hexdigest()[:16]}"
                row = (digest, kept.suffix, study or f"image-{digest[:16]}", _now(), kept.content)
                database.execute("INSERT INTO images VALUES (?, ?, ?, ?, ?)", row)
        return digest

    @property
    def num_bytes(self) -> int:
        """Size of the file and of its write-ahead log."""
        beside = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return sum(path.stat().st_size for path in beside if path.exists())

    def content(self, digest: str) -> KeptFile | None:
        """A kept image; its pseudonym stands for the study."""
        found = self.image("content, suffix, patient", digest)
        return None if found is None else KeptFile(*found)

    def image(self, columns: str, digest: str) -> Any:
        """Some columns of a kept image; None where it is not kept."""
        with self._open() as database:
            return database.execute(f"SELECT {columns} FROM images WHERE digest = ?", (digest,)).fetchone()

    def add(self, review: Review) -> Review:
        """Store a review and return it with its number and time."""
        values = review.model_dump(exclude={"id"}) | {"at": _now()}
        row = {name: json.dumps(value) if name in _JSON else value for name, value in values.items()}
        statement = f"INSERT INTO reviews ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
        with self._open(writing=True) as database:
            number = database.execute(statement, tuple(row.values())).lastrowid
        return Review(**values, id=number or 0)

    def reviews(self, image: str | None = None) -> list[Review]:
        """All reviews, or those of an image by its digest, the oldest first."""
        names = tuple(Review.model_fields)
        query = f"SELECT {', '.join(names)} FROM reviews WHERE ? IS NULL OR image = ? ORDER BY id"
        with self._open() as database:
            rows = database.execute(query, (image, image)).fetchall()
        named = (zip(names, row, strict=True) for row in rows)
        read = ({key: json.loads(cell) if key in _JSON else cell for key, cell in row} for row in named)
        return [checked(Review, row, self.path, "it is damaged; take an earlier copy of it") for row in read]

    @contextmanager
    def _open(self, *, writing: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection; `writing` is one transaction that waits for other writers, and is undone if it fails."""
        with closing(sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)) as database:
            for pragma in ("trusted_schema = OFF", "foreign_keys = ON", "synchronous = FULL"):
                database.execute(f"PRAGMA {pragma}")
            if writing:
                database.execute("BEGIN IMMEDIATE")
            yield database
            if writing:
                database.execute("COMMIT")


def digest_of(kept: KeptFile) -> str:
    """The name of a kept image: sha256 of its content."""
    return hashlib.sha256(kept.content).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


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
        images.setdefault((review.image, review.frame), {})[review.person] = review
    settled = []
    for (image, frame), last in images.items():
        votes: dict[str | None, list[Any]] = {None: [each.label for each in last.values() if each.label is not None]}
        for review in last.values():  # the first are on the class, the others on the concepts
            for name, value in review.concepts.items():
                votes.setdefault(name, []).append(value)
        disputed = ["class" if name is None else name for name, given in votes.items() if len(set(given)) > 1]
        agreed = {name: _majority(given) for name, given in votes.items()}
        label = agreed.pop(None)
        concepts = {name: value for name, value in agreed.items() if name is not None and value is not None}
        settled.append(ReviewedImage(image, frame, label, concepts, len(last), disputed))
    return settled


def _majority(votes: Iterable[Any]) -> Any:
    """What most say, None where no one thing has most votes.

    >>> _majority(["a", "b", "a"]), _majority(["a", "b"]), _majority([])
    ('a', None, None)
    """
    first, second = (*Counter(votes).most_common(2), (None, 0), (None, 0))[:2]
    return None if first[1] == second[1] else first[0]


def manifest_text(store: ReviewStore) -> str:
    """The manifest of all reviewed images, as `parsecaps train` reads it beside the folder with the images.

    Columns are image, label, patient, frame where a file has several, the concepts of which anything is known, and
    notes for people. A patient is a pseudonym: that of the study where a file names one, else of the image.
    """
    reviews = store.reviews()
    settled = settle(reviews)
    said = [name for review in reviews for name in (*(review.said["concepts"] or {}), *review.concepts)]
    known = {name for each in settled for name in each.concepts}
    framed = ["frame"] if any(each.frame is not None for each in settled) else []
    concepts = {name: text_cell(CONCEPT + name) for name in dict.fromkeys(said) if name in known}
    columns = ["image", "label", "patient", *framed, *concepts.values(), f"{NOTE}reviewers", f"{NOTE}disputed"]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    places = _places(store, settled)
    for each in settled:
        image, patient = places[each.image]
        row = {"image": image, "patient": patient, "frame": each.frame, "label": text_cell(each.label or "")}
        row |= {concepts[name]: int(value) for name, value in each.concepts.items()}
        row |= {f"{NOTE}reviewers": each.reviewers, f"{NOTE}disputed": text_cell(", ".join(each.disputed))}
        writer.writerow(row)
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
    counting = {(review.image, review.frame, review.person): review.id for review in reviews}.values()
    documents = [{**review.model_dump(), "counts": review.id in counting} for review in reviews]
    write_text(folder / REVIEWS_FILE, json.dumps(documents, indent=2) + "\n", private=True)
    write_text(folder / IN_FOLDER, manifest_text(store), private=True)
    return settled


def _places(store: ReviewStore, settled: Sequence[ReviewedImage]) -> dict[str, tuple[str, str]]:
    """The name of the file of each image below the folder, and the pseudonym of its patient."""
    found = {}
    for digest in dict.fromkeys(each.image for each in settled):
        kept = store.image("suffix, patient", digest)
        if kept is None or not _DIGEST.fullmatch(digest) or not _SUFFIX.fullmatch(kept[0]):  # it becomes a file
            raise ValueError(f"{store.path} is damaged: it has a review of an image that it does not keep")
        found[digest] = (f"{_IMAGES}/{digest[:_SHOWN_DIGITS]}{kept[0]}", kept[1])
    return found
