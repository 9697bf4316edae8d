"""Train as `fit` does, but normalise each image on its own instead of over the batch; run by `test_processes.py`.

python without_batch_statistics.py FOLDER SETTING...
"""

import atexit
import sys

import torch.distributed
from torch import nn

from parsecaps.config import load_config
from parsecaps.nn import capsules
from parsecaps.training import Callbacks
from parsecaps.training.fit import fit


def image_norm(channels: int) -> nn.Module:
    return nn.GroupNorm(1, channels)


def say_whether_the_group_has_ended() -> None:
    print("the group goes on" if torch.distributed.is_initialized() else "the group has ended")


if __name__ == "__main__":
    atexit.register(say_whether_the_group_has_ended)  # the last to be called
    nn.BatchNorm2d = image_norm  # type: ignore[assignment,misc]
    capsules._MOMENTUM = 0.0  # of the usual capsule of each place
    fit(load_config(None, sys.argv[2:]), run_folder=sys.argv[1], callbacks=Callbacks(), score=False)
