"""Trainings and predictions that are killed at random moments and go on: nothing may be lost, doubled or left."""

import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.attack.commands import Kill, Outcome, Place
from tests.attack.mutated import good_files, mutate
from tests.attack.rows import judge, read_table
from tests.attack.runner import START_SECONDS, Problem, Report

_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_EXIT_CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}
_KILLS_PER_RUN = 3
_SETTINGS = ("model.preset=tiny", "training.epochs=10", "training.batch_size=8", "training.checkpoint_seconds=0.1")
_MUTATED = 300


def train(place: Place, folder: Path, kill: Kill | None = None) -> Outcome:
    """Train on drawn images, or go on with the run if there is one."""
    start = ["train", "phantom:n=72,size=32", *(part for each in _SETTINGS for part in ("--set", each)), "--out"]
    begun = (folder / "config.yaml").exists()
    return place.run(*(["train", "--resume"] if begun else start), folder, seconds=2 * START_SECONDS, kill=kill)


def predict(place: Place, table: Path, kill: Kill | None = None) -> Outcome:
    """Ask for the files that `Killer` has written, or go on with the table if there is one."""
    files = place.files / "to be killed"
    return place.run("predict", "--out", table, place.model, files, seconds=3 * START_SECONDS, kill=kill)


class Killer:
    """Kills commands by a seed, and compares what they come to with what they give undisturbed."""

    def __init__(self, place: Place, report: Report, seed: int = 0) -> None:
        self.place, self.report, self.chance = place, report, random.Random(seed)

    def kill(self, count: int) -> None:
        """Kill as many trainings and as many predictions."""
        self._kill_trainings(count)
        self._kill_predictions(count)

    def _kill_trainings(self, count: int) -> None:
        reference = self.place.out / "undisturbed run"
        first = train(self.place, reference)
        if first.code:
            self.report.add("killed training", 1, [Problem("training", "fails undisturbed", self._relative(first))])
            return
        weights = (reference / "bundle" / "model.safetensors").read_bytes()

        def compare(folder: Path) -> str:
            model = folder / "bundle" / "model.safetensors"
            if not model.is_file() or model.read_bytes() != weights:
                return "ends with other weights than undisturbed"
            left = [path.name for path in folder.rglob("*.tmp")]
            if not (folder / "scores.json").is_file():
                return "ends without scores"
            return f"leaves {left[0]} behind" if left else ""

        for i in range(0, count, _KILLS_PER_RUN):
            folder = self.place.out / f"killed run {i}"
            times = min(_KILLS_PER_RUN, count - i)
            self._until_it_ends("killed training", times, first.seconds, folder, train, compare)

    def _kill_predictions(self, count: int) -> None:
        files = self.place.files / "to be killed"
        files.mkdir()
        good = good_files(files)
        for number in range(_MUTATED):
            name, data = mutate(good, 0, number)
            (files / name).write_bytes(data)
        asked = [str(path) for path in files.iterdir()]
        for i in range(0, count, _KILLS_PER_RUN):
            ending = ".csv" if i // _KILLS_PER_RUN % 2 else ".jsonl"
            reference = self.place.out / f"undisturbed{ending}"
            if not reference.exists():
                first = predict(self.place, reference)
            if judge(first, asked, reference).general:
                self.report.add(
                    "killed prediction", 1, [Problem("prediction", "fails undisturbed", self._relative(first))]
                )
                return
            rows = _rows(reference)

            def compare(table: Path, rows: Counter[tuple[str, int | None]] = rows) -> str:
                found = _rows(table)
                lost, more = rows - found, found - rows
                return f"ends with {lost.total()} rows less and {more.total()} more" if lost or more else ""

            times = min(_KILLS_PER_RUN, count - i)
            table = self.place.out / f"killed {i}{ending}"
            self._until_it_ends("killed prediction", times, first.seconds, table, predict, compare)

    def _until_it_ends(
        self,
        kind: str,
        times: int,
        seconds: float,
        output: Path,
        command: Callable[[Place, Path, Kill | None], Outcome],
        compare: Callable[[Path], str],
    ) -> None:
        """Kill a command several times, let it go on, and compare what it comes to."""
        said = []
        for _ in range(times):
            kill = Kill(self.chance.choice(_SIGNALS), self.chance.uniform(0.2, seconds + 0.5), output)
            outcome = command(self.place, output, kill)
            shown = f"kill -{kill.number.name} after {kill.seconds:.2f} s"
            said.append(shown)
            problem = killed_badly(outcome, kill.number)
            found = [Problem(shown, problem, self._relative(outcome))] if problem else []
            self.report.add(kind, 1, found, outcome.memory)
        last = command(self.place, output, None)
        problem = "; ".join(last.problems) or (f"ends with exit code {last.code}" if last.code else compare(output))
        if problem:
            kept = self.report.keep(output)
            self.report.add(kind, 0, [Problem(", ".join(said), f"{problem}; kept as {kept}", self._relative(last))])
        shutil.rmtree(output) if output.is_dir() else output.unlink(missing_ok=True)

    def _relative(self, outcome: Outcome) -> str:
        """The command as in the folder of the place, which is gone by the time somebody reads it."""
        return outcome.command.replace(f"{self.place.root}/", "")


def killed_badly(outcome: Outcome, number: signal.Signals) -> str:
    """What is wrong with the end of a command that got a signal; before its handlers are there, nothing is."""
    if outcome.problems:
        return "; ".join(outcome.problems)
    allowed = {0, _EXIT_CODES.get(number, -number)}  # 0: it had ended before
    if "new rows" in outcome.printed:  # all was written, and Python was about to end
        allowed.add(-number)
    if outcome.started and outcome.code not in allowed:
        return f"ends with exit code {outcome.code}, not {max(allowed, key=abs)}"
    if outcome.started and "Traceback" in outcome.printed:
        return "prints a traceback"
    return ""


def _rows(table: Path) -> Counter[tuple[str, int | None]]:
    return Counter((row["image"], row["frame"]) for row in read_table(table))
