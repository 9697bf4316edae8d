"""The command line, which puts everything together: `parsecaps --help`.

torch and rich are imported inside the commands, so that help is there at once.
"""

from typing import Annotated

import typer

from parsecaps import __version__
from parsecaps.cli.audit import audit
from parsecaps.cli.bench import bench
from parsecaps.cli.concepts import concepts
from parsecaps.cli.data import data_app
from parsecaps.cli.demo import demo
from parsecaps.cli.discover import discover, name
from parsecaps.cli.doctor import doctor
from parsecaps.cli.evaluate import evaluate
from parsecaps.cli.explain import explain, remember
from parsecaps.cli.export import export
from parsecaps.cli.predict import predict
from parsecaps.cli.pretrain import pretrain
from parsecaps.cli.reproduce import reproduce
from parsecaps.cli.review import review
from parsecaps.cli.serve import serve
from parsecaps.cli.summary import summary
from parsecaps.cli.train import train

# Headings of the help, in its order. Those that people need first come first, in the order in which they need them.
FIRST = "Start here, in this order"
DATA = "Data"
MEASURE = "Networks, measurements and this machine"
COMMANDS = {
    FIRST: (demo, train, evaluate, predict, explain),
    DATA: (concepts, review),
    "Explanations and concepts": (audit, remember, discover, name),
    "Use a model elsewhere": (serve, export),
    MEASURE: (reproduce, pretrain, summary, doctor),
}

app = typer.Typer(
    epilog="`parsecaps demo --quick` is the shortest way in. `parsecaps COMMAND --help` has examples.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version and end.")] = False) -> None:
    """ParseCaps: a capsule network for images whose routing is a parse tree one can read."""
    if version:
        print(f"parsecaps {__version__}")
        raise typer.Exit


for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(data_app, name="data", rich_help_panel=DATA)
app.command(
    short_help="Measure speed, memory and routes (in a checkout of the source).",
    rich_help_panel=MEASURE,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(bench)
