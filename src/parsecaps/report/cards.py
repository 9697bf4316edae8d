"""Cards in Markdown: of a run's model, of one that is given away, and of weights to start from."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import yaml

from parsecaps.config import Config
from parsecaps.data.splits import describe_unused
from parsecaps.metrics import Scores, find_metric
from parsecaps.model import Model, is_unnamed
from parsecaps.models.summary import count_parameters
from parsecaps.nn.trunk import NO_TRUNK, TRUNKS, describe_trunk
from parsecaps.report.pages import render

_PARTS = {"train": "training", "val": "validation", "test": "test", "unused": "unused"}
_USE = "\n<!-- how to use -->\n"
_METRICS = {"macro_auroc": "roc_auc", "macro_f1": "f1", "macro_precision": "precision", "macro_recall": "recall"}
_TAGS = ("parsecaps", "capsule-network", "medical-imaging", "interpretability")
_COLUMNS = ("accuracy", "macro_auroc", "mean_auroc")


def describe_start(about: Mapping[str, Any]) -> str:
    """What a run was started from, by `run.json`, without the place where it lies; nothing for new weights."""
    start = about.get("start")
    if start is None:
        return ""
    share = f"{start['taken']:,} of {start['parameters']:,} weights"
    images = "an unknown number of" if start["images"] is None else f"{start['images']:,}"
    place = PurePath(start["weights"])
    name = place.parent.name if place.name == "bundle" and place.parent.name else place.name
    return f"{name} ({start['digest']}), learned from {images} images: {share}"


def model_card(
    model: Model, config: Config, about: Mapping[str, Any], data: Mapping[str, Any], scores: Scores | None
) -> str:
    """The card of a run's model, from what the run wrote down: `run.json` as `about`, `data.json` as `data`.

    Every number in it was counted or measured. `scores` are None where nobody was left to score the model on.
    """
    return render(
        "model_card.md",
        model=model,
        named=[name for name in model.concepts if not is_unnamed(name)],
        parameters=count_parameters(model.network),
        config=config,
        about=about,
        origin=describe_start(about),
        trunk=describe_trunk(trunk) if (trunk := model.network.config.get("trunk", NO_TRUNK)) in TRUNKS else "",
        data=data,
        name=data_name(config, data),
        parts={part: title for part, title in _PARTS.items() if data["patients_by_part"][part]},
        unused=describe_unused(data.get("unused", {})),  # not in runs before 0.2
        scores=scores,
        find_metric=find_metric,
    )


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
        metrics = [
            {
                "type": _METRICS.get(each.name, each.name),
                "value": round(score.value, 6),
                "name": f"{each.title}: {each.with_interval(score)}, n = {score.n:,}",
            }
            for each in scores.main_metrics
            if (score := scores[each.name]).value is not None
        ]
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
    above = card or render("short_card.md", model=model)
    return above.rstrip("\n") + "\n" + _USE + render(template, model=model, **content)


def weights_card(model: Model, config: Config, about: Mapping[str, Any], sources: Sequence[Mapping[str, Any]]) -> str:
    """The card as Markdown; every number in it was counted or measured.

    Of each source its `name`, `licence` and `member` (a data set), how many of its `images` and `patients` were learned
    from, and the `scores` of its own head, if any.
    """
    return render(
        "weights_card.md",
        model=model,
        config=config,
        about=about,
        origin=describe_start(about),
        sources=sources,
        columns=_COLUMNS,
        parameters=count_parameters(model.network),
    )
