"""`python -m tests.attack`: the whole attack, as CONTRIBUTING.md says."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.attack.commands import Place
from tests.attack.kills import Killer
from tests.attack.model_folders import attack_models, attack_runs
from tests.attack.runner import FileAttack, Report
from tests.attack.served import ServedAttack


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="how many mutated files")
    parser.add_argument("--first", type=int, default=0, help="the number of the first of them, to repeat one")
    parser.add_argument("--kills", type=int, default=30, help="how many kills of trainings, and as many of predictions")
    parser.add_argument(
        "--through", choices=("command", "server", "both"), default="both", help="the way that files take"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where files that make trouble are kept; a new folder if left out")
    arguments = parser.parse_args()
    begun = time.monotonic()
    report = Report((arguments.out or Path(tempfile.mkdtemp(prefix="attack-"))).resolve())
    with tempfile.TemporaryDirectory(prefix="attack-place-") as root:
        place = Place(Path(root))
        files = FileAttack(place, report)
        by_command = {
            "mutated files": lambda: files.mutated(arguments.files, arguments.seed, arguments.first),
            "crafted files": files.crafted,
            "names": files.names,
            "models": lambda: attack_models(place, report),
            "runs": lambda: attack_runs(place, report),
            "kills": lambda: Killer(place, report, arguments.seed).kill(arguments.kills),
        }

        def by_server() -> None:
            with ServedAttack(place, report) as served:
                served.mutated(arguments.files, arguments.seed, arguments.first)
                served.crafted(at_a_time=1)

        steps = by_command if arguments.through != "server" else {}
        if arguments.through != "command":
            steps = {**steps, "files to a server": by_server}
        for name, step in steps.items():
            print(f"{time.monotonic() - begun:7.0f} s  {name}", file=sys.stderr, flush=True)
            step()
    print("\n".join(report.lines()))
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
