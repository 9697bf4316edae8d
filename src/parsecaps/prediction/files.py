"""Which images are asked for: files, folders with all below them, and manifests; each frame of a file with several."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from parsecaps.data.reading import look_into
from parsecaps.data.sources import manifest
from parsecaps.data.sources.folder import is_image


class ImageFile(NamedTuple):
    """An image to look at: a file, and the frame where it has several; or why there is none.

    `patient` is whom a manifest or the file itself names, blank where neither does.
    """

    path: Path
    frame: int | None = None
    error: str = ""
    patient: str = ""

    @property
    def name(self) -> str:
        return str(self.path) if self.frame is None else f"{self.path}#{self.frame}"


def find_files(inputs: Iterable[str | Path]) -> Iterator[ImageFile]:
    """The images of files, folders and manifests, in order; what cannot be read is named, not left out."""
    for text in inputs:
        path = Path(text)
        if path.is_dir():
            files = (file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith("."))
            file = None
            for file in filter(is_image, files):
                yield from _frames(file)
            if file is None:
                yield ImageFile(path, None, f"{path} has no image in it; check its path")
        elif manifest.recognise(path):
            listed = manifest.read(str(path))
            for case in listed.cases:
                yield ImageFile(case.image, case.frame, patient=case.patient)
            for problem in listed.problems:
                yield ImageFile(Path(problem.file), None, str(problem))
        else:
            yield from _frames(path)


def _frames(path: Path) -> Iterator[ImageFile]:
    try:
        found = look_into(path)
    except (OSError, ValueError) as error:
        yield ImageFile(path, None, str(error))
        return
    frames = [None] if found.frames == 1 else range(found.frames)
    yield from (ImageFile(path, frame, patient=found.patient) for frame in frames)
