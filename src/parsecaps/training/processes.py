"""How many processes train together, and which of them this one is, as their starter says in the environment."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Processes:
    """`count` processes on `machines` machines; this one has the number `rank`, from 0."""

    rank: int = 0
    count: int = 1
    machines: int = 1
    by_torchrun: bool = False

    @property
    def is_main(self) -> bool:
        """Whether this is the one that prints and writes files."""
        return self.rank == 0

    @property
    def per_machine(self) -> int:
        return self.count // self.machines


def find_processes(devices: int) -> Processes:
    """Those of torchrun, or `devices` that Lightning starts from this one (a started one has its LOCAL_RANK)."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        count, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
        return Processes(int(os.environ["RANK"]), count, count // here, by_torchrun=True)
    return Processes(int(os.environ.get("LOCAL_RANK", 0)) if devices > 1 else 0, devices)
