"""What is explained: the presence of a concept or the logit of a class, against a picture with nothing in it."""

from typing import Literal, NamedTuple

from torch import Tensor

About = Literal["concepts", "classes"]


class Target(NamedTuple):
    """The presence of a concept, or the logit of a class, by its number among the model's outputs."""

    about: About
    index: int  # type: ignore[assignment]  # the name is also that of a method of tuples


def neutral_image(image: Tensor) -> Tensor:
    """A picture (B, channels, H, W) with nothing in it: everywhere the median colour of `image`."""
    return image.flatten(2).median(2).values[:, :, None, None].expand_as(image)
