"""ParseCaps, the whole network (Sec. 3.1, Fig. 2)."""

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from parsecaps.functional.squash import SquashForm
from parsecaps.models.presets import PRESETS
from parsecaps.models.pretrained import Head, PretrainedModel, check_head
from parsecaps.nn.cell import capsule_block
from parsecaps.nn.decoder import Decoder
from parsecaps.nn.heads import Bottleneck, ConceptLayer, FullyCaps
from parsecaps.nn.initial import InitialBlock
from parsecaps.nn.normalisation import Normalisation, capsule_norm
from parsecaps.nn.primary import PrimaryCaps
from parsecaps.nn.sparse import Choice
from parsecaps.types import Output


class ParseCaps(PretrainedModel):
    """Initial block, primary capsules, three blocks of capsule cells, and the heads for classes and concepts.

    `head="parallel"` is the paper's: the classes and the concepts read the same top capsules side by side.
    `head="bottleneck"` computes the logits from the presences of the concepts alone.

    `widths` of the grid follow from `image_size` and `grid_width`; `dims` are the capsule dimensions of the primary
    layer and the blocks. `heads` and `radius` are given per block; a `radius` of -1 means no window. The rest of the
    arguments are those of the layers.

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
    stride: ClassVar[int] = 2  # of the first cell of each block

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 8,
        in_channels: int = 1,
        image_size: int = 224,
        head: Head = "parallel",
        grid_width: int = 28,
        stem_channels: Sequence[int] = (32, 64, 64, 64),
        dims: Sequence[int] = (8, 16, 36, 64),
        cells: Sequence[int] = (1, 2, 5),
        heads: Sequence[int] = (4, 6, 8),
        radius: Sequence[int] = (2, 2, 2),
        whole_values: bool = False,
        class_dim: int = 16,
        concept_dim: int = 16,
        class_scale: float = 10.0,
        mlp_ratio: int = 2,
        dropout: float = 0.1,
        decoder_channels: Sequence[int] = (64, 48, 32, 16),
        alpha: float = 1.5,
        learn_alpha: bool = False,
        over: Choice = "children",
        axial: bool = True,
        locality: bool = True,
        jitter: float = 0.0,
        content: bool = True,
        paper_logits: bool = False,
        squash_form: SquashForm = "exponential",
        normalisation: Normalisation = "batch",
    ) -> None:
        config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(config)
        if not len(dims) == len(cells) + 1 == len(heads) + 1 == len(radius) + 1:
            counts = f"{len(dims)} dims, {len(cells)} cells, {len(heads)} heads and {len(radius)} radii"
            raise ValueError(f"{counts} do not fit together; give one of each per block, and one more dim")
        if min(cells) < 1:
            raise ValueError(f"cells is {tuple(cells)}; give at least 1 cell per block")
        check_head(head, num_concepts)
        self.initial = InitialBlock(
            in_channels=in_channels,
            channels=stem_channels,
            image_size=image_size,
            grid_width=grid_width,
        )
        self.primary = PrimaryCaps(in_channels=stem_channels[-1], dim=dims[0], squash_form=squash_form)
        blocks = []
        self.widths = [self.initial.width]
        for i, num_cells in enumerate(cells):
            block = capsule_block(
                cells=num_cells,
                width=self.widths[-1],
                in_dim=dims[i],
                out_dim=dims[i + 1],
                stride=self.stride,
                heads=heads[i],
                radius=None if radius[i] < 0 else radius[i],
                whole_values=whole_values,
                mlp_ratio=mlp_ratio,
                dropout=dropout,
                alpha=alpha,
                learn_alpha=learn_alpha,
                over=over,
                axial=axial,
                locality=locality,
                jitter=jitter,
                content=content,
                paper_logits=paper_logits,
                squash_form=squash_form,
                normalisation=normalisation,
            )
            blocks.append(block)
            self.widths.append(-(-self.widths[-1] // self.stride))
        self.blocks = nn.Sequential(*blocks)
        self.norm = capsule_norm(normalisation, dims[-1])
        self.dropout = nn.Dropout(dropout)
        top: dict[str, Any] = {"in_capsules": self.widths[-1] ** 2, "in_dim": dims[-1]}
        self.concepts = (
            ConceptLayer(**top, num_concepts=num_concepts, concept_dim=concept_dim) if num_concepts else None
        )
        self.decoder = (
            Decoder(
                num_concepts=num_concepts,
                channels=decoder_channels,
                out_channels=in_channels,
                image_size=image_size,
            )
            if num_concepts
            else None
        )
        self.classes: FullyCaps | Bottleneck = (
            Bottleneck(num_concepts=num_concepts, num_classes=num_classes)
            if head == "bottleneck"
            else FullyCaps(**top, num_classes=num_classes, class_dim=class_dim, scale=class_scale)
        )

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        u = self._climb(image)
        concept_capsules = presence = global_capsule = reconstruction = None
        if self.concepts is not None:
            concept_capsules, presence, global_capsule = self.concepts(u)
        logits, class_capsules = self.classes(presence if isinstance(self.classes, Bottleneck) else u)
        if reconstruct:
            if self.decoder is None:
                raise ValueError("reconstruct=True needs concepts to decode; build the model with num_concepts >= 1")
            reconstruction = self.decoder(global_capsule)
        return Output(logits, class_capsules, concept_capsules, presence, global_capsule, reconstruction)

    def top_capsules(self, image: Tensor) -> Tensor:
        """`U_L`: (B, channels, size, size) -> (B, n_L, d_L), in which both heads are linear."""
        return self._climb(self.standardise(image))

    def _climb(self, image: Tensor) -> Tensor:
        u = self.blocks(self.primary(self.initial(image)))
        top: Tensor = self.dropout(self.norm(u))
        return top
