"""ParseCaps: a capsule network whose routing is a parse tree one can read.

    run = parsecaps.fit("my-images")
    scores = parsecaps.evaluate(run)
    model = parsecaps.load(run)
    model.predict("image.png")
    parsecaps.save_page(model.explain("image.png"), "page.html")

The names are imported when they are first used, so `import parsecaps` is quick.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parsecaps.config import Config, load_config
    from parsecaps.data.sources import open_data
    from parsecaps.evaluation import compare, evaluate
    from parsecaps.model import Model, load
    from parsecaps.models import ParseCaps, load_model
    from parsecaps.nn import record_couplings
    from parsecaps.report.case_page import save_page
    from parsecaps.run import Run
    from parsecaps.training.callbacks import Callbacks
    from parsecaps.training.cross_validate import cross_validate
    from parsecaps.training.fit import fit
    from parsecaps.training.pretrain import pretrain

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # ONNX Runtime reads it once, as it is loaded

__version__ = "0.2.0"
__all__ = [
    "Callbacks",
    "Config",
    "Model",
    "ParseCaps",
    "Run",
    "compare",
    "cross_validate",
    "evaluate",
    "fit",
    "load",
    "load_config",
    "load_model",
    "open_data",
    "pretrain",
    "record_couplings",
    "save_page",
]

_NAMES = {
    "config": "Config load_config",
    "data.sources": "open_data",
    "evaluation": "compare evaluate",
    "model": "Model load",
    "models": "ParseCaps load_model",
    "nn": "record_couplings",
    "report.case_page": "save_page",
    "run": "Run",
    "training.callbacks": "Callbacks",
    "training.cross_validate": "cross_validate",
    "training.fit": "fit",
    "training.pretrain": "pretrain",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
