"""The decoder of DeepCaps: one for all classes, by transposed convolutions."""

from torch import Tensor, nn

_SMALLEST = 8  # the grid that pixels are made from is at most this wide
_CHANNELS = (64, 32, 16, 8)  # the last one from there on
_SEEDS = 16  # channels of that grid


class DeconvDecoder(nn.Module):
    """From one class capsule to the image, by the same weights for every class (Rajasegaran et al. 2019).

    A linear layer makes a grid of 16 channels, 7 x 7 for 28 pixels and 8 x 8 for 64; transposed 3x3 convolutions double
    it, without an activation in between, and a ReLU ends it. For other sizes the grid is the largest of up to 8 x 8
    that doublings bring to the image, what is too much at the edge is cut off, and the fourth
    and later ones have 8 channels.

    Shapes:
        - input: (B, dim)
        - output: (B, channels, image_size, image_size)
    """

    def __init__(self, *, dim: int, channels: int, image_size: int) -> None:
        super().__init__()
        width, doublings = image_size, 0
        while width > _SMALLEST:
            width, doublings = -(-width // 2), doublings + 1
        self.width, self.image_size = width, image_size
        self.seed = nn.Sequential(nn.Linear(dim, _SEEDS * width**2), nn.ReLU(inplace=True))
        layers: list[nn.Module] = [nn.BatchNorm2d(_SEEDS, momentum=0.2)]  # 0.8 as Keras counts it
        last = _SEEDS
        for i in range(doublings + 1):
            out = _CHANNELS[min(i, len(_CHANNELS) - 1)]
            stride = 1 if i == 0 else 2
            layers.append(nn.ConvTranspose2d(last, out, 3, stride, padding=1, output_padding=stride - 1))
            last = out
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(last, channels, 3, padding=1), nn.ReLU(inplace=True))
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.ConvTranspose2d):  # a bias below 0 at the end would leave no gradient
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, capsule: Tensor) -> Tensor:
        grid = self.seed(capsule).view(-1, _SEEDS, self.width, self.width)
        image: Tensor = self.layers(grid)
        return image[..., : self.image_size, : self.image_size]
