"""What the concept models of others share: a backbone, and a way to the classes that leads through the concepts."""

from typing import Any, ClassVar

from parsecaps.models.features import build_backbone
from parsecaps.models.pretrained import PretrainedModel

CONCEPT_PRESETS: dict[str, dict[str, Any]] = {
    "medical": {"image_size": 224},
    "digits": {"image_size": 28, "backbone_preset": "digits"},
    "tiny": {"image_size": 32, "backbone": "PlainCNN", "backbone_preset": "tiny", "num_concepts": 3},
}


class ConceptModel(PretrainedModel):
    """A model that decides by named concepts alone, on the features or the last feature map of any network.

    `backbone` is the name of that network in `MODELS`, `backbone_preset` its size. It learns with the rest; its first
    weights are new ones (deviation: the published models start from ImageNet's).

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits and presences
    """

    presets = CONCEPT_PRESETS
    needs_concepts: ClassVar[bool] = True

    def __init__(self, config: dict[str, Any], *, takes_map: bool = False) -> None:
        super().__init__(config)
        backbone = build_backbone(
            config["backbone"], config["backbone_preset"], in_channels=self.in_channels, image_size=self.image_size
        )
        self.backbone = backbone.up_to_map() if takes_map else backbone.without_heads()

    def refuse_reconstruction(self, reconstruct: bool) -> None:
        """There is no decoder."""
        if reconstruct:
            raise ValueError(f"{type(self).__name__} has no decoder; call it without reconstruct")
