"""What an evaluation leaves in the folder of a run: its numbers, a page about them, and the card of its model."""

import json
from pathlib import Path

from parsecaps.bundle import Bundle
from parsecaps.data.files import write_atomically
from parsecaps.evaluation.deciding import CALIBRATION_FILE
from parsecaps.evaluation.runs import Evaluation
from parsecaps.evaluation.scores import Scores
from parsecaps.report.model_card import model_card
from parsecaps.report.scores_page import scores_page
from parsecaps.training.run_folder import RunFolder


def write_results(folder: RunFolder, evaluation: Evaluation) -> None:
    """Write what prediction is calibrated by, the card, the page and, last of all, `scores.json`.

    A run that has the last is finished. A cross-validation has a card in each fold, and none of its own.
    """
    scores = evaluation.scores
    if evaluation.validation is not None:
        evaluation.validation.save(folder.bundle / CALIBRATION_FILE)
    if folder.bundle.is_dir():
        write_card(folder, scores)
    write_text(folder.page, scores_page({folder.path.name: scores}, title=f"Scores: {folder.path.name}"))
    folder.write_json(folder.scores, scores.as_dict())


def write_card(folder: RunFolder, scores: Scores | None) -> None:
    """Write the card of the run's model beside it."""
    data = json.loads(folder.data.read_text(encoding="utf-8"))
    card = model_card(Bundle.load(folder.bundle), folder.read_config(), folder.read_about(), data, scores)
    write_text(folder.card, card)


def read_scores(folder: RunFolder) -> Scores:
    """What `write_results` wrote."""
    try:
        return Scores.from_dict(json.loads(folder.scores.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{folder.scores}: {error}") from None


def write_text(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    with write_atomically(path) as file:
        file.write(text)
