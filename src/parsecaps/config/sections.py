"""The settings of each command, in sections, with their defaults and limits.

`Config` is for a training run, `EvaluateConfig` and `PredictConfig` for what follows it. `auto` means that the value is
chosen from the data (`training.choose`); the configuration that a run folder keeps has no `auto` left.
"""

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

Auto = Literal["auto"]
Balance = Literal["none", "weights", "sampling"]
Precision = Literal[32, "bf16"]
OptimizerName = Literal["muon", "adamw"]
Device = Literal["auto", "cpu", "cuda"]
Risk = Annotated[float, Field(gt=0, lt=1)]


class Section(BaseModel):
    """A group of settings; no other keys than these, and no change after it is made."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True, allow_inf_nan=False)


class DataSection(Section):
    """What to train on, and who trains, chooses and tests: see `parsecaps data check` and `parsecaps data split`.

    With `folds`, every patient is tested once: that many runs are trained, or only the run number `fold`.
    """

    path: str = ""
    source: str | None = None
    split: str | None = None
    test_fold: tuple[int, ...] = ()
    test_part: Literal["val", "test"] | None = None
    folds: NonNegativeInt = 0
    fold: PositiveInt | None = None
    val: float = Field(default=0.15, ge=0, lt=1)
    test: float = Field(default=0.2, ge=0, lt=1)
    seed: NonNegativeInt = 0
    skip_bad: bool = False
    allow_leaks: bool = False


class ModelSection(Section):
    """The network: `kind` is one of `models.MODELS`, `settings` are any other arguments of it, as `dropout: 0.2`."""

    kind: str = "ParseCaps"
    preset: str = "auto"
    image_size: PositiveInt | Auto = "auto"
    head: Literal["parallel", "bottleneck"] = "parallel"
    num_concepts: NonNegativeInt | Auto = "auto"
    settings: dict[str, Any] = {}


class PreparationSection(Section):
    """How an image becomes a square, as in `data.preparation.Preparation`; its size is the model's."""

    channels: Literal[1, 3] | Auto = "auto"
    square: Literal["pad", "crop", "stretch"] = "pad"
    scaling: Literal["range", "percentile"] = "range"
    centre: float = Field(default=1.0, gt=0, le=1)


class AugmentationSection(Section):
    """Random changes of the training images, as in `data.augment.Augmentation`; `augmentation: null` turns all off."""

    flip: bool | Auto = "auto"
    rotation: float = Field(default=15.0, ge=0)
    scale: float = Field(default=0.1, ge=0, lt=1)
    shear: float = Field(default=0.05, ge=0)
    shift: float = Field(default=0.03, ge=0)
    padding: NonNegativeInt = 0
    gamma: float = Field(default=0.25, ge=0)
    contrast: float = Field(default=0.15, ge=0)
    brightness: float = Field(default=0.05, ge=0)
    resampling: Literal["bilinear", "bicubic"] = "bilinear"


class TrainingSection(Section):
    """How to train. `batch_size` is that of all processes together; `patience`, `ema` and the weights are off at 0."""

    epochs: PositiveInt | Auto = "auto"
    batch_size: PositiveInt | Auto = "auto"
    optimizer: OptimizerName = "muon"
    learning_rate: float = Field(default=1.5e-3, gt=0)
    weight_decay: float = Field(default=0.01, ge=0)
    warm_up_epochs: NonNegativeInt = 5
    max_grad_norm: float = Field(default=1.0, gt=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    mixup: float = Field(default=0.0, ge=0)
    presentation_weight: float = Field(default=0.5, ge=0)
    triplet_weight: float = Field(default=0.1, ge=0)
    reconstruction_weight: float = Field(default=0.0005, ge=0)
    diversity_weight: float = Field(default=0.3, ge=0)
    consistency_weight: float = Field(default=0.0, ge=0)
    class_balance: Balance | Auto = "auto"
    concept_balance: float = Field(default=0.0, ge=0, le=1)
    patience: NonNegativeInt | Auto = "auto"
    keep: Literal["best", "last"] = "best"
    ema: float = Field(default=0.0, ge=0, lt=1)
    precision: Precision | Auto = "auto"
    compile: bool = False
    devices: PositiveInt = 1
    seed: NonNegativeInt = 0
    checkpoint_seconds: float = Field(default=60.0, ge=0)


class Config(Section):
    """All settings of a run."""

    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    preparation: PreparationSection = PreparationSection()
    augmentation: AugmentationSection | None = AugmentationSection()
    training: TrainingSection = TrainingSection()

    def to_yaml(self) -> str:
        """The whole configuration as YAML; `load_config` reads it back."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)

    def change(self, section: str, **values: Any) -> "Config":
        """The same configuration with some values of a section changed, checked again."""
        content = self.model_dump()
        content[section] |= values
        return Config.model_validate(content)


class EvaluateConfig(Section):
    """How to score runs: on a part of their own data (`auto`: test, or validation without one), or on other `data`.

    `resamples` are those behind the intervals; at each of `risks`, prediction sets are measured. With several `views`
    the answers to each image and to random changes of it, as in training, are averaged. `device` is a GPU where there
    is one, if `auto`.
    """

    part: Literal["auto", "test", "val", "train"] = "auto"
    data: str | None = None
    resamples: NonNegativeInt = 1000
    risks: tuple[Risk, ...] = (0.05, 0.1, 0.2)
    views: PositiveInt = 1
    device: Device = "auto"


class PredictConfig(Section):
    """How to predict: the risk at which to abstain, how many images the model sees at a time, and on which device."""

    risk: Risk | None = None
    batch_size: PositiveInt = 32
    device: Device = "auto"


class ExplainConfig(Section):
    """How to explain: see docs/explain.md for what each key means."""

    risk: Risk | None = None
    method: Literal["routes", "grad-cam", "integrated-gradients", "occlusion"] = "routes"
    trees: NonNegativeInt = 3
    strict: bool = False
    traversals: NonNegativeInt = 0
    limit: PositiveInt = 100
