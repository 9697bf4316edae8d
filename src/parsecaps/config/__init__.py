"""What can be set: plain values, in sections, from a YAML file and `key=value` on the command line."""

from parsecaps.config.loading import known_keys, load_config, load_settings, shipped_configs
from parsecaps.config.sections import (
    AugmentationSection,
    Config,
    DataSection,
    EvaluateConfig,
    ExplainConfig,
    ModelSection,
    OptimizerName,
    PredictConfig,
    PreparationSection,
    Section,
    TrainingSection,
)

__all__ = [
    "AugmentationSection",
    "Config",
    "DataSection",
    "EvaluateConfig",
    "ExplainConfig",
    "ModelSection",
    "OptimizerName",
    "PredictConfig",
    "PreparationSection",
    "Section",
    "TrainingSection",
    "known_keys",
    "load_config",
    "load_settings",
    "shipped_configs",
]
