"""`parsecaps bench`: a door to the benchmarks, which come with the source and not with the package."""

import importlib
import sys
from pathlib import Path

import typer

import parsecaps
from parsecaps.cli.command import command

_CHECKOUT = Path(parsecaps.__file__).parents[2]


@command()
def bench(context: typer.Context) -> None:
    """Measure speed, memory and routes on this machine; `parsecaps bench` lists what there is.

    The benchmarks come with the source: `python -m benchmarks` in a checkout is the same.

    **Examples**

    - `parsecaps bench speed --quick`
    - `parsecaps bench routes --out runs/parts`
    """
    if not (_CHECKOUT / "benchmarks" / "__main__.py").is_file():
        raise FileNotFoundError("the benchmarks come with the source; clone it, and run python -m benchmarks there")
    if str(_CHECKOUT) not in sys.path:
        sys.path.insert(0, str(_CHECKOUT))
    importlib.import_module("benchmarks.__main__").app(args=context.args, prog_name="parsecaps bench")
