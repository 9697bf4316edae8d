"""What must hold for every model of the package, as tests to inherit.

A test class of a model inherits `ModelContract` and overrides `build`; a model that routes inherits `RoutingContract`.
"""

import inspect
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from parsecaps.models import PretrainedModel, load_model
from parsecaps.models.summary import count_parameters
from parsecaps.nn import Coupling, record_couplings, replace_couplings
from parsecaps.types import Output
from tests.messages import refused

ALONE = {"rtol": 1e-5, "atol": 1e-5}


class ModelContract:
    """The promises of STYLE and `types.Output`, for the model that `build` gives.

    `wrong` are settings of its own that it refuses.
    `cancelled` are the ends of names of parameters that a normalisation behind them takes out in training, such as a
    bias with a linear layer in between: they have no gradient.
    """

    cancelled: tuple[str, ...] = ()
    wrong: tuple[dict[str, Any], ...] = ()

    def build(self) -> PretrainedModel:
        raise NotImplementedError("override build()")

    def images(self, model: PretrainedModel, count: int = 3) -> Tensor:
        return torch.rand(count, model.in_channels, model.image_size, model.image_size)

    def test_every_part_of_the_output_has_its_shape(self) -> None:
        model = self.build()
        image = self.images(model)
        for mode in (True, False):
            output = model.train(mode)(image, reconstruct=decodes(model))
            assert isinstance(output, Output)
            classes, m = model.num_classes, model.num_concepts
            assert output.logits.shape == (3, classes)
            if m:
                assert output.presence is not None
                assert output.presence.shape == (3, m)
            else:
                assert output.presence is None
            if m and model.has_capsules:
                assert output.concept_capsules is not None
                assert output.concept_capsules.shape[:2] == (3, m)
                assert output.global_capsule is not None
                assert output.global_capsule.shape == (3, 1, m)
            else:
                assert (output.concept_capsules, output.global_capsule) == (None, None)
            assert (output.reconstruction is not None) == decodes(model)
            assert output.reconstruction is None or output.reconstruction.shape == image.shape
            if output.class_capsules is not None:
                assert output.class_capsules.shape[:2] == (3, classes)
            assert all(part is None or part.isfinite().all() for part in output)

    def test_presence_is_a_length_and_the_global_capsule_sums_to_1(self) -> None:
        model = self.build().eval()
        output = model(5 * self.images(model))
        if output.presence is not None:
            assert output.presence.min() >= 0
            assert output.presence.max() < 1
        if output.concept_capsules is not None:
            torch.testing.assert_close(output.presence, output.concept_capsules.norm(dim=-1))
            torch.testing.assert_close(output.global_capsule.sum(-1), torch.ones(3, 1))

    def test_gradients_reach_every_parameter(self) -> None:
        # not quite at the start, where ties by symmetry may hide a parameter for one step, and in float64, where a
        # gradient that is zero but for rounding shows as such
        model = warmed_up(self.build()).double().train()
        for _ in range(2):
            image = self.images(model).double()
            parts = model(image, reconstruct=decodes(model))
            sum((part * torch.randn_like(part)).sum() for part in parts if part is not None).backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
        unused = [name for name, grad in gradients.items() if grad is None]
        assert not unused, f"no gradient for {unused}"
        wild = [name for name, grad in gradients.items() if not grad.isfinite().all()]
        assert not wild, f"gradient is not finite for {wild}"
        dead = [name for name, grad in gradients.items() if grad.abs().max() < 1e-9]
        expected = [name for name in gradients if name.endswith(self.cancelled)]
        assert dead == expected, f"gradient is zero for {dead}, expected for {expected}"

    def test_parameters_that_predict_are_counted_apart_from_the_decoder(self) -> None:
        model = self.build().eval().requires_grad_()
        parts = [part.sum() for part in model(self.images(model)) if part is not None]
        gradients = torch.autograd.grad(sum(parts), list(model.parameters()), allow_unused=True)
        used = sum(p.numel() for p, grad in zip(model.parameters(), gradients, strict=True) if grad is not None)
        found = count_parameters(model)
        assert found.predicting == used
        assert sum(found) == sum(p.numel() for p in model.parameters())
        assert (found.decoder > 0) == decodes(model)

    def test_evaluation_is_deterministic(self) -> None:
        model = self.build().eval()
        image = self.images(model)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        first, second = model(image), model(image)
        assert_same(first, second, rtol=0, atol=0)
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())

    def test_a_row_is_the_same_alone_or_in_a_batch(self) -> None:
        model = warmed_up(self.build())
        image = self.images(model, 4) * torch.tensor([0.01, 1, 3, 1]).view(4, 1, 1, 1)
        reconstruct = decodes(model)
        together = model(image, reconstruct)
        alone = [model(image[i : i + 1], reconstruct) for i in range(4)]
        shuffled = model(image.flip(0), reconstruct)
        for k, part in enumerate(together):
            if part is not None:
                torch.testing.assert_close(part, torch.cat([output[k] for output in alone]), **ALONE)
                torch.testing.assert_close(part, shuffled[k].flip(0), **ALONE)

    def test_an_empty_batch_gives_an_empty_output(self) -> None:
        model = self.build().eval()
        assert model(self.images(model, 0)).logits.shape == (0, model.num_classes)

    def test_labels_are_never_an_input(self) -> None:
        model = self.build()
        assert list(inspect.signature(model.forward).parameters) == ["image", "reconstruct"]
        assert not [name for name in type(model).settings() if "label" in name]

    def test_wrong_settings_get_one_line(self) -> None:
        model = self.build()
        kind, config = type(model), model.config
        wrong = [*self.wrong, {"num_classes": 0}, {"image_size": 20}]
        if kind.largest_image < 1000:
            wrong.append({"image_size": kind.largest_image + 1})
        if not kind.names_concepts:
            wrong.append({"num_concepts": 2})
        if kind.needs_concepts:
            wrong.append({"num_concepts": 0})
        for changes in wrong:
            with refused(ValueError):
                kind.from_config({**config, **changes})

    def test_no_picture_without_a_decoder(self) -> None:
        model = self.build().eval()
        if not decodes(model):
            with refused(ValueError):
                model(self.images(model, 1), reconstruct=True)

    def test_save_and_load_give_identical_outputs(self, tmp_path: Path) -> None:
        model = warmed_up(self.build())
        model.save_pretrained(tmp_path / "model")
        image = self.images(model)
        for loaded in (type(model).from_pretrained(tmp_path / "model"), load_model(tmp_path / "model")):
            assert type(loaded) is type(model)
            assert not loaded.training
            assert loaded.config == model.config
            assert_same(loaded(image), model(image), rtol=0, atol=0)


