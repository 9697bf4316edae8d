"""`parsecaps train`: from a data set to a trained model in a run folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from parsecaps.cli.command import DeviceName, Given, Numbers, argument, command, option
from parsecaps.cli.output import display
from parsecaps.cli.progress import showing_training
from parsecaps.config import Config

if TYPE_CHECKING:
    from parsecaps.run import Run


@command(Config, "model.start", "data.folds", "training.devices", "data.skip_bad", "data.allow_leaks")
def train(
    given: Given[Config],
    data: Annotated[str | None, argument("[DATA]", "A folder, a CSV manifest, or phantom:n=2000,size=64.")] = None,
    out: Annotated[Path | None, option("RUN", "The folder to make; the next free one below runs if left out.")] = None,
    resume: Annotated[Path | None, option("RUN", "Go on with a run that was stopped or killed.")] = None,
    device: DeviceName = None,
) -> Numbers:
    """Train a model on your images, and score it on patients it never saw.

    Reads and checks the data, splits by patient, chooses preset, image size, losses and length, says what it chose, and
    trains. The epoch that is best on the validation patients is kept, and scored once on the test patients, with 95 %
    intervals. RUN then holds the settings (`config.yaml`), the split, the history with curves, the scores
    (`scores.json`, and `scores.html` to open), and in `bundle` the model with its card.

    **Examples**

    - `parsecaps train phantom` (drawn images, nothing to download)
    - `parsecaps train my-images` (a folder per class) or `parsecaps train cases.csv --out my-run`
    - `parsecaps train cemri:data/cemri --set data.test_fold=[3] --set training.epochs=40`
    - `parsecaps train my-images --set model.image_size=128 --set augmentation.flip=false --set training.patience=0`
    - `parsecaps train --config my-run/config.yaml --set training.seed=1` (the same again, with another seed)
    - `parsecaps train data/wbcatt --config wbcatt` (settings that come with the package: docs/results.md)
    - `parsecaps train --resume my-run` (after Ctrl-C, kill or a power cut: the same result as without)
    - `parsecaps train my-images --start other-run` (takes every layer that fits; docs/training.md)
    - `parsecaps train my-images --folds 5` (cross-validation: every patient is tested once)
    - `parsecaps train my-images --devices 2`

    Ctrl-C and SIGTERM save and stop. Every setting is in docs/settings.md, and in the `config.yaml` of any run.
    """
    chosen = None
    if resume is None:
        chosen = given.load({} if data is None else {"data.path": data})
        if not chosen.data.path:
            raise ValueError("there is nothing to train on; give DATA, as in parsecaps train phantom")
    elif data is not None or out is not None or given.file is not None or given.lines or given.values:
        what = "--resume goes on with a run as it was started"
        raise ValueError(f"{what}; give --device and --json at most: parsecaps train --resume {resume}")
    from parsecaps.run import Run
    from parsecaps.training.cross_validate import cross_validate  # torch and Lightning, some seconds
    from parsecaps.training.fit import fit

    section = (chosen or Run(resume or Path()).config).data
    several = section.folds > 0 and section.fold is None
    with showing_training() as callbacks:
        train_all = cross_validate if several else fit
        run = train_all(chosen, run_folder=out, resume=resume, callbacks=callbacks, device=device or "auto")
    return Numbers(show_run(run), failed=bool(run.failure)) if run.is_main else Numbers(None)


def show_run(run: "Run") -> dict[str, Any]:
    """Print the results of a run or a cross-validation, and return the content of the JSON file."""
    scores, place = run.scores, [f"folds: {run.folder}"]
    stored: dict[str, Any] = {"run": str(run.folder), "config": run.config.model_dump(mode="json"), "scores": None}
    if run.is_trained:
        history, bundle = run.history, run.bundle_folder
        best, place = history[run.best_epoch - 1], [f"run: {run.folder}", f"model: {bundle}"]
        if "val_loss" in best:
            reached = f"validation accuracy {best['val_accuracy']:.1%}, balanced {best['val_balanced_accuracy']:.1%}"
            display(f"{run.config.training.keep} epoch: {run.best_epoch}; {reached}")
        stored |= {"bundle": str(bundle), "best_epoch": run.best_epoch, "choices": run.about["choices"]}
        stored["history"] = history
    else:
        stored["folds"] = [str(fold.folder) for fold in run.folds]
    if scores is None:
        display(*place)
        return stored
    display(*scores.tables(short=True).values(), *scores.lines(), *place, f"page: {run.page_file}")
    return {**stored, "scores": scores.as_dict()}
