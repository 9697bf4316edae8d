"""The decoder of capsule networks without concepts: a picture from the capsule of one class."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F


class ClassDecoder(nn.Module):
    """Fully connected layers with ReLU, and a sigmoid for the pixels (Sabour, Frosst and Hinton 2017).

    All capsules but that of the class wanted are set to 0, so what is drawn is told by its numbers and its place.

    Shapes:
        - input: class capsules (B, K, d), index (B,) int64, the class of each image
        - output: (B, out_channels, image_size, image_size), in [0, 1]
    """

    def __init__(
        self,
        *,
        num_classes: int,
        dim: int,
        out_channels: int,
        image_size: int,
        sizes: Sequence[int] = (512, 1024),
    ) -> None:
        super().__init__()
        self.shape = (out_channels, image_size, image_size)
        layers: list[nn.Module] = []
        features = num_classes * dim
        for size in sizes:
            layers += [nn.Linear(features, size), nn.ReLU(inplace=True)]
            features = size
        self.layers = nn.Sequential(*layers, nn.Linear(features, out_channels * image_size**2), nn.Sigmoid())

    def forward(self, class_capsules: Tensor, index: Tensor) -> Tensor:
        chosen = F.one_hot(index, class_capsules.shape[1]).to(class_capsules.dtype)
        pixels: Tensor = self.layers((class_capsules * chosen.unsqueeze(-1)).flatten(1))
        return pixels.view(-1, *self.shape)
