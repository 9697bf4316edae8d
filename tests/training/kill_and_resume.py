"""Train once undisturbed, then again with the process killed (kill -9, SIGTERM) over and over; run by `test_resume.py`.

    python kill_and_resume.py FOLDER

Each training is a process of its own, forked from this one so that torch and Fabric are imported only once. Prints
what happened as JSON.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from parsecaps.config import load_config
from parsecaps.system.signals import TerminatedError
from parsecaps.training import Callbacks, checkpoint
from parsecaps.training import fit as training_fit

SETTINGS = [
    "data.path=phantom:n=72,size=32",
    "model.preset=tiny",
    "training.epochs=3",
    "training.batch_size=4",
    "training.ema=0.9",
    "training.class_balance=sampling",
    "training.checkpoint_seconds=0",
]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_within_write(number: int) -> Callable[[], None]:
    """Write half of the checkpoint of this number, and die."""

    def arrange() -> None:
        whole, count = torch.save, 0

        def half(content: dict, file: object) -> None:
            nonlocal count
            count += 1
            whole(content, file)
            if count == number:
                file.truncate(file.tell() // 2)  # type: ignore[attr-defined]
                die()

        checkpoint.torch.save = half

    return arrange


def die_before_last_of_epoch(epoch: int) -> Callable[[], None]:
    """Die when the best weights of an epoch are written, but not the checkpoint that knows of them."""

    def arrange() -> None:
        from parsecaps.training import loop

        write = loop.write_tensors

        def then_die(path: Path, content: dict) -> None:
            write(path, content)
            if path.name == f"best-{epoch:04}.pt":
                die()

        loop.write_tensors = then_die

    return arrange


def die_at_the_end() -> None:
    """Die when training is over and the model is about to be written."""
    training_fit._save_bundle = lambda run, model: die()


def start(folder: Path, arrange: Callable[[], None] = lambda: None) -> int:
    child = os.fork()
    if child:
        return child
    try:
        arrange()
        torch.set_num_threads(1)
        if (folder / "config.yaml").exists():
            training_fit.fit(resume=folder, callbacks=Callbacks(), score=False)
        else:
            training_fit.fit(load_config(None, SETTINGS), run_folder=folder, callbacks=Callbacks(), score=False)
        os._exit(0)
    except TerminatedError:
        os._exit(143)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def place(folder: Path) -> list[int]:
    """The epoch and the batch to come, as the checkpoint has them."""
    last = folder / "checkpoints" / "last.pt"
    position = torch.load(last, weights_only=True)["position"] if last.exists() else {"epoch": 0, "batch": 0}
    return [position["epoch"], position["batch"]]


def main(folder: Path) -> None:
    began = time.perf_counter()
    assert wait(start(folder / "whole")) == 0
    seconds = time.perf_counter() - began
    killed, ends, places = folder / "killed", [], []
    for arrange in (die_within_write(1), die_within_write(4), die_before_last_of_epoch(1)):
        ends.append(wait(start(killed, arrange)))
        places.append(place(killed))
    moments = random.Random(int(time.time()))
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
        before, child, limit = place(killed), start(killed), time.perf_counter() + 30
        while place(killed) == before and time.perf_counter() < limit:  # it reads the data, and then gets somewhere
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.06) * seconds)
        os.kill(child, number)
        ends.append(wait(child))
        places.append(place(killed))
    ends += [wait(start(killed, die_at_the_end)), wait(start(killed))]
    print(json.dumps({"ends": ends, "places": places}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
