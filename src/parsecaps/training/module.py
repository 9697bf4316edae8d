"""One step of training and one of validation, for Lightning."""

from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from parsecaps.models.pretrained import PretrainedModel
from parsecaps.training.objective import Objective
from parsecaps.training.schedule import Schedule
from parsecaps.training.tally import Tally, count_images, shared_total
from parsecaps.types import Batch, Output

_DIVERGED = 100.0  # times the first loss


class TrainingModule(LightningModule):
    """A model with its objective and schedule.

    The learning rate and all random numbers of a step (dropout) follow from the seed and the number of the step, so the
    weights and the optimizer are all that has to be kept to go on as if nothing had happened. With `ema`, `average`
    follows the weights slowly (an exponential moving average), and validation and the saved model use it.

    `bad_step` is the first step whose loss or gradient was not finite, or whose loss was a hundred times the first; -1
    while all is well. It stays on the device, so that no step waits for it.
    """

    def __init__(
        self,
        model: PretrainedModel,
        objective: Objective,
        schedule: Schedule,
        *,
        steps_per_epoch: int,
        reconstruct: bool = False,
        seed: int = 0,
        ema: float = 0.0,
        compiled: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.objective, self.schedule = model, objective, schedule
        self.steps_per_epoch, self.reconstruct, self.seed = steps_per_epoch, reconstruct, seed
        self.step = 0  # of the whole run, also where it was resumed
        self.ema = ema
        self.average = {name: value.clone() for name, value in model.state_dict().items()} if ema else {}
        self._aside: dict[str, Tensor] = {}
        self._compiled = [torch.compile(model)] if compiled else []  # in a list: not a part with weights of its own
        self.train_tally, self.val_tally = Tally(model.num_classes), Tally(model.num_classes)
        self.first_loss, self.bad_step = torch.tensor(torch.nan), torch.tensor(-1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.schedule.build_optimizer(self)

    def learning_rate(self, step: int) -> float:
        """That of a step of the run."""
        return self.schedule.learning_rate * self.schedule.factor(step, self.steps_per_epoch)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = self.learning_rate(self.step)
        words = np.random.SeedSequence([self.seed, self.step, self.global_rank]).generate_state(1, np.uint64)
        torch.manual_seed(int(words[0] >> np.uint64(1)))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        output = self._answer(batch.image)
        losses = self.objective(output, batch)
        counts = count_images(batch, self.objective)
        self.train_tally.add(output, losses, counts, batch)
        total = losses.total if self.trainer.world_size == 1 else shared_total(losses, counts, self.objective)
        loss = losses.total.detach()
        self.first_loss = torch.where(self.first_loss.to(loss).isnan(), loss, self.first_loss.to(loss))
        self._note(~loss.isfinite() | (loss > _DIVERGED * self.first_loss))
        return total

    def configure_gradient_clipping(self, optimizer: Any, *limits: Any, **named: Any) -> None:
        norm = nn.utils.clip_grad_norm_(self.parameters(), self.schedule.max_grad_norm)
        self._note(~norm.isfinite())

    def optimizer_step(self, *arguments: Any, **named: Any) -> None:
        super().optimizer_step(*arguments, **named)
        self.step += 1
        if self.ema:
            self._follow()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if len(batch.label):  # the share of a process in a last, small batch may be empty
            output = self._answer(batch.image)
            losses = self.objective(output, batch)
            self.val_tally.add(output, losses, count_images(batch, self.objective), batch)

    def on_validation_start(self) -> None:
        self.val_tally.reset()
        if self.ema:
            self._aside = {name: value.clone() for name, value in self.model.state_dict().items()}
            self._take(self.average)

    def on_validation_end(self) -> None:
        if self.ema:
            self._take(self._aside)
            self._aside = {}

    def weights(self) -> dict[str, Tensor]:
        """The weights to predict with: the average where there is one."""
        return dict(self.average or self.model.state_dict())

    def _answer(self, image: Tensor) -> Output:
        network = self._compiled[0] if self._compiled else self.model
        output: Output = network(image, reconstruct=self.reconstruct)
        return output

    def _note(self, wrong: Tensor) -> None:
        before = self.bad_step.to(wrong.device)
        self.bad_step = torch.where((before < 0) & wrong, self.step, before)

    def _take(self, weights: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_(weights[name])

    @torch.no_grad()
    def _follow(self) -> None:
        decay = min(self.ema, self.step / (self.step + 10))  # the first weights are soon forgotten
        for name, value in self.model.state_dict().items():
            average = self.average[name] = self.average[name].to(value.device)
            if value.is_floating_point():
                average.lerp_(value, 1 - decay)
            else:
                average.copy_(value)
