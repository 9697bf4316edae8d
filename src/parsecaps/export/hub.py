"""`hub`: a folder for the Hugging Face hub, from where `parsecaps.load("hf://owner/name")` loads it again.

What of a model may be given away, here and in a MONAI bundle: its files by their names, its card and its scores, and
nothing about patients. The files are written anew from what was read, not copied, so what else lies in a folder stays
there. Fingerprints stay too: whoever has an image of a patient could find out by them whether it was learned from.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from parsecaps.explain.strict_tree import STATISTICS_FILE, save_statistics
from parsecaps.export.export import ExportFormat, ExportSource
from parsecaps.files.hub_download import HubName, hub_errors
from parsecaps.metrics.predictions import Predictions
from parsecaps.metrics.scores import Scores
from parsecaps.model import Model
from parsecaps.models.pretrained import weights_digest
from parsecaps.prediction.predict import answer, of_output, predict_images
from parsecaps.report.cards import data_name, hub_card, model_card, run_card

CARD_FILE = "README.md"
PUBLISHED_FILES = ("config.json", "model.safetensors", "bundle.json", "calibration.json", STATISTICS_FILE, CARD_FILE)
_TOLERANCE = 1e-6  # the same network on the same processor


@dataclass(frozen=True)
class Publication:
    """A model that is to be given away, with what its run says of it: card, data set, scores.

    `card` is the text of the run's own card, blank without a run; `data` and `scores` are None where no run is around.
    `licence` is that of the data, which binds whoever uses the weights; None if no licence was given.
    """

    model: Model
    card: str
    data: str | None
    scores: Scores | None
    licence: str | None

    @classmethod
    def of(cls, model: Model) -> "Publication":
        card, run = model.folder and model.folder / CARD_FILE, model.run
        text = run_card(card.read_text(encoding="utf-8")) if card is not None and card.is_file() else ""
        if run is None:
            return cls(model, text, None, None, None)
        text = text or model_card(model, run.config, run.about, run.data_check, run.scores)
        licence = ", ".join(dict.fromkeys(run.config.data.licences)) or None
        return cls(model, text, data_name(run.config, run.data_check), run.scores, licence)


def write_model(model: Model, folder: Path) -> None:
    """Write the published files of a model, but for its card, into a folder."""
    model.save(folder)
    if model.statistics is not None:
        save_statistics(folder, model.statistics, weights_digest(model.network))


def left_out(model: Model, folder: Path) -> list[str]:
    """A line about the files of a model folder that an export leaves out, if there are any."""
    there = {path.name for path in folder.rglob("*")}
    names = sorted({path.name for path in model.folder.iterdir()} - there) if model.folder is not None else []
    return [f"left out: {', '.join(names)}"] if names else []


def check_model(source: ExportSource, answers: Callable[[Tensor], np.ndarray], what: str) -> str:
    """Refuse an export whose answers differ from those of its source; gives a line about the check.

    Shapes:
        - answers: prepared images (B, channels, size, size) to calibrated probabilities and presences (B, K + m)
    """
    largest = 0.0
    for images in (source.drawn(), *source.validation()):
        wanted = numbers_of(source.model, of_output(source.model, answer(source.model, images)))
        found = answers(images)
        if found.shape != wanted.shape:
            raise ValueError(f"{what} failed its check: it has other outputs than the model; nothing was written")
        apart = float(np.abs(found - wanted).max(initial=0.0))
        if not apart <= _TOLERANCE:  # NaN is not
            reason = f"its numbers are up to {apart:.2g} away from those of the model"
            raise ValueError(f"{what} failed its check: {reason}; nothing was written")
        largest = max(largest, apart)
    equal = f"equal to PyTorch to {largest:.0e}" if largest else "exactly equal to PyTorch"
    return f"{equal}, checked on {source.checked_on}"


def numbers_of(model: Model, found: Predictions) -> np.ndarray:
    """Calibrated probabilities and presences, if there are any: (B, K + m)."""
    probabilities = found.probabilities(model.calibration.temperature)
    return probabilities if found.presence is None else np.hstack([probabilities, found.presence])


def licence_on_hub(licence: str) -> str:
    """What the hub calls a licence; `other` where it has no word for it.

    >>> licence_on_hub("CC BY 4.0"), licence_on_hub("CC0"), licence_on_hub("own")
    ('cc-by-4.0', 'cc0-1.0', 'other')
    """
    name = re.sub(r"[\s_]+", "-", licence.strip().casefold()).removesuffix("-license")
    name = {"cc0": "cc0-1.0", "apache": "apache-2.0"}.get(name, name)
    known = r"cc0-1\.0|cc-by(-nc)?(-sa|-nd)?-[234]\.0|mit|apache-2\.0|bsd-[23]-clause|(a|l)?gpl-3\.0|odbl|pddl"
    return name if re.fullmatch(known, name) else "other"


def write(source: ExportSource, path: Path) -> list[str]:
    """Write the folder, check it, and push it where that is asked for."""
    model, about = source.model, Publication.of(source.model)
    write_model(model, path)
    licence = None if about.licence is None else (licence_on_hub(about.licence), about.licence)
    card = hub_card(model, about.card, name=source.push, data=about.data, scores=about.scores, licence=licence)
    (path / CARD_FILE).write_text(card, encoding="utf-8")
    if strange := {each.name for each in path.iterdir()} - {*PUBLISHED_FILES}:
        raise ValueError(f"the export holds {min(strange)}, which is not for others; nothing was written")
    written = Model.load(path, "cpu")
    line = check_model(source, lambda images: numbers_of(written, predict_images(written, images)), "the export to hub")
    lines = [line, *left_out(model, path)]
    if licence is None:
        lines.append(f"nobody named a licence; add one to {CARD_FILE} before others use the model")
    if source.push is not None:
        lines.append(push(path, HubName(source.push), private=source.private))
    return lines


def push(folder: Path, name: HubName, *, private: bool = False) -> str:
    """Upload the published files of a folder to a repository, which is made if it is not there; gives a line about it.

    A repository that is there is only written to if it is as private as was asked for.
    """
    with hub_errors(name):
        from huggingface_hub import HfApi

        api = HfApi()
        url = api.create_repo(name.repository, private=private or None, exist_ok=True)
        is_private = bool(api.model_info(name.repository).private)
    if private and not is_private:
        raise ValueError(f"{url} is there already and public; make it private there, or push to another name")
    with hub_errors(name):
        commit = api.upload_folder(
            repo_id=name.repository,
            folder_path=folder,
            allow_patterns=list(PUBLISHED_FILES),
            commit_message="Model of parsecaps",
        )
    seen_by = "private" if is_private else "public"
    return f"pushed ({seen_by}): {url}; load it with parsecaps.load({str(HubName(name.repository, commit.oid))!r})"


FORMAT = ExportFormat(
    name="hub",
    purpose="giving a model to others on the Hugging Face hub",
    needs="huggingface_hub to push it, and to load it from there",
    gives="a folder: weights, names, preparation, calibration and card; nothing about patients",
    suffix="",
    write=write,
)
