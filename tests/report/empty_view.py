"""A page with two empty places for views, and how a document is drawn into one of them."""

from parsecaps.report.case_page import view_style
from parsecaps.report.pages import template_text

_PLACES = "<div id='one'></div><div id='two'></div>"
EMPTY = f"<!doctype html><style>{view_style()}</style>{_PLACES}<script>{template_text('page.js')}</script>"
MOUNT = "([place, text, options]) => parsecaps.mount(document.getElementById(place), JSON.parse(text), options)"
