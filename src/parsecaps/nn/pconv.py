"""PConvCaps: what the parents could be, predicted from their children (Sec. 3.2.1)."""

from einops import rearrange
from torch import Tensor, nn

from parsecaps.nn.normalisation import Normalisation, capsule_norm


class PConvCaps(nn.Module):
    """The prediction `U_hat` of the parents: depthwise 3x3 convolution on the grid, normalisation, pointwise map.

    It only asks: the prediction is the query of the routing and is never added to the parents, so that nothing climbs
    the tree but through the couplings. `bias=False` is for a prediction that is batch-normalised afterwards.

    Shapes:
        - input: U_l (B, w * w, in_dim)
        - output: U_hat (B, w' * w', out_dim), w' = ceil(w / stride)
    """

    def __init__(
        self, *, width: int, in_dim: int, out_dim: int, stride: int, normalisation: Normalisation, bias: bool = True
    ) -> None:
        super().__init__()
        self.width = width
        self.depthwise = nn.Conv2d(in_dim, in_dim, 3, stride, padding=1, groups=in_dim, bias=False)
        self.norm = capsule_norm(normalisation, in_dim, bias=bias)
        self.pointwise = nn.Linear(in_dim, out_dim, bias=bias)

    def forward(self, u: Tensor) -> Tensor:
        grid = rearrange(u, "b (h w) d -> b d h w", w=self.width)
        u_hat = rearrange(self.depthwise(grid), "b d h w -> b (h w) d")
        prediction: Tensor = self.pointwise(self.norm(u_hat))
        return prediction
