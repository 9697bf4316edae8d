"""Reviews in one SQLite file: what persons said of images, and the images, which without them could not be trained on.

Nothing is ever changed or removed: a second review of the same reviewer is a row of its own, and the last one counts.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from parsecaps.data.kept import KeptFile
from parsecaps.files.writing import make_private_file

SCHEMA = 1
_APPLICATION = 0x50435256  # "PCRV": the file is one of reviews
_WAIT_SECONDS = 30
_KEY_BYTES = 32
_DIGEST, _SUFFIX = re.compile(r"[0-9a-f]{64}"), re.compile(r"(\.[a-z0-9]{1,8}){1,2}")
_TABLES = """
CREATE TABLE about (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE images (
  digest TEXT PRIMARY KEY, suffix TEXT NOT NULL, patient TEXT NOT NULL, kept_at TEXT NOT NULL, content BLOB NOT NULL
) STRICT;
CREATE TABLE reviews (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  image TEXT NOT NULL REFERENCES images (digest),
  frame INTEGER,
  reviewer TEXT NOT NULL,
  at TEXT NOT NULL,
  weights TEXT NOT NULL,
  preparation TEXT NOT NULL,
  said TEXT NOT NULL,
  verdict TEXT NOT NULL CHECK (verdict IN ('agree', 'disagree')),
  label TEXT,
  concepts TEXT NOT NULL,
  comment TEXT NOT NULL,
  marks TEXT NOT NULL
) STRICT;
CREATE INDEX reviews_of_image ON reviews (image, frame);
"""


@dataclass(frozen=True)
class Review:
    """What a reviewer said of an image, and what the model had said of it.

    `weights` is the digest of the model, `preparation` how it made a square of the image, in which marks are placed:
    each has points (x, y) from 0 to 1 and a comment. `label` is the right class, None where the reviewer does not know
    it; `concepts` are those that the reviewer judged.
    """

    image: str
    frame: int | None
    reviewer: str
    weights: str
    preparation: dict[str, Any]
    said: dict[str, Any]
    verdict: str
    label: str | None
    concepts: dict[str, bool]
    comment: str = ""
    marks: list[dict[str, Any]] = field(default_factory=list)
    at: str = ""
    id: int = 0


_JSON = ("preparation", "said", "concepts", "marks")
_COLUMNS = tuple(Review.__dataclass_fields__)


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
        with closing(self._connect()) as database:
            application = database.execute("PRAGMA application_id").fetchone()[0]
            is_new = not application and not database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            if not is_new and application != _APPLICATION:
                raise ValueError(f"{self.path} is a database of another program; give another file for reviews")
            os.chmod(self.path, 0o600)
            database.execute("PRAGMA journal_mode = WAL")
            with _writing(database):
                if not database.execute("PRAGMA user_version").fetchone()[0]:
                    for statement in _TABLES.split(";\n"):
                        database.execute(statement)
                    key = secrets.token_bytes(_KEY_BYTES)
                    database.execute("INSERT INTO about VALUES ('key', ?)", (key,))
                    database.execute(f"PRAGMA application_id = {_APPLICATION}")
                    database.execute(f"PRAGMA user_version = {SCHEMA}")
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if version != SCHEMA:
                raise ValueError(f"{self.path} has schema {version}, not {SCHEMA}; use the parsecaps that wrote it")
            self._key = bytes(database.execute("SELECT value FROM about WHERE key = 'key'").fetchone()[0])

    def keep(self, kept: KeptFile, most_bytes: int) -> str | None:
        """Keep an image, unless it is there already; gives its digest, None where there is no room for it."""
        digest = digest_of(kept)
        with closing(self._connect()) as database, _writing(database):
            if database.execute("SELECT 1 FROM images WHERE digest = ?", (digest,)).fetchone() is None:
                if self.num_bytes + len(kept.content) > most_bytes:
                    return None
                row = (digest, kept.suffix, self._pseudonym(kept.study, digest), _now(), kept.content)
                database.execute("INSERT INTO images VALUES (?, ?, ?, ?, ?)", row)
        return digest

    @property
    def num_bytes(self) -> int:
        """How large the file is, with what is not yet written into it."""
        beside = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return sum(path.stat().st_size for path in beside if path.exists())

    def content(self, digest: str) -> KeptFile | None:
        """A kept image; its pseudonym stands for the study."""
        with closing(self._connect()) as database:
            query = "SELECT content, suffix, patient FROM images WHERE digest = ?"
            found = database.execute(query, (digest,)).fetchone()
        return None if found is None else KeptFile(*found)

    def place(self, digest: str) -> tuple[str, str]:
        """The ending of a kept image's name, and the pseudonym of its patient."""
        with closing(self._connect()) as database:
            query = "SELECT suffix, patient FROM images WHERE digest = ?"
            found = database.execute(query, (digest,)).fetchone()
        if found is None or not _DIGEST.fullmatch(digest) or not _SUFFIX.fullmatch(found[0]):  # it becomes a file
            raise ValueError(f"{self.path} is damaged: it has a review of an image that it does not keep")
        return found[0], found[1]

    def add(self, review: Review) -> Review:
        """Write a review down; gives it with its number and time."""
        values = {**{name: getattr(review, name) for name in _COLUMNS}, "at": _now()}
        del values["id"]
        row = {name: json.dumps(value) if name in _JSON else value for name, value in values.items()}
        marks = ", ".join("?" * len(row))
        with closing(self._connect()) as database, _writing(database):
            statement = f"INSERT INTO reviews ({', '.join(row)}) VALUES ({marks})"
            number = database.execute(statement, tuple(row.values())).lastrowid
        return Review(**values, id=number or 0)

    def reviews(self, image: str | None = None) -> list[Review]:
        """All reviews, or those of an image by its digest, the oldest first."""
        query = f"SELECT {', '.join(_COLUMNS)} FROM reviews WHERE ? IS NULL OR image = ? ORDER BY id"
        with closing(self._connect()) as database:
            rows = database.execute(query, (image, image)).fetchall()
        named = (dict(zip(_COLUMNS, row, strict=True)) for row in rows)
        return [
            Review(**{key: json.loads(cell) if key in _JSON else cell for key, cell in row.items()}) for row in named
        ]

    def _pseudonym(self, study: str, digest: str) -> str:
        """What stands for the patient: the same for images of a study, and of no use without the key in the file."""
        if not study:
            return f"image-{digest[:16]}"
        return f"study-{hmac.new(self._key, study.encode(), 'sha256').hexdigest()[:16]}"

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=_WAIT_SECONDS, isolation_level=None)
        for pragma in ("trusted_schema = OFF", "foreign_keys = ON", "synchronous = FULL"):
            database.execute(f"PRAGMA {pragma}")
        return database


def digest_of(kept: KeptFile) -> str:
    """What an image that is kept is called."""
    return hashlib.sha256(kept.content).hexdigest()


@contextmanager
def _writing(database: sqlite3.Connection) -> Iterator[None]:
    """A transaction that waits for others that write, and is undone where it fails."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
