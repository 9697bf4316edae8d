"""Runs `parsecaps` as a stranger does, in a folder of its own, and watches its time, its memory and what it leaves."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree

MODEL = Path(__file__).parents[1] / "golden" / "parallel"
MAIN_BYTES = 10**9  # the most that the main process may take
_GUARD_BYTES = 4 * 10**9  # all of its processes together are ended beyond this, so that the machine stays usable
_SAMPLE_SECONDS = 0.03
_LINGER_SECONDS = 5.0  # that other processes may take to end after the main one
_HELD = ("home", "victim", "files", "model", "work")  # nothing in these may change


@dataclass(frozen=True)
class Memory:
    """Peaks in bytes: of the main process, of the largest process, and of all together."""

    main: int = 0
    largest: int = 0
    tree: int = 0

    def __or__(self, other: "Memory") -> "Memory":
        return Memory(max(self.main, other.main), max(self.largest, other.largest), max(self.tree, other.tree))


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit code, what it printed, and what was wrong whatever it was asked to do.

    `started` says of a killed command whether it had a handler for signals, or had written, when the signal came.
    """

    command: str
    code: int
    stdout: str
    stderr: str
    seconds: float
    memory: Memory
    started: bool = True
    problems: list[str] = field(default_factory=list)

    @property
    def printed(self) -> str:
        return self.stdout + self.stderr


@dataclass(frozen=True)
class Kill:
    """A signal, when it is sent, and the file or folder whose change shows that the command has begun its work.

    With `wait` it is sent as soon as there is such a change, but not before `seconds`.
    """

    number: signal.Signals
    seconds: float
    output: Path
    wait: bool = False


class Place:
    """A folder with a home, a victim's files, a model, files to read, and the one folder that may be written to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in (*_HELD, "out", "tmp", "cache"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self.files, self.out, self.victim, self.work = (root / name for name in ("files", "out", "victim", "work"))
        self.model = root / "model" / "run"
        if not self.model.exists():
            copytree(MODEL, self.model)
        for name in ("precious.txt", "best-0001.pt", "last.pt", "model.safetensors"):
            (self.victim / name).write_text("precious\n", encoding="utf-8")

    def run(
        self,
        *arguments: str | Path,
        seconds: float,
        cwd: Path | None = None,
        kill: Kill | None = None,
        held: Sequence[Path] = (),
    ) -> Outcome:
        """Run `parsecaps` with these arguments; `held` are folders that may not change, beside those of the place."""
        command = [sys.executable, "-m", "parsecaps", *map(str, arguments)]
        watched = [*(self.root / name for name in _HELD), *held]
        before = snapshot(watched)
        log = self.root / "log"
        with (
            open(log.with_suffix(".out"), "w+b") as stdout,
            open(log.with_suffix(".err"), "w+b") as stderr,
            subprocess.Popen(
                command,
                cwd=cwd or self.work,
                env=self.environment(),
                stdin=subprocess.PIPE,  # open, and nothing ever comes: who reads it waits
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            ) as process,
        ):
            watch = _Watch(process, seconds, kill)
            watch.until_it_ends()
            for stream in (stdout, stderr):
                stream.seek(0)
            printed = [stream.read().decode("utf-8", "replace") for stream in (stdout, stderr)]
        problems = [*watch.problems, *changes(before, snapshot(watched))]
        left = sorted(path.name for path in (self.root / "tmp").iterdir())
        if left and kill is None and not watch.problems:
            problems.append(f"leaves {left[0]} in the folder of temporary files")
        shown = f"cd {shlex.quote(str(cwd or self.work))} && {shlex.join(['parsecaps', *command[3:]])}"
        code = process.returncode
        return Outcome(shown, code, *printed, watch.seconds, watch.memory, watch.started, problems)

    def held(self) -> dict[str, tuple[int, ...]]:
        """What nobody may change, as it is now."""
        return snapshot([self.root / name for name in _HELD])

    def environment(self) -> dict[str, str]:
        """That of a command: no folder of the user's own is in it."""
        cache = str(self.root / "cache")
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PARSECAPS_")}
        caches = ("MPLCONFIGDIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME", "PARSECAPS_CACHE")
        kept |= dict.fromkeys(caches, cache)
        own = {"HOME": str(self.root / "home"), "TMPDIR": str(self.root / "tmp"), "COLUMNS": "120"}
        return kept | own | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


