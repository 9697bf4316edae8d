import torch

from parsecaps.explain.map_makers import map_makers, route_relevance, routes_of
from parsecaps.explain.route_maps import concept_maps
from parsecaps.models import FlatCaps, ParseCaps, PlainCNN
from parsecaps.nn import record_couplings


def test_routes_are_compared_where_there_are_any() -> None:
    image = torch.rand(1, 1, 32, 32)
    for kind in (ParseCaps, FlatCaps):
        model = kind.from_preset("tiny", num_classes=2).eval()
        makers = map_makers(model)
        assert list(makers) == ["routes", "grad-cam", "integrated gradients", "occlusion"]
        for maker in makers.values():
            assert maker(model, image, about="classes").shape == (1, 2, 32, 32)
        torch.testing.assert_close(makers["routes"](model, image, about="concepts"), concept_maps(model, image))
    cnn = PlainCNN.from_preset("tiny", num_classes=2).eval()
    assert list(map_makers(cnn)) == ["grad-cam", "integrated gradients", "occlusion"]
    assert routes_of(cnn) is None
    for maker in map_makers(cnn).values():
        assert maker(cnn, image, about="concepts").shape == (1, 3, 32, 32)


def test_every_route_has_a_relevance_and_only_routes_do() -> None:
    model, image = ParseCaps.from_preset("tiny", num_classes=2).eval(), torch.rand(2, 1, 32, 32)
    relevance = route_relevance(model, image, "concepts", 1)
    with record_couplings(model) as recorded:
        model(image)
    couplings = [each.coupling for each in recorded if each.branch == "sparse"]
    assert [each.shape for each in relevance] == [each.shape for each in couplings]
