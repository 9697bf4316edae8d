"""The formats that a model can be exported to, by their names."""

from parsecaps.export import hub, monai
from parsecaps.export.format import ExportFormat

_FORMATS: tuple[ExportFormat, ...] = (
    hub.FORMAT,
    monai.FORMAT,
)
EXPORTS = {each.name: each for each in _FORMATS}
