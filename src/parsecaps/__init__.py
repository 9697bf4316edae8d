"""ParseCaps: a capsule network whose routing is a parse tree one can read.

    run = parsecaps.fit("my-images")
    scores = parsecaps.evaluate(run)
    model = parsecaps.load(run)
    model.predict("image.png")

The names are imported when they are first used, so `import parsecaps` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parsecaps.config import Config, load_config
    from parsecaps.pipeline.cross_validate import cross_validate
    from parsecaps.pipeline.evaluate import evaluate
    from parsecaps.pipeline.fit import fit
    from parsecaps.pipeline.model import load

__all__ = ["Config", "cross_validate", "evaluate", "fit", "load", "load_config"]
__version__ = "0.1.0"

_PLACES = {
    "Config": "config",
    "cross_validate": "pipeline.cross_validate",
    "evaluate": "pipeline.evaluate",
    "fit": "pipeline.fit",
    "load": "pipeline.model",
    "load_config": "config",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
