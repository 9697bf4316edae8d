"""The formats that a model can be exported to, by their names."""

from parsecaps.export import onnx, web_page
from parsecaps.export.format import ExportFormat

_FORMATS: tuple[ExportFormat, ...] = (onnx.FORMAT, web_page.FORMAT)
EXPORTS = {each.name: each for each in _FORMATS}
