"""Named sizes of the models: the columns of the paper's capsule table, and a small one for tests."""

from typing import Any

# the cell as the paper prints it: one head, no sense of place, raw queries and keys
_PAPER_CELL: dict[str, Any] = {
    "heads": (1, 1, 1),
    "radius": (-1, -1, -1),
    "locality": False,
    "paper_logits": True,
    "normalisation": "layer",
    "squash_form": "quadratic",
}

PRESETS: dict[str, dict[str, Any]] = {
    # the paper's CE-MRI column: n | d = 784 | 8, 196 | 16, 49 | 36, 16 | 64
    "medical": {"grid_width": 28, "dims": (8, 16, 36, 64), "image_size": 224},
    # the paper's MNIST column: n | d = 196 | 2, 49 | 4, 16 | 8, 4 | 16
    "digits": {
        "grid_width": 14,
        "dims": (2, 4, 8, 16),
        "image_size": 28,
        "stem_channels": (16, 32, 32, 64),
        "heads": (2, 4, 8),
        "concept_dim": 8,
        "decoder_channels": (32, 24, 16, 8),
    },
    "tiny": {
        "grid_width": 16,
        "dims": (4, 8, 12, 16),
        "cells": (1, 1, 2),
        "image_size": 32,
        "stem_channels": (8, 8, 16, 16),
        "heads": (2, 2, 4),
        "radius": (1, 1, 2),
        "class_dim": 8,
        "concept_dim": 8,
        "decoder_channels": (16, 8, 8, 4),
        "num_concepts": 3,
    },
}
PRESETS["medical-paper"] = PRESETS["medical"] | _PAPER_CELL
PRESETS["digits-paper"] = PRESETS["digits"] | _PAPER_CELL

# without the tree: the same primary grid and as many cells, and the constant dimension with as many parameters
FLAT_PRESETS: dict[str, dict[str, Any]] = {
    "medical": PRESETS["medical"] | {"dims": (52,) * 4, "heads": (4, 4, 4)},
    "digits": PRESETS["digits"] | {"dims": (12,) * 4, "heads": (4, 4, 4)},
    "tiny": PRESETS["tiny"] | {"dims": (12,) * 4, "heads": (2, 2, 2), "radius": (1, 1, 1)},
}

CNN_PRESETS: dict[str, dict[str, Any]] = {
    "medical": {"grid_width": 28, "image_size": 224},
    "digits": {"grid_width": 14, "image_size": 28, "stem_channels": (16, 32, 32, 64), "channels": (24, 24, 24)},
    "tiny": {
        "grid_width": 16,
        "image_size": 32,
        "stem_channels": (8, 8, 16, 16),
        "channels": (16, 16, 16),
        "num_concepts": 3,
    },
}

RESNET_PRESETS: dict[str, dict[str, Any]] = {
    "medical": {"image_size": 224},
    "digits": {"image_size": 28},
    "tiny": {"image_size": 32, "num_concepts": 3},
}
