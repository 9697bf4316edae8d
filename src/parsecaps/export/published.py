"""What of a model may be given away: its files by their names, its card and its scores, and nothing about patients.

The files are written anew from what was read, not copied, so what else lies in a folder stays there. Fingerprints stay
too: whoever has an image of a patient could find out by them whether it was learned from.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from parsecaps.explain.strict_tree import STATISTICS_FILE, save_statistics
from parsecaps.export.format import ExportSource
from parsecaps.metrics.scores import Scores
from parsecaps.model import Model
from parsecaps.models.pretrained import weights_digest
from parsecaps.prediction.predict import answer, of_output
from parsecaps.report.cards import data_name, model_card, run_card

CARD_FILE = "README.md"
PUBLISHED_FILES = ("config.json", "model.safetensors", "bundle.json", "calibration.json", STATISTICS_FILE, CARD_FILE)
_TOLERANCE = 1e-6  # the same network on the same processor

Answers = Callable[[Tensor], tuple[np.ndarray, np.ndarray | None]]


@dataclass(frozen=True)
class Publication:
    """A model that is to be given away, with what its run says of it: card, data set, scores, licences of the data.

    `card` is the text of the run's own card, blank without a run; `data` and `scores` are None where no run is around.
    """

    model: Model
    card: str
    data: str | None
    scores: Scores | None
    licences: tuple[str, ...]

    @classmethod
    def of(cls, model: Model) -> "Publication":
        """What is known of a model from the folder it was loaded from, and the run around that."""
        folder = model.folder
        card = folder / CARD_FILE if folder is not None else None
        text = run_card(card.read_text(encoding="utf-8")) if card is not None and card.is_file() else ""
        run = model.run
        if run is None:
            return cls(model, text, None, None, ())
        text = text or model_card(model, run.config, run.about, run.data_check, run.scores)
        return cls(model, text, data_name(run.config, run.data_check), run.scores, tuple(run.config.data.licences))

    @property
    def licence(self) -> str | None:
        """The licences of the data, which bind whoever uses the weights; None where nobody named any."""
        return ", ".join(dict.fromkeys(self.licences)) or None


def write_model(model: Model, folder: Path) -> None:
    """Write the published files of a model, but for its card, into a folder."""
    model.save(folder)
    statistics = model.statistics
    if statistics is not None:
        save_statistics(folder, statistics, weights_digest(model.network))


def left_behind(model: Model, folder: Path) -> list[str]:
    """The files beside a model that an export of it does not have."""
    if model.folder is None:
        return []
    there = {path.name for path in folder.rglob("*")}
    return sorted(path.name for path in model.folder.iterdir() if path.name not in there)


def check_model(source: ExportSource, answers: Answers, what: str) -> str:
    """Refuse an export whose answers differ from those of its source; gives a line about the check.

    Shapes:
        - answers: prepared images (B, channels, size, size) to calibrated probabilities (B, K) and presences (B, m)
    """
    model, largest = source.model, 0.0
    for images in (source.drawn(), *source.validation()):
        wanted = of_output(model, answer(model, images))
        probabilities, presence = answers(images)
        pairs = [(probabilities, wanted.probabilities(model.calibration.temperature))]
        if (presence is None) != (wanted.presence is None):
            raise ValueError(f"{what} failed its check: it has other outputs than the model; nothing was written")
        if presence is not None and wanted.presence is not None:
            pairs.append((presence, wanted.presence))
        for found, right in pairs:
            apart = float(np.abs(found - right).max(initial=0.0))
            if not apart <= _TOLERANCE:  # NaN is not
                reason = f"its numbers are up to {apart:.2g} away from those of the model"
                raise ValueError(f"{what} failed its check: {reason}; nothing was written")
            largest = max(largest, apart)
    equal = f"equal to PyTorch to {largest:.0e}" if largest else "exactly equal to PyTorch"
    return f"{equal}, checked on {source.checked_on}"


def licence_on_hub(licence: str) -> str:
    """What the hub calls a licence; `other` where it has no word for it.

    >>> licence_on_hub("CC BY 4.0"), licence_on_hub("CC0"), licence_on_hub("own")
    ('cc-by-4.0', 'cc0-1.0', 'other')
    """
    name = re.sub(r"[\s_]+", "-", licence.strip().casefold()).removesuffix("-license")
    name = {"cc0": "cc0-1.0", "apache": "apache-2.0"}.get(name, name)
    known = r"cc0-1\.0|cc-by(-nc)?(-sa|-nd)?-[234]\.0|mit|apache-2\.0|bsd-[23]-clause|(a|l)?gpl-3\.0|odbl|pddl"
    return name if re.fullmatch(known, name) else "other"
