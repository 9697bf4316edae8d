"""The formats that a model can be exported to, by their names."""

from parsecaps.export import onnx
from parsecaps.export.format import ExportFormat

_FORMATS: tuple[ExportFormat, ...] = (onnx.FORMAT,)
EXPORTS = {each.name: each for each in _FORMATS}