class CompileContract(ModelContract):
    """For one variant of a model: compiling takes seconds, and most variants share their code."""

    def build_to_compile(self) -> PretrainedModel:
        """The same layers, fewer of them where that is possible."""
        return self.build()

    def test_compile_without_a_break(self) -> None:
        torch.compiler.reset()  # what other models left behind counts against a limit
        model = warmed_up(self.build_to_compile())
        image = self.images(model)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        output = compiled(image)
        assert_same(output, model(image), **ALONE)
        output.logits.square().sum().backward()
        gradients = [p.grad for p in model.parameters()]
        model.zero_grad()
        model(image).logits.square().sum().backward()
        for got, p in zip(gradients, model.parameters(), strict=True):
            expected = torch.zeros_like(p) if p.grad is None else p.grad
            torch.testing.assert_close(torch.zeros_like(p) if got is None else got, expected, rtol=1e-3, atol=1e-4)


class ExportContract(ModelContract):
    """For one variant of a model, as with compiling."""

    def test_export_with_any_batch_size(self) -> None:
        model = warmed_up(self.build())
        with torch.no_grad():
            program = torch.export.export(model, (self.images(model, 2),), dynamic_shapes=({0: BATCH},))
            exported = program.module()
            for count in (1, 2, 5):
                image = self.images(model, count)
                assert_same(exported(image), model(image), **ALONE)


