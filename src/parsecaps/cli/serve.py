"""`parsecaps serve`: a trained model behind an address, for programs and persons."""

import os
from pathlib import Path
from typing import Annotated

import typer

from parsecaps.cli.command import Given, argument, command, option
from parsecaps.cli.demo import FOLDER, RUN
from parsecaps.cli.output import display
from parsecaps.serve.settings import ServeConfig

_TOKEN = "PARSECAPS_TOKEN"
_TOKEN_HELP = f"The token itself, which other users of the machine may see; or {_TOKEN} in the environment."


@command(ServeConfig, "risk", "review", "device")
def serve(
    given: Given[ServeConfig],
    model: Annotated[Path | None, argument("[MODEL]", "A run or a saved model; the demo's if left out.")] = None,
    host: Annotated[str, typer.Option(help="Where to listen; others than this machine need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 8000,
    token_file: Annotated[Path | None, option("FILE", "Ask every client for the token in this file.")] = None,
    token: Annotated[str | None, typer.Option(help=_TOKEN_HELP)] = None,
) -> None:
    """Serve a trained model over HTTP, for programs and people, until Ctrl-C.

    People open the address in a browser. Programs send images to `/api/predict` and `/api/explain`, as `/docs`
    describes. The answers are those of `parsecaps predict` and `parsecaps explain`. Only reviewed images are kept. Not
    a medical device.

    **Examples**

    - `parsecaps serve runs/cases-1`
    - `parsecaps serve runs/cases-1 --risk 0.1 --port 9000`
    - `parsecaps serve runs/cases-1 --host 0.0.0.0 --token-file token`
    - `parsecaps serve runs/cases-1 --review reviews.sqlite`
    - `parsecaps serve` (the model of `parsecaps demo`)
    """
    from parsecaps.serve.server import check_token, listen
    from parsecaps.serve.server import serve as run_server
    from parsecaps.serve.service import Service

    chosen = given.load()
    secret = _secret(token, token_file)
    check_token(host, secret)
    folder = _demo_model() if model is None else model
    with listen(host, port) as listening:
        service = Service(folder, chosen)

        def say(address: str) -> None:
            display(f"{folder} at {address}", f"answers by {service.runtime}")
            if chosen.review is not None:
                display(f"reviews, and the images that are reviewed, are kept in {chosen.review}")
            display(f"for programs: {address}/docs; to stop: Ctrl-C")

        run_server(service, listening, host=host, token=secret, say=say)


def _secret(token: str | None, file: Path | None) -> str | None:
    if token is not None and file is not None:
        raise ValueError("--token and --token-file are both given; give one of them")
    if file is None:
        return token if token is not None else os.environ.get(_TOKEN)
    with file.open(encoding="ascii", errors="replace") as content:
        return content.readline(10_000).strip()


def _demo_model() -> Path:
    """The newest run of `parsecaps demo` in this folder."""
    from parsecaps.model import BUNDLE_FILE

    found = [path.parents[1] for path in Path().glob(f"{FOLDER}*/{RUN}/bundle/{BUNDLE_FILE}")]
    if not found:
        raise ValueError("there is no model; run parsecaps demo first, or give the folder of a run or of a saved model")
    return max(found, key=lambda run: run.stat().st_mtime)
