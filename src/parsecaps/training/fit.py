"""From a configuration to a trained model in a run folder; and on from where a run was stopped."""

import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger

from parsecaps.prediction.bundle import Bundle, unnamed_concepts
from parsecaps.config import Config
from parsecaps.training.build import (
    Material,
    build_batches,
    build_model,
    build_objective,
    build_preparation,
    build_schedule,
)
from parsecaps.training.checkpoint import Position, load_checkpoint, read_tensors
from parsecaps.training.choose import reconstructs
from parsecaps.training.data_module import TrainingData
from parsecaps.training.module import TrainingModule
from parsecaps.training.opening import Listeners, new_folder, open_again, open_new, owned, write_beginning
from parsecaps.training.processes import Processes, find_processes
from parsecaps.training.quiet import quiet_lightning
from parsecaps.training.run_folder import RunFolder, draw_curves, write_history
from parsecaps.training.watch import Stopped, Watch, ctrl_c_stops

__all__ = ["Listeners", "Run", "fit"]


@dataclass(frozen=True)
class Run:
    """A finished run: its folder, its settings, a row per epoch, and the number of the epoch kept, from 1.

    `is_main` is false in the other processes where several trained together: they have nothing to say or to write.
    """

    folder: RunFolder
    config: Config
    history: list[dict[str, float]]
    best_epoch: int
    is_main: bool = True

    def load(self) -> Bundle:
        """The trained model with all that prediction needs."""
        return Bundle.load(self.folder.bundle)


def fit(
    config: Config | str | None = None,
    *,
    run_folder: str | Path | None = None,
    resume: str | Path | None = None,
    listeners: Listeners | None = None,
) -> Run:
    """Train as a configuration says, or on a data set with everything chosen from it; or `resume` a run.

    A new run gets `run_folder`, which must not hold one yet; without it, the next free name below `runs`. A resumed
    run ends with the same weights as one that was never stopped, bit for bit on a CPU. Ctrl-C saves and raises
    `KeyboardInterrupt`; a loss that is not finite raises `DivergedError`. With several processes only the first one
    writes and tells.
    """
    if (config is None) == (resume is None):
        raise ValueError("give fit either a configuration or a run to resume")
    with torch.random.fork_rng(devices=[]):
        if resume is not None:
            return _resume(RunFolder(Path(resume)), listeners or Listeners())
        assert config is not None
        wanted = Config().change("data", path=config) if isinstance(config, str) else config
        return _start(wanted, run_folder, listeners or Listeners())


def _start(config: Config, run_folder: str | Path | None, listeners: Listeners) -> Run:
    processes = find_processes(config.training.devices)
    told = listeners if processes.is_main else Listeners()
    folder = new_folder(run_folder, config, processes)
    opened = open_new(config, processes, told)
    for choice in opened.choices:
        told.log(str(choice))
    training = _Training(opened.config, opened.material, folder, processes, told)  # wrong settings show here
    with owned(folder) if processes.is_main else nullcontext():
        if processes.is_main:
            write_beginning(folder, opened, processes)
        return training.run()


def _resume(folder: RunFolder, listeners: Listeners) -> Run:
    config = folder.read_config()
    processes = find_processes(config.training.devices)
    told = listeners if processes.is_main else Listeners()
    if processes.is_main and folder.bundle.is_dir():
        told.log(f"{folder.path} is trained to the end")
        position = Position(**read_tensors(folder.last)["position"])
        return Run(folder, config, position.history, position.best + 1)
    with owned(folder) if processes.is_main else nullcontext():
        training = _Training(config, open_again(folder, config, told), folder, processes, told)
        training.go_back()
        return training.run()


