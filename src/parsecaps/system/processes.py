"""How many processes work together, and which of them this one is."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Processes:
    """`count` processes on `machines` machines, this one with the number `rank`; started by torchrun, or by Fabric."""

    rank: int = 0
    count: int = 1
    machines: int = 1
    by_torchrun: bool = False

    @property
    def is_main(self) -> bool:
        """Whether this is the one that prints and writes files."""
        return self.rank == 0

    @property
    def here(self) -> int:
        """How many of them share this machine."""
        return self.count // self.machines


def find_processes(devices: int) -> Processes:
    """Those of torchrun, or `devices` that Fabric starts from this one (a started one has its LOCAL_RANK)."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        count, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
        return Processes(int(os.environ["RANK"]), count, count // here, by_torchrun=True)
    return Processes(int(os.environ.get("LOCAL_RANK", 0)) if devices > 1 else 0, devices)


def meet() -> None:
    """Wait until all processes that torchrun started are here."""
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
