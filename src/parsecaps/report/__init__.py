"""From results to tables, pictures and self-contained pages; the only room that knows HTML, SVG, Rich and base64."""

from parsecaps.report.audit_page import audit_page
from parsecaps.report.case_page import case_page, save_page
from parsecaps.report.data_page import data_page
from parsecaps.report.explanation_document import explanation_document
from parsecaps.report.naming_page import naming_page
from parsecaps.report.pictures import overlay_picture
from parsecaps.report.scores_page import model_card, scores_page
from parsecaps.report.tree_drawing import draw_tree

__all__ = [
    "audit_page",
    "case_page",
    "data_page",
    "draw_tree",
    "explanation_document",
    "model_card",
    "naming_page",
    "overlay_picture",
    "save_page",
    "scores_page",
]
