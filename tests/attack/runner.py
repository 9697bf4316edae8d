"""Attacks with files: many at a time, and where something is wrong, fewer and fewer until the file is found."""

import os
import shlex
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.attack.commands import MODEL, Memory, Place
from tests.attack.crafted import Crafted, crafted_files
from tests.attack.crafted_dicom import crafted_dicom
from tests.attack.crafted_double import crafted_double
from tests.attack.mutated import good_files, mutate
from tests.attack.odd_names import write_no_files, write_no_images, write_odd_names
from tests.attack.rows import judge

START_SECONDS = 60.0  # for a command whatever it is given; a busy machine takes ten
_CRAFTED_SECONDS = 30.0  # for each crafted file
_MUTATED_SECONDS = 0.5
_CRAFTED_AT_A_TIME, _MUTATED_AT_A_TIME = 8, 200


@dataclass(frozen=True)
class Problem:
    """What went wrong, with which file, and the command that shows it again."""

    name: str
    what: str
    command: str


@dataclass
class Tally:
    """A row of the table: how many attacks of a kind were tried, what went wrong, and the peaks of memory."""

    tried: int = 0
    problems: list[Problem] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)


class Report:
    """The table, and the folder in which files that made trouble are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tallies: dict[str, Tally] = {}

    def add(self, kind: str, tried: int, problems: Iterable[Problem] = (), memory: Memory | None = None) -> None:
        """Count attacks."""
        tally = self.tallies.setdefault(kind, Tally())
        tally.tried += tried
        tally.problems += problems
        tally.memory |= memory or Memory()

    def keep(self, path: Path) -> Path:
        """A copy of what made trouble, in a folder of its own."""
        number = 1
        while (folder := self.folder / str(number)).exists():
            number += 1
        folder.mkdir(parents=True)
        kept, mode = folder / path.name, path.lstat().st_mode
        if stat.S_ISLNK(mode):
            kept.symlink_to(os.readlink(path))
        elif stat.S_ISDIR(mode):
            shutil.copytree(path, kept, symlinks=True, ignore=_special)
        elif stat.S_ISREG(mode):
            shutil.copy(path, kept)
        else:
            os.mknod(kept, mode)
        return kept

    @property
    def clean(self) -> bool:
        return not any(tally.problems for tally in self.tallies.values())

    def lines(self) -> list[str]:
        """The table, and below it each problem with its command."""
        titles = ("kind", "tried", "clean", "problem", "main MB", "largest MB", "tree MB")
        table = [titles]
        for kind, tally in self.tallies.items():
            bad, memory = len(tally.problems), tally.memory
            megabytes = (f"{size / 1e6:.0f}" for size in (memory.main, memory.largest, memory.tree))
            table.append((kind, str(tally.tried), str(tally.tried - bad), str(bad), *megabytes))
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]
        for kind, tally in self.tallies.items():
            for problem in tally.problems:
                lines += ["", f"{kind}: {problem.name} {problem.what}", f"  {problem.command}"]
        return [ascii(line)[1:-1] if not (line.isascii() and line.isprintable()) else line for line in lines]


@dataclass(frozen=True)
class Batch:
    """Files to ask for by one command: as the folder `whole`, or each by its name, which may be relative to `cwd`.

    `known` says more about crafted ones. The command may take `seconds` for each file.
    """

    kind: str
    files: Sequence[Path]
    whole: Path | None = None
    known: dict[str, Crafted] = field(default_factory=dict)
    seconds: float = _MUTATED_SECONDS
    cwd: Path | None = None
    table: str = "rows.jsonl"


class FileAttack:
    """Files for `parsecaps predict`, written into a place of their own."""

    def __init__(self, place: Place, report: Report) -> None:
        self.place, self.report = place, report
        self._number = 0

    def crafted(self, at_a_time: int = _CRAFTED_AT_A_TIME) -> None:
        """Files that lie, a few of a kind at a time."""
        by_kind: dict[str, list[Crafted]] = {}
        for each in (*crafted_files(), *crafted_dicom(), *crafted_double()):
            by_kind.setdefault(each.kind, []).append(each)
        for kind, files in by_kind.items():
            for i in range(0, len(files), at_a_time):
                known = self._write(files[i : i + at_a_time], self._folder())
                self._attack(Batch(kind, [*map(Path, known)], known=known, seconds=_CRAFTED_SECONDS))

    def together(self, chosen: Sequence[Crafted], mutated: int) -> None:
        """Some crafted files and some mutated ones by one command, and no more than that one."""
        folder = self._folder()
        known = self._write(chosen, folder)
        good = good_files(self._folder())
        for number in range(mutated):
            name, data = mutate(good, 0, number)
            (folder / name).write_bytes(data)
        files = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
        self._attack(Batch("together", files, known=known), search=False)

    def mutated(self, count: int, seed: int = 0, first: int = 0) -> None:
        """Good files after some accidents: by turns as a folder and by their names."""
        samples = self._folder()
        good = good_files(samples)
        self._attack(Batch("good", sorted(samples.iterdir()), samples))
        for start in range(first, first + count, _MUTATED_AT_A_TIME):
            folder = self._folder()
            for number in range(start, min(start + _MUTATED_AT_A_TIME, first + count)):
                name, data = mutate(good, seed, number)
                (folder / name).write_bytes(data)
            by_name = start // _MUTATED_AT_A_TIME % 2
            self._attack(Batch("mutated", sorted(folder.iterdir()), None if by_name else folder))
            shutil.rmtree(folder)

    def names(self) -> None:
        """Odd names, endings of no image, and what is no file: as a folder, and one by one in a spreadsheet."""
        for kind, write in (("odd name", write_odd_names), ("no file", write_no_files)):
            folder = self._folder()
            files = write(folder)
            self._attack(Batch(kind, files, seconds=_CRAFTED_SECONDS))
            names = [path.relative_to(folder) for path in files]
            self._attack(Batch(kind, names, seconds=_CRAFTED_SECONDS, cwd=folder, table="rows.csv"))
        (self.place.out / "[").mkdir(exist_ok=True)
        self._attack(Batch("odd name", [self.place.files / "good.png"], table="[/b].csv"))
        folder = self._folder()
        for write in (write_odd_names, write_no_images, write_no_files):
            write(folder)
        files = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
        self._attack(Batch("in a folder", files, folder))

    def _write(self, chosen: Sequence[Crafted], folder: Path) -> dict[str, Crafted]:
        for each in chosen:
            each.write(folder / each.name)
        return {str(folder / each.name): each for each in chosen}

    def _folder(self) -> Path:
        self._number += 1
        folder = self.place.files / str(self._number)
        folder.mkdir()
        return folder

    def _attack(self, batch: Batch, *, search: bool = True) -> None:
        """Ask for some files; where that goes wrong and no file can be named for it, search for it."""
        self.report.add(batch.kind, len(batch.files), self._ask(batch, search))

    def _ask(self, batch: Batch, search: bool) -> list[Problem]:
        out, cwd = self.place.out / batch.table, batch.cwd
        out.unlink(missing_ok=True)
        inputs = batch.files if batch.whole is None else [batch.whole]
        limit = START_SECONDS + batch.seconds * len(batch.files)
        outcome = self.place.run("predict", "--out", out, "--", self.place.model, *inputs, seconds=limit, cwd=cwd)
        self.report.add(batch.kind, 0, memory=outcome.memory)
        verdict = judge(outcome, [str(path) for path in batch.files], out, batch.known)
        if not verdict.general:
            return [self._problem(Path(name), what, batch) for name, what in verdict.by_file.items()]
        alone = replace(batch, whole=None)
        if len(batch.files) == 1:
            return [self._problem(batch.files[0], verdict.general, alone)]
        middle = len(batch.files) // 2
        found: list[Problem] = []
        for half in (batch.files[:middle], batch.files[middle:]) if search else ():
            found += self._ask(replace(alone, files=half), search)
        folder = cwd or batch.whole or batch.files[0].parent
        return found or [self._problem(folder, verdict.general, replace(alone, cwd=None))]

    def _problem(self, path: Path, what: str, batch: Batch) -> Problem:
        """Keep the file, and say how to see it again: in its folder or by its name, as it was asked for."""
        cwd = batch.cwd
        there = path if cwd is None else cwd / path
        if not os.path.lexists(there):  # a row of something else than was asked for
            return Problem(str(path), what, "")
        kept = self.report.keep(there)
        asked = kept.parent if batch.whole else kept if cwd is None else kept.name
        table = self.report.folder / batch.table
        table.parent.mkdir(exist_ok=True)
        words = ["parsecaps", "predict", "--out", table, "--", MODEL, asked]
        command = " ".join(quoted(str(word)) for word in words)
        return Problem(path.name, what, command if cwd is None else f"cd {quoted(str(kept.parent))} && {command}")


def quoted(word: str) -> str:
    """A word as bash reads it, whatever bytes are in it."""
    if word.isascii() and word.isprintable():
        return shlex.quote(word)
    escaped = (chr(byte) if 32 <= byte < 127 and byte not in b"'\\" else f"\\x{byte:02x}" for byte in os.fsencode(word))
    return f"$'{''.join(escaped)}'"


def _special(folder: str, names: list[str]) -> list[str]:
    """The names of what cannot be copied: pipes and sockets."""
    modes = {name: os.lstat(os.path.join(folder, name)).st_mode for name in names}
    return [name for name, mode in modes.items() if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)]
