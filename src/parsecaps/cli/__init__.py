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
from parsecaps.cli.evaluate import evaluate
from parsecaps.cli.explain import explain, remember, removed_report
from parsecaps.cli.export import export
from parsecaps.cli.predict import predict
from parsecaps.cli.pretrain import pretrain
from parsecaps.cli.review import review
from parsecaps.cli.serve import serve
from parsecaps.cli.summary import summary
from parsecaps.cli.train import train

app = typer.Typer(
    epilog="Start with `parsecaps demo`. `parsecaps COMMAND --help` has examples.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)


def print_version(wanted: bool) -> None:
    """Print the version and end, if asked to."""
    if wanted:
        print(f"parsecaps {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """ParseCaps: a capsule network for images whose routing is a parse tree one can read."""


app.command()(train)
app.command()(pretrain)
app.command()(evaluate)
app.command()(audit)
app.command()(summary)
app.command()(demo)
app.command()(concepts)
app.command()(predict)
app.command()(explain)
app.command()(remember)
app.command()(serve)
app.command()(review)
app.command()(export)
app.command()(discover)
app.command()(name)
app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(bench)
app.add_typer(data_app, name="data")
app.command("report", hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(
    removed_report
)