class _Watch:
    """Looks at a running command again and again; ends it where it takes too long or too much memory."""

    def __init__(self, process: subprocess.Popen[bytes], limit: float, kill: Kill | None) -> None:
        self.process, self.limit, self.kill = process, limit, kill
        self.begun, self.seconds, self.memory, self.started = time.monotonic(), 0.0, Memory(), True
        self.before = _changed_at(kill.output) if kill is not None else None
        self.problems: list[str] = []

    def until_it_ends(self) -> None:
        """Wait for the command and for all processes that it started."""
        while self.process.poll() is None:
            self.seconds = time.monotonic() - self.begun
            self._measure()
            if self.kill is not None and self.seconds > self.kill.seconds:
                self._send(self.kill)
            if self.memory.tree > _GUARD_BYTES:
                self._end(f"takes more than {_GUARD_BYTES / 1e9:g} GB of memory")
            elif self.seconds > self.limit:
                self._end(f"does not end within {self.limit:.0f} s")
            time.sleep(_SAMPLE_SECONDS)
        if self.memory.main > MAIN_BYTES and not self.problems:
            self.problems.append(f"the main process takes {self.memory.main / 1e9:.1f} GB of memory")
        end = time.monotonic() + (0 if self.problems else _LINGER_SECONDS)
        while (left := list(_session(self.process.pid))) and time.monotonic() < end:
            time.sleep(_SAMPLE_SECONDS)
        if left and not self.problems:
            self.problems.append(f"leaves {len(left)} processes behind")
        _kill(left)

    def _send(self, kill: Kill) -> None:
        wrote = _changed_at(kill.output) != self.before
        if wrote or not kill.wait:
            self.started = wrote or _catches(self.process.pid, signal.SIGTERM)
            self.process.send_signal(kill.number)
            self.kill = None

    def _measure(self) -> None:
        self.memory |= memory_of(self.process.pid)

    def _end(self, problem: str) -> None:
        self.problems.append(problem)
        _kill(list(_session(self.process.pid)))
        self.process.wait()


def memory_of(leader: int) -> Memory:
    """The memory of a command and of all that it started: the most that each took, and what all take now."""
    sizes = {process: _memory(process) for process in _session(leader)}
    largest, tree = max((peak for peak, _ in sizes.values()), default=0), sum(now for _, now in sizes.values())
    return Memory(sizes.get(leader, (0, 0))[0], largest, tree)


def _session(leader: int) -> Iterator[int]:
    """The processes that a command has started, itself among them, while they live."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if os.getsid(int(name)) == leader and _status(int(name)).get("State", "Z")[0] not in "ZX":
                    yield int(name)
            except OSError:  # it ended meanwhile
                continue


def _status(process: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _memory(process: int) -> tuple[int, int]:
    """The most that a process took so far, and what it takes now, in bytes."""
    status = _status(process)
    peak, now = (int(status.get(name, "0 kB").split()[0]) * 1024 for name in ("VmHWM", "VmRSS"))
    return peak, now


def _changed_at(path: Path) -> int | None:
    return path.stat().st_ctime_ns if path.exists() else None


def _catches(process: int, number: signal.Signals) -> bool:
    return bool(int(_status(process).get("SigCgt", "0"), 16) >> (number - 1) & 1)


def _kill(processes: Sequence[int]) -> None:
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue


def snapshot(folders: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """What is there and when it was last changed; nobody can set the time of the last change of a file back."""
    found = {}
    for folder in folders:
        for parent, names, files in os.walk(folder):
            for name in (".", *names, *files):
                path = os.path.join(parent, name)
                about = os.lstat(path)
                found[path] = (about.st_mode, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    return found


def changes(before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]]) -> list[str]:
    """What was deleted, added or changed between two snapshots, the first of each."""
    gone, new = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    written = sorted(path for path in before.keys() & after.keys() if before[path] != after[path])
    words: list[tuple[str, list[str]]] = [("deletes", gone), ("adds", new), ("changes", written)]
    return [f"{verb} {paths[0]!a}" for verb, paths in words if paths]


def one_line(outcome: Outcome, *, of_training: bool = False) -> list[str]:
    """What is wrong with how a command ended that may refuse what it was given.

    A training says more before, and ends with 1 where its model is there but could not be scored.
    """
    lines = outcome.stderr.splitlines()[-1:] if of_training else outcome.stderr.splitlines()
    found = [] if "Traceback" not in outcome.printed else ["prints a traceback"]
    if outcome.code not in ((0, 1, 2) if of_training else (0, 2)):
        found.append(f"ends with exit code {outcome.code}")
    elif outcome.code == 2 and (len(lines) != 1 or not lines[0].startswith("error: ")):
        found.append(f"says why in {len(lines)} lines")
    return outcome.problems or found
