"""Pages of explained cases, and one that explains in the browser: a document or a model, and a script (`page/src`)."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from parsecaps import __version__
from parsecaps.explain.explanation import Explanation
from parsecaps.files.writing import write_text
from parsecaps.metrics import Scores, find_metric
from parsecaps.report.explanation_document import ExplanationDocument, explanation_document
from parsecaps.report.pages import render, template_text
from parsecaps.report.pictures import base64_text, base85_text, data_uri
from parsecaps.run import Run


def case_page(explanations: Sequence[Explanation], *, title: str = "Cases", errors: Sequence[str] = ()) -> str:
    """The whole page as HTML. All cases are of one model; `errors` are lines about images that could not be read."""
    document = explanation_document(explanations, title=title, errors=errors, pictures=True)
    return render("cases.html", title=title, **_content(script_text(document)))


def save_page(explanations: Explanation | Sequence[Explanation], path: str | Path, *, title: str = "Cases") -> Path:
    """Write the page of one explanation or several to `path`: one file that needs no network."""
    cases = [explanations] if isinstance(explanations, Explanation) else explanations
    write_text(path, case_page(cases, title=title))
    return Path(path)


def demo_page(run: Run, scores: Scores, explanations: Sequence[Explanation], folder: str) -> str:
    """The page of `parsecaps demo`: what was reached, and some unseen cases; `folder` is that of the run."""
    minutes, seconds = divmod(round(run.about["seconds"]), 60)
    return render(
        "demo.html",
        scores=scores,
        find_metric=find_metric,
        run=folder,
        model=run.folder,
        seconds=f"{minutes} minutes {seconds} seconds" if minutes else f"{seconds} seconds",
        curves=data_uri(run.curves_file.read_bytes()),
        **_content(script_text(explanation_document(explanations, pictures=True))),
    )


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
    (ONNX, in four planes) and `runtime` (WebAssembly) are gzip; `licence` is that of the runtime.
    """
    return render(
        "web.html",
        title=about["title"],
        facts=facts,
        version=__version__,
        policy=policy(script, runs_wasm=True),
        style=Markup(view_style()),
        about=Markup(json_text(about)),
        network=Markup(base85_text(network)),
        runtime=Markup(base85_text(runtime)),
        script=Markup(script),
        licence=licence,
    )


def report_shell() -> str:
    """The page of explained cases with a place for their document, which `page/src/app/report.js` fills in."""
    place = "the document goes here"  # as `page/src/app/report.js` knows it
    return render("cases.html", title="Report", **_content(json.dumps(place)))


def view_style() -> str:
    """The whole style of a page with the view: light, dark and paper."""
    return "".join(template_text(name) for name in ("base.css", "dark.css", "tree.css", "view.css"))


def script_text(document: ExplanationDocument) -> str:
    r"""The document as JSON that nothing can end early inside of a `<script>`.

    >>> "<" in script_text(ExplanationDocument.model_construct(version=4, title="</script>"))
    False
    """
    return json_text(document.to_dict())


def json_text(values: dict[str, Any]) -> str:
    """Plain values as JSON for the inside of a `<script>`."""
    text = json.dumps(values, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def policy(script: str, *, runs_wasm: bool = False) -> str:
    """The content-security policy of a page that loads nothing and runs this script alone, and its WebAssembly."""
    digest = base64_text(hashlib.sha256(script.encode()).digest())
    allowed = ["img-src data:", "style-src 'unsafe-inline'", f"script-src 'sha256-{digest}'"]
    if runs_wasm:
        allowed[-1] += " 'wasm-unsafe-eval'"
        allowed.append("connect-src 'none'")  # as without it, said for those who look
    return "; ".join(("default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"))


def _content(explanation: str) -> dict[str, Any]:
    """What view_base.html and view.html need; the explanation is JSON that is safe inside of a `<script>`."""
    script = template_text("page.js")
    texts = {"style": view_style(), "script": script, "explanation": explanation}
    return {"policy": policy(script), **{name: Markup(text) for name, text in texts.items()}}
