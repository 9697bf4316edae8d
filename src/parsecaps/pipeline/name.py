"""Names for the concepts of a run, from a clinician's sheet to every place that shows them."""

from pathlib import Path

from parsecaps.explain.naming import Naming, name_concepts
from parsecaps.pipeline.discover import check_unlabelled
from parsecaps.pipeline.results import read_scores, write_card
from parsecaps.training.run_folder import RunFolder


def name_run(model: str | Path, sheet: str | Path) -> list[Naming]:
    """Name the concepts of a run or a saved model, and write the card of a run anew; gives those that changed.

    Concepts that were learned from labels keep their names, by which evaluation finds the labels.
    """
    run = RunFolder(Path(model))
    if run.data.is_file():
        check_unlabelled(model)
    changed = name_concepts(model, sheet)
    if run.card.is_file():
        write_card(run, read_scores(run) if run.scores.is_file() else None)
    return changed
