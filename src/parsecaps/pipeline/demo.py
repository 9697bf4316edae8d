"""The demonstration: draw lesions, train, score on patients never seen, and leave pages to open."""

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np

from parsecaps.config import Config, load_config
from parsecaps.data.cases import DataSet
from parsecaps.data.files import write_text
from parsecaps.pipeline.train import fit
from parsecaps.prediction.predict import predict_cases
from parsecaps.report.demo_page import demo_page
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks

RUN = "run"
_SHOWN = 12


@dataclass(frozen=True)
class Demo:
    """The run, and the page to open first."""

    run: Run
    page: Path


def demo_config(path: str | Path | None = None, overrides: list[str] | None = None) -> Config:
    """The settings that the package ships for the demonstration, or those of a file, with some changed."""
    return load_config("demo" if path is None else path, overrides or [])


def demo(config: Config, folder: str | Path, callbacks: Callbacks | None = None) -> Demo:
    """Train and score in `folder/run`, and leave a page with unseen cases, `folder/index.html`."""
    folder = Path(folder)
    run = fit(config, run_folder=folder / RUN, callbacks=callbacks)
    if run.scores is None:
        raise ValueError(f"the demonstration shows scores; {run.failure or 'give data.test a share above 0'}")
    rows = _some(run.data, run.rows("test"))
    shown = predict_cases(run.bundle, run.data, run.prepared, rows)
    page = folder / "index.html"
    write_text(page, demo_page(run, run.scores, shown, np.asarray(run.prepared.images[rows]), RUN))
    return Demo(run, page)


def _some(data: DataSet, rows: list[int]) -> list[int]:
    """The first image of each of the first patients, the classes in turn as long as there are some."""
    first = sorted({data.cases[row].patient: row for row in reversed(rows)}.values())
    by_class = [[row for row in first if data.cases[row].label == label] for label in range(len(data.classes))]
    turns = [row for turn in zip_longest(*by_class) for row in turn if row is not None]
    return turns[:_SHOWN]
