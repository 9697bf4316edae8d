"""ParseCaps, the whole network (Sec. 3.1, Fig. 2)."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib import import_module
from typing import Any, ClassVar, Self, get_type_hints

from torch import Tensor, nn

from parsecaps.files.untrusted import shown
from parsecaps.functional.squash import SquashForm
from parsecaps.models.pretrained import Head, Presets, PretrainedModel, check_head
from parsecaps.nn.capsules import InitialBlock, PrimaryCaps, capsule_norm
from parsecaps.nn.cell import capsule_block
from parsecaps.nn.heads import Bottleneck, ConceptLayer, Decoder, FullyCaps
from parsecaps.nn.recorder import hooked
from parsecaps.nn.routes import RouteTree, record_chain
from parsecaps.nn.routing import Context, RoutingConfig
from parsecaps.nn.trunk import NO_TRUNK, TRUNKS, TrunkBlock
from parsecaps.types import Output

# as the paper prints it (`docs/paper.md`): one head, no sense of place, raw queries and keys; no path, normalisation,
# bias or scale that it does not name
_AS_PRINTED: dict[str, Any] = {
    "heads": (1, 1, 1),
    "radius": (-1, -1, -1),
    "paper_logits": True,
    "normalisation": "layer",
    "squash_form": "quadratic",
    "head_squash": "quadratic",
    "class_scale": 1.0,
    "dropout": 0.25,
    **dict.fromkeys(("locality", "residual", "norm_before_mlp", "mlp_residual", "top_norm", "primary_norm"), False),
    **dict.fromkeys(("head_bias", "learn_scale"), False),
}

PRESETS: Presets = {
    # the paper's CE-MRI column: n | d = 784 | 8, 196 | 16, 49 | 36, 16 | 64
    "medical": {"grid_width": 28, "dims": (8, 16, 36, 64), "image_size": 224},
    # the paper's MNIST column: n | d = 196 | 2, 49 | 4, 16 | 8, 4 | 16
    "digits": {
        "grid_width": 14,
        "dims": (2, 4, 8, 16),
        "image_size": 28,
        "stem_channels": (16, 32, 32, 64),
        "heads": (2, 4, 8),
        "concept_dim": 8,
        "decoder_channels": (32, 24, 16, 8),
    },
    "tiny": {
        "grid_width": 16,
        "dims": (4, 8, 12, 16),
        "cells": (1, 1, 2),
        "image_size": 32,
        "stem_channels": (8, 8, 16, 16),
        "heads": (2, 2, 4),
        "radius": (1, 1, 2),
        "class_dim": 8,
        "concept_dim": 8,
        "decoder_channels": (16, 8, 8, 4),
        "num_concepts": 3,
    },
}
# maps of 16 x 16 primary capsules; evidence from tiles of 32 px, chosen by what sees the whole image
PRESETS["trunk"] = {
    "trunk": "lite0",
    "context": "trunk",
    "tile": 32,
    "dims": (16, 36, 64),
    "cells": (2, 5),
    "heads": (6, 8),
    "radius": (2, 2),
    "whole_values": True,
    "image_size": 128,
}
# the paper gives totals alone: 490 K weights, 3.6 M with the decoder
PRESETS["medical-paper"] = {
    **PRESETS["medical"],
    **_AS_PRINTED,
    "stem_channels": (40, 64, 128, 160),
    "class_dim": 64,
    "decoder_channels": (480, 240, 96, 32),
}
PRESETS["digits-paper"] = PRESETS["digits"] | _AS_PRINTED
LEAST_IMAGE = {"medical-paper": 112}  # pixels a side; smaller ones give other numbers of capsules than the paper's
# without the tree: the same primary grid and as many cells, and the constant dimension with as many parameters
FLAT_PRESETS: Presets = {
    "medical": PRESETS["medical"] | {"dims": (52,) * 4, "heads": (4, 4, 4)},
    "digits": PRESETS["digits"] | {"dims": (12,) * 4, "heads": (4, 4, 4)},
    "tiny": PRESETS["tiny"] | {"dims": (12,) * 4, "heads": (2, 2, 2), "radius": (1, 1, 1)},
}

_MOST_CELLS = 500
_SAME = "trunk"  # the context that is a second copy of the trunk


class ParseCaps(PretrainedModel):
    """Initial block, primary capsules, three blocks of capsule cells, and the heads for classes and concepts.

    `head="parallel"` is the paper's: the classes and the concepts read the same top capsules side by side.
    `head="bottleneck"` computes the logits from the presences of the concepts alone.

    `widths` of the grid follow from `image_size` and `grid_width`; `dims` are the capsule dimensions of the primary
    layer and the blocks. `heads` and `radius` are given per block; a `radius` of -1 means no window. The `settings` are
    the other fields of `RoutingConfig`, by name: `routing="dynamic"`, `alpha=1.3`, `whole_values=True` and so on.

    A `trunk` replaces the initial block: its maps of the whole image, or of each `tile` of so many pixels alone, with a
    `margin`. With a `context`, a second trunk sees the whole image ("trunk": of the same kind), and chooses the
    children in the first `context_cells` cells. Evidence is local then, the choice global.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output`

    >>> import torch
    >>> model = ParseCaps.from_preset("medical", num_classes=3, image_size=112).eval()
    >>> model(torch.rand(2, 1, 112, 112)).logits.shape
    torch.Size([2, 3])
    """

    presets = PRESETS
    has_capsules = True
    route_form = "tree"
    without_decoder = "build it with num_concepts of at least 1, which it decodes"
    num_concepts = 8
    stride: ClassVar[int] = 2  # of the first cell of each block

    def build_layers(
        self,
        *,
        head: Head = "parallel",
        grid_width: int = 28,
        stem_channels: Sequence[int] = (32, 64, 64, 64),
        dims: Sequence[int] = (8, 16, 36, 64),
        cells: Sequence[int] = (1, 2, 5),
        heads: Sequence[int] = (4, 6, 8),
        radius: Sequence[int] = (2, 2, 2),
        trunk: str = NO_TRUNK,
        tile: int = 0,
        margin: int = 0,
        context: str = NO_TRUNK,
        context_cells: int = 1,
        class_dim: int = 16,
        concept_dim: int = 16,
        class_scale: float = 10.0,
        learn_scale: bool = True,
        head_squash: SquashForm = "exponential",
        head_bias: bool = True,
        primary_norm: bool = True,
        top_norm: bool = True,
        mlp_ratio: int = 2,
        dropout: float = 0.1,
        decoder_channels: Sequence[int] = (64, 48, 32, 16),
        **settings: Any,
    ) -> None:
        routing = RoutingConfig(**settings)
        self.config = {**asdict(routing), **self.config}
        if not len(dims) == len(cells) + 1 == len(heads) + 1 == len(radius) + 1:
            counts = f"{len(dims)} dims, {len(cells)} cells, {len(heads)} heads and {len(radius)} radii"
            raise ValueError(f"{counts} do not fit together; give one of each per block, and one more dim")
        if min(cells, default=0) < 1 or sum(cells) > _MOST_CELLS:
            raise ValueError(f"cells is {shown(cells)}; give at least 1 cell per block, and at most {_MOST_CELLS}")
        if context and context_cells < 1:
            advice = "give at least 1 cell in which it chooses, or context=false"
            raise ValueError(f"context_cells is {context_cells}; {advice}")
        check_head(head, self.num_concepts)
        image: dict[str, int] = {"in_channels": self.in_channels, "image_size": self.image_size}
        self.initial: InitialBlock | TrunkBlock
        chooses = trunk if context == _SAME else context
        if not {trunk, chooses} <= {NO_TRUNK, *TRUNKS}:
            import_module("parsecaps.rivals")  # which enter theirs
        if trunk == NO_TRUNK:
            wanted = {"tile": tile, "margin": margin, "context": context if context == _SAME else ""}
            for name, value in wanted.items():
                if value:
                    advice = "but there is no trunk to have it; set trunk=lite0, or leave it out"
                    raise ValueError(f"{name} is {value}, {advice}")
            self.initial = InitialBlock(**image, channels=stem_channels, grid_width=grid_width)
        else:
            self.initial = TrunkBlock(trunk=trunk, **image, tile=tile, margin=margin)
        self.context = None if chooses == NO_TRUNK else TrunkBlock(trunk=chooses, **image)
        maps = None if self.context is None else Context(self.context.channels, self.context.width)
        self.primary = PrimaryCaps(
            in_channels=self.initial.channels,
            dim=dims[0],
            squash_form=routing.squash_form,
            places=0 if maps is None else self.initial.width**2,
            norm=primary_norm,
        )
        blocks = []
        self.widths = [self.initial.width]
        for i, num_cells in enumerate(cells):
            block = capsule_block(
                cells=num_cells,
                width=self.widths[-1],
                in_dim=dims[i],
                out_dim=dims[i + 1],
                stride=self.stride,
                mlp_ratio=mlp_ratio,
                dropout=dropout,
                config=replace(routing, heads=heads[i], radius=None if radius[i] < 0 else radius[i]),
                context=maps,
                by_context=context_cells - sum(cells[:i]),
            )
            blocks.append(block)
            self.widths.append(-(-self.widths[-1] // self.stride))
        self.blocks = nn.Sequential(*blocks)
        self.norm = capsule_norm(routing.normalisation, dims[-1]) if top_norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        top: dict[str, Any] = {"in_capsules": self.widths[-1] ** 2, "in_dim": dims[-1]}
        top |= {"squash_form": head_squash, "bias": head_bias}
        self.concepts: ConceptLayer | None = None
        if m := self.num_concepts:
            self.concepts = ConceptLayer(**top, num_concepts=m, concept_dim=concept_dim)
            drawn = {"out_channels": self.in_channels, "image_size": self.image_size}
            self.decoder = Decoder(num_concepts=m, channels=decoder_channels, **drawn)
        self.classes: FullyCaps | Bottleneck = (
            Bottleneck(num_concepts=m, num_classes=self.num_classes)
            if head == "bottleneck"
            else FullyCaps(
                **top, num_classes=self.num_classes, class_dim=class_dim, scale=class_scale, learn_scale=learn_scale
            )
        )

    @classmethod
    def from_preset(cls, preset: str, **changes: Any) -> Self:
        least, size = LEAST_IMAGE.get(preset, 0), changes.get("image_size", 224)
        if size < least:
            why = f"{preset} has the paper's {28**2} primary capsules and 16 at the top only from {least} pixels on"
            raise ValueError(f"image_size is {size}, but {why}; enlarge the images to {least}, or take digits-paper")
        return super().from_preset(preset, **changes)

    @classmethod
    def settings(cls) -> dict[str, Any]:
        return {**get_type_hints(RoutingConfig), **super().settings()}

    @property
    def evidence(self) -> InitialBlock | TrunkBlock | None:
        return None if self.context is None else self.initial

    @property
    def cells(self) -> list[nn.Module]:
        """The capsule cells of all blocks, from the leaves up."""
        return [cell for block in self.blocks for cell in block.children()]

    def routes(self, image: Tensor) -> RouteTree:
        chain, maps = [self.initial, self.primary, *self.cells, self.norm], list[Tensor]()
        streams = [] if self.context is None else [self.context]
        with hooked(streams, lambda module, inputs, outcome: maps.append(outcome)):
            output, (initial, _, *recorded, _) = record_chain(self, image, chain)
        return RouteTree(
            output=output,
            image=initial.given,
            context=maps[0] if maps else None,
            initial=self.initial,
            primary_caps=self.primary,
            cells=tuple(recorded),
            norm=self.norm,
            concepts=self.concepts,
            classes=self.classes,
            reasoning=self.reasoning(output),
        )

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        context = [] if self.context is None else [self.context(image)]
        u = self.primary(self.initial(image))
        for cell in self.cells:
            u = cell(u, *context)
        u = self.dropout(self.norm(u))
        concept_capsules = presence = global_capsule = reconstruction = None
        if self.concepts is not None:
            concept_capsules, presence, global_capsule = self.concepts(u)
        logits, class_capsules = self.classes(presence if isinstance(self.classes, Bottleneck) else u)
        if reconstruct and self.decoder is not None:
            reconstruction = self.decoder(global_capsule)
        return Output(logits, class_capsules, concept_capsules, presence, global_capsule, reconstruction)


class FlatCaps(ParseCaps):
    """The same initial block, routing, cells and heads, at a constant number and dimension of capsules.

    The paper's baseline "with SAA routing but without the parse-tree-like structure", of which it gives no sizes. Every
    cell keeps the primary grid, and all capsules are connected to the heads. Presets have about as many parameters as
    those of ParseCaps, at three times the work. Build it from a preset, or give equal `dims`.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output`

    >>> model = FlatCaps.from_preset("medical", num_classes=3)
    >>> model.widths
    [28, 28, 28, 28]
    """

    presets = FLAT_PRESETS
    stride = 1
