"""MNIST with the `digits` preset: the paper's smaller column (Tab. 4), trained from nothing.

    python -m parsecaps.experiments.digits DATA/mnist --epochs 10

The last 5,000 training digits are for choosing; the test digits are looked at once, at the end. One line of JSON.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from parsecaps.data.augment import Augmentation
from parsecaps.data.mnist import read_mnist
from parsecaps.experiments.routes import route_scores
from parsecaps.experiments.short_training import Split, accuracy, train
from parsecaps.models import ParseCaps
from parsecaps.training.schedule import Schedule

NUM_VALIDATION = 5000
# a digit must stay the same digit: no mirror, little rotation
AUGMENTATION = Augmentation(flip=False, rotation=10.0, scale=0.1, shear=0.1, shift=0.05, gamma=0.0, contrast=0.0)


def read_split(folder: Path) -> tuple[Split, torch.Tensor]:
    """All digits, split for training and testing, and the rows kept for validation."""
    train_image, train_label = read_mnist(folder, "train")
    test_image, test_label = read_mnist(folder, "test")
    rows = torch.arange(len(train_label) + len(test_label))
    chosen = len(train_label) - NUM_VALIDATION
    image, label = torch.cat([train_image, test_image]), torch.cat([train_label, test_label])
    return Split(image, label, rows[:chosen], rows[len(train_label) :]), rows[chosen : len(train_label)]


def main() -> None:
    """Train once and print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--no-test", action="store_true", help="print the validation accuracy alone")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    split, validation = read_split(options.data)
    torch.manual_seed(options.seed)
    model = ParseCaps.from_preset("digits", num_classes=10, num_concepts=0)
    schedule = Schedule(epochs=options.epochs, batch_size=128, learning_rate=3e-3, warm_up_epochs=1)
    start = time.perf_counter()
    trained = train(
        model,
        split,
        schedule,
        seed=options.seed,
        augmentation=AUGMENTATION,
        log=lambda line: print("#", line, flush=True),
    )
    result = {
        "seed": options.seed,
        "epochs": options.epochs,
        "parameters": sum(p.numel() for p in model.parameters()),
        "train": round(trained, 2),
        "validation": round(accuracy(model, split, validation), 2),
        "seconds": round(time.perf_counter() - start),
    }
    if not options.no_test:
        result |= {"n": len(split.test), "test": round(accuracy(model, split), 2)}
        result |= {name: round(score, 2) for name, score in route_scores(model, split).items()}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