class RoutingContract(ModelContract):
    """Further promises of a model whose `blocks` are a tree of capsules, joined by couplings.

    `over` is the axis along which the couplings sum to 1, `tree` whether capsules become fewer and longer, and
    `branches` the names of what is coupled in a cell.
    """

    branches = frozenset({"sparse", "axial"})
    over = "children"
    tree = True

    def test_capsules_become_fewer_and_longer_in_a_tree_alone(self) -> None:
        model = self.build().eval()
        shapes = capsule_shapes(model, self.images(model, 1))
        counts, dims = zip(*shapes, strict=True)
        if self.tree:
            assert list(counts) == sorted(set(counts), reverse=True)
            assert list(dims) == sorted(set(dims))
        else:
            assert len(set(shapes)) == 1
        assert [n == w * w for n, w in zip(counts, model.widths, strict=True)] == [True] * len(shapes)

    def test_couplings_are_shares(self) -> None:
        model = warmed_up(self.build())
        with record_couplings(model) as recorded:
            model(self.images(model))
        cells = sum(len(block) for block in model.blocks)
        assert len(recorded) == cells * len(self.branches)
        assert {r.branch for r in recorded} == self.branches
        for r in recorded:
            c = r.coupling
            assert c.dim() == 4
            assert not c.requires_grad
            assert c.min() >= 0
            over_parents = r.between == "capsules" and self.over == "parents"
            total = c.sum(-2 if over_parents else -1)
            torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-5)

    def test_couplings_have_the_shape_of_the_tree(self) -> None:
        model = self.build().eval()
        with record_couplings(model) as recorded:
            model(self.images(model, 2))
        shapes = iter([tuple(r.coupling.shape[2:]) for r in recorded if r.between == "capsules"])
        width = model.widths[0]
        for block, parents in zip(model.blocks, model.widths[1:], strict=True):
            for _ in block:
                assert next(shapes) == (parents**2, width**2)
                width = parents


class SparseContract(RoutingContract):
    """Further promises of a tree whose parents choose by content: most children of a window are left out."""

    def test_couplings_contain_exact_zeros_that_depend_on_the_image(self) -> None:
        model = sharpened(warmed_up(self.build()))
        found: list[Tensor] = []

        def look(module: Coupling, c: Tensor) -> Tensor:
            if module.between == "capsules":  # a zero outside the window is no choice
                allowed = torch.ones_like(c) if module.allowed is None else module.allowed.expand_as(c)
                found.append((c == 0) & allowed.bool())
            return c

        with replace_couplings(model, look):
            model(self.images(model))
        assert all(zero.any() for zero in found), "a cell has no zero coupling inside its windows"
        assert all((zero != zero[:1]).any() for zero in found), "the zeros of a cell are the same for all images"


BATCH = torch.export.Dim.DYNAMIC


def decodes(model: PretrainedModel) -> bool:
    return model.decoder is not None


def warmed_up(model: PretrainedModel) -> PretrainedModel:
    """The model in evaluation mode, with the running statistics and other numbers of one that has been trained."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() >= 1:
                p.add_(0.02 * torch.randn_like(p))
        for norm in norms:
            norm.momentum = 1.0
        image = torch.rand(4, model.in_channels, model.image_size, model.image_size)
        model.train()(image, reconstruct=decodes(model))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return model.eval()


def capsule_shapes(model: nn.Module, image: Tensor) -> list[tuple[int, int]]:
    """(n, d) of the primary capsules and of each block's, as they are when the model runs."""
    shapes: list[tuple[int, int]] = []
    layers = [model.primary, *(block[-1] for block in model.blocks)]
    handles = [layer.register_forward_hook(lambda _, __, u: shapes.append(tuple(u.shape[1:]))) for layer in layers]
    model(image)
    for handle in handles:
        handle.remove()
    return shapes


def sharpened(model: PretrainedModel) -> PretrainedModel:
    """The model with a choice by content as clear as training makes it."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("temperature"):
                p.mul_(10)
    return model


def assert_same(first: Output, second: Output, *, rtol: float, atol: float) -> None:
    for name, a, b in zip(Output._fields, first, second, strict=True):
        assert (a is None) == (b is None), name
        if a is not None:
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol, msg=lambda text, name=name: f"{name}: {text}")
