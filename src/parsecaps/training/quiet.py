"""Lightning without its advertisements and advice, which are about other ways to use it."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("lightning.pytorch", "lightning.fabric")


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Mute what Lightning says about itself; errors come through."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\.")
        warnings.filterwarnings("ignore", category=FutureWarning)  # of torch, about how Lightning uses it
        warnings.filterwarnings("ignore", message="Grad strides do not match bucket view strides")  # and are copied
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