class _Training:
    """The parts of a run, put together."""

    def __init__(
        self, config: Config, material: Material, folder: RunFolder, processes: Processes, told: Listeners
    ) -> None:
        self.config, self.material, self.folder = config, material, folder
        self.processes, self.told = processes, told
        train, self.val = (build_batches(config, material, part, processes) for part in ("train", "val"))
        assert train is not None
        self.train, self.position = train, Position(chooses=config.training.keep == "best")
        self.running: dict[str, Any] | None = None
        torch.manual_seed(config.training.seed)
        model = build_model(config, material)
        self.module = TrainingModule(
            model,
            build_objective(config, material, model),
            build_schedule(config),
            steps_per_epoch=len(train),
            reconstruct=reconstructs(material.data, material.rows("train"), config),
            seed=config.training.seed,
            ema=config.training.ema,
            compiled=config.training.compile,
        )

    def go_back(self) -> None:
        """To where the last checkpoint was written; to the start if there is none."""
        if self.folder.last.exists():
            self.position, self.running = load_checkpoint(self.folder.last, self.module)
            self.told.log(f"going on with epoch {self.position.epoch + 1}, batch {self.position.batch + 1}")

    def run(self) -> Run:
        """Train what is left, and write the result."""
        if not self.position.done:
            watch = self._watch()
            with quiet_lightning(), ctrl_c_stops(watch):
                try:
                    self._trainer(watch).fit(self.module, datamodule=TrainingData(self.train, self.val, self.position))
                except Stopped:
                    place = f"stopped in epoch {self.position.epoch + 1}, after batch {self.position.batch}"
                    words = f"{place}; go on with parsecaps train --resume {self.folder.path}"
                    raise KeyboardInterrupt(*([words] if self.processes.is_main else [])) from None
        if self.processes.is_main:
            self._finish()
        return Run(self.folder, self.config, self.position.history, self.position.best + 1, self.processes.is_main)

    def _watch(self) -> Watch:
        settings = self.config.training
        assert settings.patience != "auto"
        return Watch(
            self.folder,
            self.position,
            self.running,
            self.material.data,
            self.train,
            validates=self.val is not None,
            epochs=self.module.schedule.epochs,
            patience=settings.patience,
            checkpoint_seconds=settings.checkpoint_seconds,
            tell=self.told.log,
            on_progress=self.told.progress,
        )

    def _trainer(self, watch: Watch) -> Trainer:
        cuda, several = torch.cuda.is_available(), self.processes.count > 1
        model = self.module.model
        idle = model.has_capsules and model.num_concepts > 0 and not self.module.reconstruct  # the decoder: no gradient
        return Trainer(
            accelerator="cuda" if cuda else "cpu",
            devices=self.processes.per_machine,
            num_nodes=self.processes.machines,
            strategy=("ddp_find_unused_parameters_true" if idle else "ddp") if several else "auto",
            precision="bf16-mixed" if self.config.training.precision == "bf16" else "32-true",
            max_epochs=self.module.schedule.epochs - self.position.epoch,
            limit_val_batches=1.0 if self.val is not None else 0,
            reload_dataloaders_every_n_epochs=1,
            num_sanity_val_steps=0,
            logger=TensorBoardLogger(
                self.folder.path, name=self.folder.logs.name, version="", purge_step=self.module.step
            ),
            callbacks=[watch],
            enable_checkpointing=False,  # `Watch` writes them, whole and without code
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            inference_mode=False,
            log_every_n_steps=1,
            default_root_dir=self.folder.path,
        )

    def _finish(self) -> None:
        """Write the history, the curves, the result, and the best weights as a bundle."""
        position, folder, data = self.position, self.folder, self.material.data
        model = self.module.model.cpu()
        model.load_state_dict(read_tensors(folder.best(position.best + 1)))
        folder.forget_all_but(position.best + 1)
        write_history(folder.history, position.history)
        draw_curves(folder.curves, position.history, position.best)
        row = position.history[position.best]
        result = {
            "finished": time.strftime("%Y-%m-%d %H:%M:%S"),
            "epochs": len(position.history),
            "best_epoch": position.best + 1,
            "validation": {name.removeprefix("val_"): row[name] for name in row if name.startswith("val_")},
            "seconds": round(sum(each["seconds"] for each in position.history), 1),
        }
        folder.write_json(folder.about, folder.read_about() | result)
        concepts = data.concepts or unnamed_concepts(model.num_concepts)
        names = concepts[: model.num_concepts]
        folder.save_bundle(Bundle(model.eval(), build_preparation(self.config), data.classes, names))
