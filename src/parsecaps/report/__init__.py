"""From results to tables, pictures and self-contained pages; the only room that knows HTML, SVG, Rich and base64."""

from parsecaps.report.cards import model_card
from parsecaps.report.case_page import case_page, save_page
from parsecaps.report.draw import draw
from parsecaps.report.explanation_document import explanation_document
from parsecaps.report.explanations import draw_tree
from parsecaps.report.pictures import overlay_picture
from parsecaps.report.result_pages import audit_page, data_page, scores_page

__all__ = [
    "audit_page",
    "case_page",
    "data_page",
    "draw",
    "draw_tree",
    "explanation_document",
    "model_card",
    "overlay_picture",
    "save_page",
    "scores_page",
]
