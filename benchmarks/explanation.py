"""How long an explanation takes: maps of all concepts and of the diagnosis, and three parse trees, of one image.

The medical preset at 224 pixels in colour, with seven concepts and two classes, with random weights and no training
cases. The best turn counts; beside the wall time stands the time of the processor, which a busy machine changes less.
"""

import time

import torch

from parsecaps.data.preparation import Preparation
from parsecaps.model import Model
from parsecaps.models import ParseCaps

SIZE, CONCEPTS, CLASSES = 224, 7, 2


def new_model(head: str = "parallel") -> Model:
    """The explainer of a new model."""
    torch.manual_seed(0)
    model = ParseCaps.from_preset(
        "medical", num_classes=CLASSES, num_concepts=CONCEPTS, in_channels=3, image_size=SIZE, head=head
    )
    names = [tuple(f"{what} {i}" for i in range(count)) for what, count in (("class", CLASSES), ("concept", CONCEPTS))]
    return Model(model.eval(), Preparation(size=SIZE, channels=3), names[0], names[1])


def best_turn(head: str = "parallel", turns: int = 12) -> tuple[float, float]:
    """The seconds of the wall clock and of the processor of the best of some turns, after one to warm up."""
    made, image = new_model(head), torch.rand(3, SIZE, SIZE)
    made.explain(image)
    wall, processor = [], []
    for _ in range(turns):
        start = time.perf_counter(), time.process_time()
        made.explain(image)
        wall.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    return min(wall), min(processor)
