"""The page that runs a model in a browser: network, ONNX Runtime and script (`page/src/web`) inside one file."""

from collections.abc import Sequence
from typing import Any

from parsecaps import __version__
from parsecaps.report.case_page import json_text, policy, view_style
from parsecaps.report.pages import render
from parsecaps.report.pictures import base64_text


def web_page(
    about: dict[str, Any],
    facts: Sequence[tuple[str, str]],
    *,
    network: bytes,
    runtime: bytes,
    script: str,
    licence: str,
) -> str:
    """The whole page as HTML.

    `about` is what the script must know of the model (`About` in `page/src/web/case.js`), `facts` are shown. `network`
    (ONNX) and `runtime` (WebAssembly) are gzip; `licence` is that of the runtime.
    """
    from markupsafe import Markup

    return render(
        "web.html",
        title=about["title"],
        facts=facts,
        version=__version__,
        policy=policy(script, runs_wasm=True),
        style=Markup(view_style()),
        about=Markup(json_text(about)),
        network=Markup(base64_text(network)),
        runtime=Markup(base64_text(runtime)),
        script=Markup(script),
        licence=licence,
    )
