"""The file of reviews: private, safe with several who write, and refused where it is another's."""

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parsecaps.data.deidentify import KeptFile
from parsecaps.serve.review_store import Review, ReviewStore, manifest_text, settle, write_reviews
from tests.messages import refused

ROOM = 10**9
SAID = {"class": "a", "probabilities": {"a": 0.7, "b": 0.3}, "concepts": {"x": 0.9, "y": 0.2}}


def review(image: str, reviewer: str = "Ann", label: str | None = "a", **concepts: bool) -> Review:
    verdict = "agree" if label == "a" else "disagree"
    return Review(
        image=image,
        frame=None,
        reviewer=reviewer,
        weights="sha256:0",
        preparation={},
        said=SAID,
        verdict=verdict,
        label=label,
        concepts=concepts,
    )


@pytest.fixture
def store(tmp_path: Path) -> ReviewStore:
    return ReviewStore(tmp_path / "reviews.sqlite")


def test_it_is_private_and_in_wal_mode_with_a_version(store: ReviewStore) -> None:
    digest = store.keep(KeptFile(b"pixels", ".png", ""), ROOM)
    store.add(review(digest or ""))
    database = sqlite3.connect(store.path)
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database.execute("PRAGMA user_version").fetchone() == (1,)
    for path in store.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    database.close()


def test_many_write_at_once(store: ReviewStore) -> None:
    """Threads with stores of their own, as processes would have, lose nothing and keep an image once."""

    def work(number: int) -> None:
        own = ReviewStore(store.path)
        digest = own.keep(KeptFile(b"pixels %d" % (number % 4), ".png", ""), ROOM)
        own.add(review(digest or "", f"reviewer {number}"))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(40)))
    found = store.reviews()
    assert sorted(each.reviewer for each in found) == sorted(f"reviewer {i}" for i in range(40))
    assert [each.id for each in found] == list(range(1, 41))
    assert len({each.image for each in found}) == 4


def test_nothing_is_kept_beyond_the_room_there_is(store: ReviewStore) -> None:
    kept = KeptFile(bytes(100_000), ".png", "")
    assert store.keep(kept, store.num_bytes + 50_000) is None
    digest = store.keep(kept, ROOM)
    assert store.keep(kept, 0) == digest  # it is there already


def test_images_of_a_study_have_one_pseudonym_that_says_nothing(store: ReviewStore, tmp_path: Path) -> None:
    first, second, third = (
        store.image("patient", store.keep(KeptFile(content, ".dcm", study), ROOM) or "")
        for content, study in ((b"1", "1.2.3"), (b"2", "1.2.3"), (b"3", "1.2.4"))
    )
    assert first == second != third
    assert b"1.2.3" not in store.path.read_bytes()
    other = ReviewStore(tmp_path / "other.sqlite")
    digest = other.keep(KeptFile(b"1", ".dcm", "1.2.3"), ROOM) or ""
    assert other.image("patient", digest) != first  # each file has its own key


def test_files_of_others_are_refused(tmp_path: Path, store: ReviewStore) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be looked at" * 100)
    with refused(ValueError):
        ReviewStore(tmp_path / "text")
    with sqlite3.connect(tmp_path / "else") as database:
        database.execute("CREATE TABLE mine (a)")
    database.close()
    with refused(ValueError):
        ReviewStore(tmp_path / "else")
    with sqlite3.connect(store.path) as database:
        database.execute("PRAGMA user_version = 2")
    database.close()
    with refused(ValueError):
        ReviewStore(store.path)
    with refused(FileNotFoundError):
        ReviewStore(tmp_path / "gone", create=False)
    assert not (tmp_path / "gone").exists()


def test_the_last_review_of_each_and_what_most_say(store: ReviewStore) -> None:
    image = store.keep(KeptFile(b"pixels", ".png", ""), ROOM) or ""
    for each in (
        review(image, "Ann", "b", x=True, y=True),
        review(image, " ann", "a", x=True, y=True),  # the same person, who thinks better of it
        review(image, "Bob", "b", x=False, y=True),
        review(image, "Cem", "b", y=False),
        review(image, "Dee", None),
    ):
        store.add(each)
    (found,) = settle(store.reviews())
    assert (found.label, found.concepts, found.reviewers) == ("b", {"y": True}, 4)
    assert found.disputed == ["class", "x", "y"]
    store.add(review(image, "Eva", "a"))
    (found,) = settle(store.reviews())
    assert found.label is None  # two against two
    header, row = manifest_text(store).splitlines()
    assert header == "image,label,patient,concept:y,note:reviewers,note:disputed"
    assert row == f'images/{image[:24]}.png,,image-{image[:16]},1,5,"class, x, y"'


def test_a_file_that_was_tampered_with_writes_nowhere_else(store: ReviewStore, tmp_path: Path) -> None:
    image = store.keep(KeptFile(b"pixels", ".png", ""), ROOM) or ""
    store.add(review(image))
    with sqlite3.connect(store.path) as database:
        database.execute("UPDATE images SET suffix = '/../../../evil.png'")
    database.close()
    with refused(ValueError):
        write_reviews(store, tmp_path / "out")
    assert not list(tmp_path.rglob("evil*"))
    with refused(ValueError):
        write_reviews(ReviewStore(tmp_path / "new.sqlite"), tmp_path / "out")


def test_a_review_needs_its_image(store: ReviewStore) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        store.add(review("0" * 64))
    assert store.reviews() == []
