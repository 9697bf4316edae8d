"""A map of an explanation as a DICOM parametric map, on the pixels and at the place of the source image."""

from typing import Any

import numpy as np
import torch

from parsecaps.data.preparation import Preparation
from parsecaps.export.dicom_codes import evidence_code, scheme_item, shortened
from parsecaps.export.dicom_source import WARNING, Device, DicomSource

_LABEL = 16  # bytes of a label


def make_map(
    name: str, found: np.ndarray, source: DicomSource, device: Device, preparation: Preparation, place: dict[str, Any]
) -> Any:
    """The map (size, size) of a class or a concept as one frame of 32-bit numbers, 1 where it is highest.

    Each has an object of its own, because viewers expect one quantity in an object. `place` has its UIDs and numbers.
    """
    from highdicom import VOILUTTransformation
    from highdicom.pm import ParametricMap, RealWorldValueMapping
    from pydicom.sr.codedict import codes

    mapping = RealWorldValueMapping(
        lut_label=shortened(name, _LABEL),
        lut_explanation=shortened(f"Evidence for {name}, 1 at its highest"),
        unit=codes.UCUM.NoUnits,
        value_range=(0.0, 1.0),
        slope=1.0,
        intercept=0.0,
        quantity_definition=evidence_code(name),
    )
    made = ParametricMap(
        source_images=[source.stand_in],
        pixel_array=_on_source(found, preparation, (int(source.header.Rows), int(source.header.Columns))),
        real_world_value_mappings=[mapping],
        voi_lut_transformations=[VOILUTTransformation(window_center=0.5, window_width=1.0)],
        contains_recognizable_visual_features=False,
        content_label="EVIDENCE",
        content_description=WARNING,
        series_description=shortened(f"parsecaps (research, unverified): {name}"),
        coding_schemes=[scheme_item()],
        **device.attributes(),
        **place,
    )
    for measures in made.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence:
        if "SpacingBetweenSlices" in measures:
            del measures.SpacingBetweenSlices  # highdicom says 1 mm; of one plane it is not known
    for group in made.PerFrameFunctionalGroupsSequence:
        for derivation in group.DerivationImageSequence:
            source.name_frame(derivation.SourceImageSequence[0])
    return made


def _on_source(found: np.ndarray, preparation: Preparation, shape: tuple[int, int]) -> np.ndarray:
    """A map (size, size) on the pixels (H, W) of the source, between 0 and 1."""
    values = preparation.to_original(torch.from_numpy(np.ascontiguousarray(found, dtype=np.float32)), shape)
    values = torch.nan_to_num(values).clamp(min=0)
    highest = float(values.max())
    return np.asarray((values / highest if highest > 0 else values).numpy())
