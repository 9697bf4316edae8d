"""The demonstration: draw lesions, train, score on patients never seen, explain some of them, and leave a page."""

from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from parsecaps.config import Config, ExplainConfig, load_config
from parsecaps.data.cases import DataSet, first_of_patients
from parsecaps.explain.case_memory import remember_run
from parsecaps.explain.explain_cases import explain_series
from parsecaps.files.writing import write_text
from parsecaps.model import Model
from parsecaps.report.case_page import demo_page
from parsecaps.run import Run
from parsecaps.system.signals import sigterm_raises
from parsecaps.system.threads import using_threads
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.train import fit

RUN = "run"
PAGE = "index.html"
IMAGES = "images"
_SHOWN = 12
_KNOWN = 1500  # training cases to compare with: a quarter of them, for time


@dataclass(frozen=True)
class Demo:
    """The run, and the page to open first."""

    run: Run
    page: Path


def demo_config(path: str | Path | None = None, overrides: list[str] | None = None, *, quick: bool = False) -> Config:
    """The settings that the package ships for the demonstration, a `quick` one, or those of a file, with some changed.

    >>> demo_config(quick=True).model.preset
    'tiny'
    """
    if quick and path is not None:
        raise ValueError(f"--quick and --config {path} both name settings; give one of them")
    shipped = "demo-quick" if quick else "demo"
    return load_config(shipped if path is None else path, overrides or [])


def demo(config: Config, folder: str | Path, callbacks: Callbacks | None = None, device: str = "auto") -> Demo:
    """Train and score in `folder/run`, and leave a page with unseen cases, `folder/index.html`.

    The unseen cases are left as PNG files in `folder/images`, to try a command or a server on.
    """
    folder, callbacks = Path(folder), callbacks or Callbacks()
    with sigterm_raises():
        run = fit(config, run_folder=folder / RUN, callbacks=callbacks, device=device)
        callbacks.log("keeping the training cases to compare with, and explaining unseen ones")
        try:
            with using_threads(run.threads):
                return Demo(run, write_demo_page(run, folder / PAGE, device))
        except KeyboardInterrupt as stopped:
            words = f"stopped before the page was written; parsecaps explain {run.folder} makes one of the run"
            raise type(stopped)(words) from None


def write_demo_page(run: Run, page: Path, device: str = "auto") -> Path:
    """Explain some cases of the test part beside the training cases, and write the page."""
    if run.scores is None:
        raise ValueError(f"the demonstration shows scores; {run.failure or 'add --set data.test=0.1'}")
    remember_run(run.folder, limit=_KNOWN, device=device)
    shown = run.data.subset(first_of_patients(run.data, run.rows("test"), _SHOWN))
    _write_images(shown, page.parent / IMAGES)
    explained = explain_series(Model.load(run, device), [shown], ExplainConfig(limit=_SHOWN))
    write_text(page, demo_page(run, run.scores, explained.cases, RUN))
    return page


def _write_images(data: DataSet, folder: Path) -> None:
    """Write drawn images as files that are called after their class; those of other data are files already."""
    if data.draw is None:
        return
    folder.mkdir(exist_ok=True)
    pixels = data.draw(range(len(data))).transpose(0, 2, 3, 1)  # (n, H, W, 3)
    numbers = dict.fromkeys(data.classes, 0)
    for case, image in zip(data.cases, pixels, strict=True):
        name = data.classes[case.label]
        numbers[name] += 1
        Image.fromarray(image).save(folder / f"{name}-{numbers[name]}.png")
