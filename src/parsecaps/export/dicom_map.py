"""The maps of an explanation as a DICOM parametric map, on the pixels and at the place of the source image."""

from typing import Any

import numpy as np
import torch

from parsecaps.data.preparation import Preparation
from parsecaps.explain.explanation import Explanation
from parsecaps.export.dicom_codes import evidence_code, scheme_item, shortened
from parsecaps.export.dicom_source import WARNING, Device, DicomSource

DESCRIPTION = "parsecaps maps, values (research, unverified)"
_LABEL = 16  # bytes of a map's label


def make_map(
    explanation: Explanation, source: DicomSource, device: Device, preparation: Preparation, place: dict[str, Any]
) -> Any:
    """A frame for the diagnosis, then one for each concept that was seen; each is 1 where its map is highest.

    `place` has the UIDs and numbers of the object.
    """
    from highdicom import VOILUTTransformation
    from highdicom.pm import ParametricMap, RealWorldValueMapping
    from pydicom.sr.codedict import codes

    shape = (int(source.header.Rows), int(source.header.Columns))
    named = [(explanation.diagnosis, explanation.class_map)]
    named += [(each.name, each.map) for each in explanation.concepts if each.seen]
    frames = [_on_source(found, preparation, shape) for _, found in named]
    mappings = [
        RealWorldValueMapping(
            lut_label=shortened(f"{number} {name}", _LABEL),
            lut_explanation=shortened(f"Evidence for {name}, 1 at its highest"),
            unit=codes.UCUM.NoUnits,
            value_range=(0.0, 1.0),
            slope=1.0,
            intercept=0.0,
            quantity_definition=evidence_code(name),
        )
        for number, (name, _) in enumerate(named, 1)
    ]
    return ParametricMap(
        source_images=[source.stand_in],
        pixel_array=np.stack(frames, axis=-1)[None],
        real_world_value_mappings=[[each] for each in mappings],
        voi_lut_transformations=[VOILUTTransformation(window_center=0.5, window_width=1.0)],
        contains_recognizable_visual_features=False,
        content_label="EVIDENCE",
        content_description=shortened(WARNING),
        series_description=DESCRIPTION,
        coding_schemes=[scheme_item()],
        **device.attributes(),
        **place,
    )


def _on_source(found: np.ndarray, preparation: Preparation, shape: tuple[int, int]) -> np.ndarray:
    """A map (size, size) on the pixels (H, W) of the source, between 0 and 1."""
    values = preparation.to_original(torch.from_numpy(np.ascontiguousarray(found, dtype=np.float32)), shape)
    values = torch.nan_to_num(values).clamp(min=0)
    highest = float(values.max())
    return np.asarray((values / highest if highest > 0 else values).numpy())
