"""Cards of models that are given away: that of the run, with what the place it goes to wants to know."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from parsecaps.config import Config
from parsecaps.metrics.scores import Scores
from parsecaps.model import Model
from parsecaps.report.pages import render

_USE = "\n<!-- how to use -->\n"
_METRICS = {"macro_auroc": "roc_auc", "macro_f1": "f1", "macro_precision": "precision", "macro_recall": "recall"}
_TAGS = ("parsecaps", "capsule-network", "medical-imaging", "interpretability")


def data_name(config: Config, data: Mapping[str, Any]) -> str:
    """What the data set of a run is called, without the place where it lies; `data` is `data.json`."""
    return config.data.path if data["source"] == "phantom" else PurePath(config.data.path).name


def run_card(text: str) -> str:
    r"""The part of a card that the run wrote, without what an earlier export added.

    >>> run_card("---\nlicense: mit\n---\n# Model\n\n<!-- how to use -->\n## How to use\n")
    '# Model\n'
    """
    text = re.sub(r"\A---\n.*?\n---\n+", "", text.replace("\r\n", "\n"), flags=re.DOTALL)
    return text.partition(_USE)[0]


def hub_card(
    model: Model,
    card: str,
    *,
    name: str | None,
    data: str | None,
    scores: Scores | None,
    licence: tuple[str, str] | None,
) -> str:
    """A card with the YAML that the Hugging Face hub reads, and how to load the model from there.

    `name` is that of the repository, with its owner, where it is known; `licence` is what the hub calls the licence,
    and its own name.
    """
    about: dict[str, Any] = {}
    if licence is not None:
        about["license"] = licence[0]
        if licence[0] == "other":
            about["license_name"] = re.sub(r"[^a-z0-9.]+", "-", licence[1].casefold()).strip("-")
    about |= {
        "library_name": "parsecaps",
        "pipeline_tag": "image-classification",
        "tags": [*_TAGS, *(["concept-bottleneck"] if model.network.config.get("head") == "bottleneck" else [])],
    }
    if scores is not None and data is not None:
        metrics = _model_index(scores)
        where = {"type": re.sub(r"[^A-Za-z0-9]+", "-", data).strip("-"), "name": data}
        if scores.cases:
            where["split"] = scores.cases.removesuffix(" part")
        results = [{"task": {"type": "image-classification"}, "dataset": where, "metrics": metrics}]
        about["metrics"] = [each["type"] for each in metrics]
        about["model-index"] = [{"name": name or type(model.network).__name__, "results": results}]
    matter = yaml.safe_dump(about, sort_keys=False, allow_unicode=True)
    return f"---\n{matter}---\n\n" + _with_use(model, card, "hub_use.md", name=name)


def monai_card(model: Model, card: str, *, configs: Sequence[str]) -> str:
    """A card that says how to run a MONAI bundle, and what that means for one that a stranger wrote."""
    return _with_use(model, card, "monai_use.md", configs=configs)


def _with_use(model: Model, card: str, template: str, **content: Any) -> str:
    """The card of the run, or a short one, and how to use the model where it lies now."""
    above = card or render("short_card.md", model=model)
    return above.rstrip("\n") + "\n" + _USE + render(template, model=model, **content)


def _model_index(scores: Scores) -> list[dict[str, Any]]:
    """The main scores, as the hub lists them."""
    single = {each.name: scores[each.name] for each in scores.main_metrics}
    return [
        {
            "type": _METRICS.get(each.name, each.name),
            "value": round(float(value), 6),
            "name": f"{each.title}: {each.with_interval(single[each.name])}, n = {single[each.name].n:,}",
        }
        for each in scores.main_metrics
        if (value := single[each.name].value) is not None
    ]
