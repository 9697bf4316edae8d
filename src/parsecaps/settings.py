"""Every setting with its default, its bounds and what it means: plain values in sections.

`Config` is for a training run; `EvaluateConfig`, `PredictConfig` and `ExplainConfig` are for what follows it. `auto`
means that the value is chosen from the data (`training.choose`). Few images are up to 5,000 training images for the
preset `medical`. The page "Settings" of the documentation is made from this file.
"""

from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

SMALLEST_IMAGE, LARGEST_IMAGE = 28, 4096  # pixels a side

Auto = Literal["auto"]
Balance = Literal["none", "weights", "sampling"]
Precision = Literal[32, "bf16"]
OptimizerName = Literal["muon", "adamw", "adam", "sgd", "rmsprop"]
ScheduleName = Literal["cosine", "steps"]
Device = Literal["auto", "cpu", "cuda"]
Risk = Annotated[float, Field(gt=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
LossWeight = Annotated[float, Field(ge=0)] | Auto  # auto: what the model was published with (`losses` of its class)
Fraction = Annotated[float, Field(ge=0, le=1)]
Margins = tuple[Fraction, Fraction, Annotated[float, Field(ge=0)]]  # long enough, short enough, weight of the others
ImageSize = Annotated[int, Field(ge=SMALLEST_IMAGE, le=LARGEST_IMAGE)]


class Section(BaseModel):
    """A group of settings; no other keys than these, and no change after it is made."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class DataSection(Section):
    """What to train on, and who trains, chooses and tests: see `parsecaps data check` and `parsecaps data split`.

    With `folds`, every patient is tested once: that many runs are trained, or only the run number `fold`. `also` are
    further data sets to learn from, each with classes of its own; `licences` are those of all, in their order.
    """

    path: str = ""
    """A folder, a manifest, `phantom:n=2000,size=64` or `NAME:PATH`; the argument DATA of the command."""
    source: str | None = None
    """What `path` is, as `parsecaps data sources` lists it; without it, the layout tells."""
    also: tuple[str, ...] = ()
    """Further data sets to learn from, each with a head of its own; `parsecaps pretrain` sets it."""
    licences: tuple[str, ...] = ()
    """The licences of all data sets, in their order, for the model card; `parsecaps pretrain` sets it."""
    split: str | None = None
    """A split file, as `parsecaps data split` writes it."""
    test_fold: tuple[int, ...] = ()
    """Test on these folds of the data set's author, as in `[3]`."""
    test_part: Literal["val", "test"] | None = None
    """With `val`, test on the official validation part; a share `val` of the official training part chooses."""
    folds: int = Field(default=0, ge=0, le=1000)
    """Cross-validation with this many folds; `--folds 5` sets it."""
    fold: PositiveInt | None = None
    """Of a cross-validation, train only this fold."""
    val: float = Field(default=0.15, ge=0, lt=1)
    """Share of the patients that choose the epoch and the temperature. Official parts come first where
    there are some."""
    test: float = Field(default=0.2, ge=0, lt=1)
    """Share of the patients to test on."""
    seed: Seed = 0
    """Seed of the split."""
    skip_bad: bool = False
    """Leave bad files and rows out instead of refusing the data."""
    allow_leaks: bool = False
    """Train although parts leak; the warning stays in the run."""


class ModelSection(Section):
    """The network: `kind` is one of `models.MODELS`, `settings` are any other arguments of it, as `dropout: 0.2`.

    `start` is where its first weights come from: a run, a model folder, or the name of weights; new ones without.
    """

    kind: str = "ParseCaps"
    """The network: ParseCaps, or one to compare with."""
    start: str | None = None
    """The weights to start from: a run, a model folder, `hf://owner/name`, or `imagenet`."""
    preset: str = "auto"
    """`medical`, `digits`, `tiny`, `medical-paper` or `digits-paper`; auto is `digits` for images up to 40
    px, else `medical`."""
    image_size: ImageSize | Auto = "auto"
    """Pixels a side. Auto is the largest of 64, 96, 112, 128 and 224 that is not above the files' usual
    side, and at most 112 for few images; digits as they are, from 28. The side is the longer one where
    images are padded to a square, else the shorter one."""
    head: Literal["parallel", "bottleneck"] = "parallel"
    """`parallel`: concepts stand beside the diagnosis, as in the paper. `bottleneck`: the concepts alone decide."""
    num_concepts: Annotated[int, Field(ge=0, le=10_000)] | Auto = "auto"
    """Auto is those of the data, or 8 without names where the data name none; 0 ignores concepts."""
    settings: dict[str, Any] = {}
    """Any other argument of the network, as in `model.settings.dropout=0.2`; see below."""


class PreparationSection(Section):
    """How an image becomes a square, as in `data.preparation.Preparation`; its size is the model's."""

    channels: Literal[1, 3] | Auto = "auto"
    """1 is grey, 3 is colour; auto is 3 if more than a tenth of a sample of images have colour."""
    square: Literal["pad", "crop", "stretch"] = "pad"
    """How an image becomes a square: `pad`, `crop` or `stretch`."""
    scaling: Literal["range", "percentile"] = "range"
    """By the format's own black and white (`range`), or by the image's minimum and 99.5th percentile (`percentile`)."""
    centre: float = Field(default=1.0, gt=0, le=1)
    """The part of each side, around the middle, that is used."""


class AugmentationSection(Section):
    """Random changes of the training images, as in `data.batches.Augmentation`; `augmentation: null` turns all off."""

    flip: bool | Auto = "auto"
    """Mirror images; auto is yes, but not for handwriting."""
    rotation: Annotated[float, Field(ge=0, le=360)] | Auto = "auto"
    """Degrees; auto is 180 for few images in colour, which have no upright, else 15."""
    scale: float = Field(default=0.1, ge=0, lt=1)
    """Share by which an image may grow or shrink."""
    shear: float = Field(default=0.05, ge=0, le=100)
    """Share."""
    shift: float = Field(default=0.03, ge=0, le=100)
    """Share of the width."""
    padding: int = Field(default=0, ge=0, le=LARGEST_IMAGE)
    """Pixels by which an image may move."""
    gamma: float = Field(default=0.25, ge=0, le=100)
    """Change of gamma."""
    contrast: float = Field(default=0.15, ge=0, le=100)
    """Change of contrast."""
    brightness: float = Field(default=0.05, ge=0, le=100)
    """Change of brightness."""
    colour: Annotated[float, Field(ge=0, lt=1)] | Auto = "auto"
    """Each channel is scaled on its own, as another lamp or camera would; auto is 0.2 for few images in
    colour, else 0."""
    resampling: Literal["bilinear", "bicubic"] | Auto = "auto"
    """How moved pixels are computed. Bilinear blurs, so that a network learns from softer images than it
    is asked about. Auto is `bicubic` for few images, else `bilinear`."""


class TrainingSection(Section):
    """How to train. `batch_size` is that of all processes together; `patience`, `ema` and the weights are off at 0."""

    epochs: PositiveInt | Auto = "auto"
    """Auto is 100,000 images in all, between 10 and 100 epochs; for few images at most 40, as each comes
    in two views."""
    batch_size: PositiveInt | Auto = "auto"
    """Of all processes together; auto is 16, or 64 from 10,000 training images."""
    optimizer: OptimizerName = "muon"
    """`muon`: linear maps learn in orthogonal steps, all else by AdamW. `adamw` for everything, as in the
    paper. `adam`, `sgd` (momentum 0.9) and `rmsprop` (0.9), as older networks were published with."""
    learning_rate: float = Field(default=1.5e-3, gt=0)
    """Of all optimizers."""
    start_rate: float = Field(default=1.0, ge=0, le=1)
    """Of the layers that come from other weights, as a share of `learning_rate`; 0 keeps them as they are."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Biases, scales, priors and prototypes are not decayed. With `adam`, `sgd` and `rmsprop` it is a part of the
    gradient."""
    warm_up_epochs: NonNegativeInt = 5
    """Linear, at most a quarter of the epochs; then the schedule, step by step."""
    schedule: ScheduleName = "cosine"
    """`cosine` to zero at the end; or `steps`: the rate is multiplied by `decay` every `decay_epochs`."""
    decay: float = Field(default=0.5, gt=0, le=1)
    """Of the schedule `steps`."""
    decay_epochs: float = Field(default=10.0, gt=0)
    """Of the schedule `steps`, counted from the first step of the run; may be a fraction, such as 4.26."""
    lowest_rate: float = Field(default=0.0, ge=0)
    """The learning rate falls no further than this."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Longer gradients are shortened to this."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Of the classification loss."""
    mixup: Annotated[float, Field(ge=0)] | Auto = "auto"
    """With 0.4, each image and its labels are mixed with another of its batch, in shares from Beta(0.4,
    0.4). What is unknown of one is unknown of the mixture; training losses are then those of mixtures.
    Auto is 0.4 for few images, else 0."""
    classification_weight: LossWeight = "auto"
    """Of the cross-entropy of the classes; 1 for ParseCaps."""
    presentation_weight: LossWeight = "auto"
    """Of the presentation loss (Eq. 3.1); 0.5 for ParseCaps."""
    triplet_weight: LossWeight = "auto"
    """Of the triplet loss (Eq. 3.2); 0.1 for ParseCaps."""
    reconstruction_weight: LossWeight = "auto"
    """Of the reconstruction loss; 0.0005 for ParseCaps. Images without any known concept are reconstructed."""
    intervention_weight: LossWeight = "auto"
    """Of the cross-entropy of the classes where the concepts are set right, for a bottleneck, so that a correction
    mends a diagnosis; 1 for ParseCaps, FlatCaps and plain CNNs."""
    concept_cross_entropy_weight: LossWeight = "auto"
    """Of the binary cross-entropy of the known concepts: 1.12 for CBM, 1 for CEM, else 0."""
    semantic_weight: LossWeight = "auto"
    """Of a loss of concept maps: 0.4 for CCNN and CoherentCNN, else 0."""
    counter_weight: LossWeight = "auto"
    """Of a loss of concept maps: 0.4 for CCNN and CoherentCNN, else 0."""
    uniqueness_weight: LossWeight = "auto"
    """Of a loss of concept maps: 0.4 for CCNN and CoherentCNN, else 0."""
    coherence_weight: LossWeight = "auto"
    """Of the loss by which concept maps lie where the lesion is: 0.6 for CoherentCNN where the data have
    masks, else 0."""
    margin_weight: LossWeight = "auto"
    """Of the margin loss, which capsule networks without concepts are published with; else 0."""
    margins: Margins = (0.9, 0.1, 0.5)
    """Of the margin loss: from which length a capsule is long enough, below which it is short enough, and
    the weight of absent classes."""
    class_reconstruction_weight: LossWeight = "auto"
    """Of the mean squared error of the picture drawn from the capsule of the true class; 0 for models that
    were published without."""
    attribute_weight: LossWeight = "auto"
    """Of the squared error of the concepts, for ProtoCaps; else 0."""
    image_reconstruction_weight: LossWeight = "auto"
    """Of the mean squared error of every image's picture, for ProtoCaps; else 0."""
    prototype_weight: LossWeight = "auto"
    """Of the distances to prototypes of the own and of other grades, for ProtoCaps; else 0."""
    prototype_warm_up: NonNegativeInt = 100
    """After how many epochs, at most a quarter of them, the prototypes begin."""
    prototype_push: PositiveInt = 10
    """Every how many epochs each prototype becomes the nearest training case's."""
    diversity_weight: float = Field(default=0.3, ge=0)
    """Of the loss that keeps concepts without labels apart and alive, where the data name none; 0 is off,
    as in the paper."""
    consistency_weight: Annotated[float, Field(ge=0)] | Auto = "auto"
    """Of the loss that makes two random changes of an image get the same answer. Each image then comes
    twice in a step, so an epoch takes twice as long. Auto is 4 for few images and where some have no
    label, else 0. Needs augmentation and no labels."""
    class_balance: Balance | Auto = "auto"
    """`weights`, `sampling` or `none`; auto is `weights` where the largest class has more than 1.5 times
    as many training images as the smallest."""
    concept_balance: float = Field(default=0.0, ge=0, le=1)
    """How far the rare side of a concept weighs more in its loss: with 0 each label weighs the same, with
    1 presence and absence do."""
    patience: NonNegativeInt | Auto = "auto"
    """Epochs without a better validation before it stops: auto is half of all, at least 10; 0 never stops."""
    keep: Literal["best", "last"] | Auto = "auto"
    """`best` is the epoch that validation finds best. Auto is `last` for few images, where validation
    patients are too few to choose by; then nothing stops early."""
    ema: Annotated[float, Field(ge=0, lt=1)] | Auto = "auto"
    """Decay of an average of the weights, which is validated and kept; auto is 0.99 for few images, else 0 (off)."""
    precision: Precision | Auto = "auto"
    """Auto is `bf16` on a GPU that has it, else `32`."""
    compile: bool = False
    """Use `torch.compile`: some minutes at first, then faster."""
    devices: int = Field(default=1, ge=1, le=64)
    """Processes on this machine; `--devices` sets it."""
    seed: Seed = 0
    """Of the weights, the order, augmentation and dropout."""
    checkpoint_seconds: float = Field(default=60.0, ge=0)
    """Between two checkpoints within an epoch; there is one after each epoch too."""


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
    """Auto is test, or validation without one."""
    data: str | None = None
    """Score all cases of other data."""
    resamples: NonNegativeInt = 1000
    """Bootstrap resamples of the patients, behind the intervals."""
    risks: tuple[Risk, ...] = (0.05, 0.1, 0.2)
    """At which prediction sets are measured."""
    views: PositiveInt = 1
    """Average over the image and random changes of it, as in training; for comparison, never a run's own
    scores. Also says how many changed views get the same answer as the image itself."""
    device: Device = "auto"
    """Auto is a GPU where there is one; `--device` sets it too."""


class PredictConfig(Section):
    """How to predict: the risk at which to abstain, how many images the model sees at a time, and on which device."""

    risk: Risk | None = None
    """Abstain so that about this share of the prediction sets at most leaves out the truth."""
    batch_size: PositiveInt = 32
    """Images that the model sees at a time."""
    device: Device = "auto"
    """Auto is a GPU where there is one; `--device` sets it too."""


class ExplainConfig(Section):
    """How to explain; docs/explain.md says more."""

    risk: Risk | None = None
    """Abstain so that about this share of the prediction sets at most leaves out the truth."""
    method: Literal["routes", "grad-cam", "integrated-gradients", "occlusion"] = "routes"
    """How maps are made."""
    trees: NonNegativeInt = 3
    """Parse trees per image: the diagnosis, then the most present concepts."""
    strict: bool = False
    """Explain the network as a strict tree."""
    traversals: NonNegativeInt = 0
    """How many numbers of the global capsule move before the decoder."""
    limit: PositiveInt = 100
    """Images at most; of a data set, spread over all of it."""
    device: Device = "auto"
    """Auto is a GPU where there is one; `--device` sets it too."""
