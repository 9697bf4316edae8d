"""The formats that a model can be exported to, by their names."""

from parsecaps.export import hub, monai, onnx, web_page
from parsecaps.export.format import ExportFormat

_FORMATS: tuple[ExportFormat, ...] = (
    onnx.FORMAT,
    web_page.FORMAT,
    monai.FORMAT,
    hub.FORMAT,
)
EXPORTS = {each.name: each for each in _FORMATS}
