"""What explanations are about, and one recorded forward pass that they are read from: the routes a network states."""

from typing import NamedTuple

from torch import Tensor

from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.routes import About, RouteLayer, RouteTree


class Target(NamedTuple):
    """The presence of a concept, or the logit of a class, by its number among the model's outputs.

    In a graph that is exported it may be a tensor without axes: a number that is known when the graph runs.
    """

    about: About
    index: int  # type: ignore[assignment]  # the name is also that of a method of tuples


def neutral_image(image: Tensor) -> Tensor:
    """A picture (B, channels, H, W) with nothing in it: everywhere the median colour of `image`."""
    return image.flatten(2).median(2).values[:, :, None, None].expand_as(image)


def has_tree(model: PretrainedModel) -> bool:
    """Whether a model has a tree of cells, so that a parse tree can be read from it."""
    return model.route_form == "tree"


def has_routes(model: PretrainedModel) -> bool:
    """Whether a model sends messages from capsules to capsules, so that maps can follow them."""
    return model.route_form is not None


def describe_routes(model: PretrainedModel) -> str:
    """What a model without a tree has instead, in words."""
    kind = type(model).__name__
    if has_routes(model):
        return f"{kind} has one layer of routes, to its classes, and no tree of cells"
    return f"{kind} has no routes to follow"


def trace(model: PretrainedModel, image: Tensor) -> RouteTree:
    """Run a model that is in evaluation mode once on `image` (B, channels, size, size), and keep its tree of routes.

    >>> from parsecaps.models import ParseCaps
    >>> trace(ParseCaps.from_preset("tiny", num_classes=2).eval(), torch.rand(1, 1, 32, 32)).widths
    (16, 8, 4, 2, 2)
    """
    if model.training:
        kind = type(model).__name__
        raise ValueError(f"this {kind} is in training mode, in which it answers by chance; call eval() first")
    routes = model.routes(image) if has_tree(model) else None
    if not isinstance(routes, RouteTree):
        advice = "ask for its maps alone" if has_routes(model) else "choose a gradient map"
        raise ValueError(f"{describe_routes(model)}; {advice}")
    return routes


def trace_layer(model: PretrainedModel, image: Tensor) -> RouteLayer:
    """Run a model whose routes are one layer on `image` (B, channels, size, size), and keep them."""
    routes = model.routes(image)
    assert isinstance(routes, RouteLayer)
    return routes
