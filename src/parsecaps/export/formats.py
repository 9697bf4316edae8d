"""The formats that a model can be exported to, by their names."""

from parsecaps.export.format import ExportFormat

_FORMATS: tuple[ExportFormat, ...] = ()
EXPORTS = {each.name: each for each in _FORMATS}
