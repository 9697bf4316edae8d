"""`hub`: a folder for the Hugging Face hub, from where `parsecaps.load("hf://owner/name")` loads it again."""

from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from parsecaps.export.format import ExportFormat, ExportOptions, ExportSource
from parsecaps.export.published import (
    CARD_FILE,
    PUBLISHED_FILES,
    Publication,
    check_model,
    left_behind,
    licence_on_hub,
    write_model,
)
from parsecaps.files.hub_download import HubName, hub_errors
from parsecaps.model import Model
from parsecaps.prediction.predict import predict_images
from parsecaps.report.cards import hub_card


def write(source: ExportSource, path: Path, options: ExportOptions) -> list[str]:
    """Write the folder, check it, and push it where that is asked for."""
    model, about = source.model, Publication.of(source.model)
    write_model(model, path)
    licence = None if about.licence is None else (licence_on_hub(about.licence), about.licence)
    card = hub_card(model, about.card, name=options.push, data=about.data, scores=about.scores, licence=licence)
    (path / CARD_FILE).write_text(card, encoding="utf-8")
    if strange := {each.name for each in path.iterdir()} - {*PUBLISHED_FILES}:
        raise ValueError(f"the export holds {min(strange)}, which is not for others; nothing was written")
    lines = [check_model(source, partial(_answers, Model.load(path, "cpu")), "the export to hub")]
    if behind := left_behind(model, path):
        lines.append(f"left out: {', '.join(behind)}")
    if licence is None:
        lines.append(f"nobody named a licence; add one to {CARD_FILE} before others use the model")
    if options.push is not None:
        lines.append(push(path, HubName(options.push), private=options.private))
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


def _answers(model: Model, images: Tensor) -> tuple[np.ndarray, np.ndarray | None]:
    found = predict_images(model, images)
    return found.probabilities(model.calibration.temperature), found.presence


FORMAT = ExportFormat(
    name="hub",
    purpose="giving a model to others on the Hugging Face hub",
    needs="huggingface_hub to push it, and to load it from there",
    gives="a folder: weights, names, preparation, calibration and card; nothing about patients",
    suffix="",
    write=write,
)
