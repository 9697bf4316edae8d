"""A model in every form its users expect, one file for each format; `EXPORTS` lists them."""

from parsecaps.export.export import export_model
from parsecaps.export.formats import EXPORTS

__all__ = ["EXPORTS", "export_model"]
