"""The epochs of a run as a picture."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path


def draw_curves(path: Path, history: Sequence[Mapping[str, float]], best: int) -> None:
    """Loss and accuracy over the epochs as a PNG, with the chosen epoch marked."""
    from matplotlib.figure import Figure  # half a second, and a cache of fonts

    figure = Figure(figsize=(10, 4), layout="constrained")
    epochs = [row["epoch"] for row in history]
    for axes, lines in zip(
        figure.subplots(1, 2),
        (("train_loss", "val_loss"), ("train_accuracy", "val_accuracy", "val_balanced_accuracy")),
        strict=True,
    ):
        for name in lines:
            if name in history[0]:
                label = name.replace("val", "validation").replace("train", "training").replace("_", " ")
                axes.plot(epochs, [row[name] for row in history], marker="." if len(epochs) < 20 else "", label=label)
        axes.axvline(epochs[best], color="0.6", linestyle=":", label=f"chosen: epoch {epochs[best]:.0f}")
        axes.set(xlabel="epoch", ylabel=lines[0].rpartition("_")[2])
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    figure.savefig(unfinished, format="png", dpi=120)
    os.replace(unfinished, path)
